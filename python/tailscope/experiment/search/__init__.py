"""Answers that take many runs: rates, knobs, pairs by turns, instruments."""
