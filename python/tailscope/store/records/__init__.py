"""The JSON files that tailscope keeps, as types: what is in them, and nothing that acts on it."""
