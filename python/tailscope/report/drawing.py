"""How all figures look, and how they become files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tailscope.store.atomic import replacing

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

__all__ = [
    "COLOURS",
    "FORMATS",
    "GRID",
    "INK",
    "POINT",
    "SETTINGS",
    "VECTORS_UP_TO",
    "WIDTH_IN",
    "save",
]

FORMATS = ("png", "svg", "pdf")

INK = "#1b1f24"
GRID = "#d0d7de"
"""Colours of text and grid; a page replaces them by its own, so that they follow its theme."""

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Okabe and Ito, without the black and the yellow that one of the two themes would hide."""

VECTORS_UP_TO = 4000
"""More points than these are drawn as pixels."""

WIDTH_IN = 7.2

POINT: dict[str, Any] = {"markersize": 3, "markeredgewidth": 0.7}

SETTINGS = {
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": "medium",
    "font.size": 9,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.3,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "tailscope",
    "text.color": INK,
    "text.parse_math": False,
    "xtick.color": INK,
    "ytick.color": INK,
}
"""Of matplotlib, while something is drawn or saved."""


def save(figure: Figure, path: Path, kind: str) -> None:
    """Write a figure to a file, without the time at which that happens.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
    path : Path
    kind : {"png", "svg", "pdf"}
    """
    dated = {"pdf": "CreationDate", "svg": "Date"}.get(kind)
    with replacing(path) as file:
        figure.savefig(file, format=kind, dpi=200, metadata={dated: None} if dated else None)
