"""Devices under test: their names, their options, and how they are started."""
