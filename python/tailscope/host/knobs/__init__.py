"""The knobs that can be tuned, by subject; `catalogue` lists all of them."""
