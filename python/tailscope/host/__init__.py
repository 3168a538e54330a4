"""The machine: its settings, its kernel, and the knobs that tune it."""
