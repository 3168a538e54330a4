"""What a series of packets says about the device between two captures, from the packets alone.

`system` says when the device held packets; each other module looks for one kind of device in that,
and returns a `Finding` or a `Refusal` (`answer`).
"""
