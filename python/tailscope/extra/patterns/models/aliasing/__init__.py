"""The interplay of packets and periodic interruptions (noms2020, section V-C).

`simulation` says what interruptions do to packets. `fit` measures, in packets alone, the
interruptions that did it; `search` finds the clocks behind them, by their rate (`spectrum`) and
by when packets leave together (`comb`). `prediction` sets predicted beside measured.
"""
