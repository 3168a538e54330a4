"""Formats of figures, and their colours: what can be said without drawing."""

from __future__ import annotations

__all__ = ["COLOURS", "FORMATS"]

FORMATS = ("png", "svg", "pdf")

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito, without the black and the yellow that one of two themes would hide."""
