"""Comparison of runs: their differences, and which of these are real.

`sources` finds the runs, `sample` reduces each to its figures, `compare` says what differs,
`limits` judges it.
"""
