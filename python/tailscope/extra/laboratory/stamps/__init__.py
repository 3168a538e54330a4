"""Timestamps of frames on links of a laboratory, and the clocks of cards."""
