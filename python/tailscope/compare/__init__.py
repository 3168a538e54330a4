"""What differs between runs, and which differences are real.

`sources` finds the runs, `sample` reduces each to its figures, `compare` says what differs,
`limits` judges it.
"""
