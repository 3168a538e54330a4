"""Service levels, and whether a run meets them."""
