"""Additions to the core that can be removed, a folder each."""
