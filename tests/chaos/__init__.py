"""Measurements under attack."""
