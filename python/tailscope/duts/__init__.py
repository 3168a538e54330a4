"""Devices under test: what they are called, what can be asked of them, how they are started."""
