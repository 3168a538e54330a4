"""The machine: what it is, and how it was booted."""
