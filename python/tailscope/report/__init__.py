"""Figures and pages of runs: a report draws what a run holds, and estimates nothing."""
