"""Runs and campaigns as Python and notebooks use them."""
