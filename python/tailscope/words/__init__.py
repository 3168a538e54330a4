"""Figures and verdicts in words."""
