"""Measurements on several machines, over ssh."""
