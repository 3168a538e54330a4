"""The interplay of packets and periodic interruptions (noms2020, section V-C).

`simulation` says what interruptions do to packets. `fit` finds, in packets alone, the interruptions
that did it: `spectrum` finds their rate, `comb` their phase and which of them are longer.
`prediction` sets one beside the other.
"""
