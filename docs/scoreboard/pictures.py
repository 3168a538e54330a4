"""Pictures of the scoreboard: by how much each instrument is wrong, and how it ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tailscope.report.picture import Axis, Layer, Picture

if TYPE_CHECKING:
    from collections.abc import Sequence

    Cell = dict[str, Any]

QUANTILE = "p99"
RANKED_BY = "p50"
_LEAST_NS = 50_000
"""Truths below say only how long the instrument itself takes."""


def errors(board: dict[str, Any]) -> Picture:
    """Return each instrument's figure as a multiple of the true one, by truth."""
    names = list(board["instruments"])
    layers: list[Layer] = []
    truths = [
        truth
        for truth in board["truths"]
        if any(_is_shown(cell) and cell["truth"] == truth for cell in board["cells"])
    ]
    for colour, truth in enumerate(truths):
        cells = [cell for cell in board["cells"] if cell["truth"] == truth and _is_shown(cell)]
        if not cells:
            continue
        shift = (colour - (len(truths) - 1) / 2) * 0.11
        height = np.array([names.index(cell["instrument"]) + shift for cell in cells])
        layers += _marks(cells, height, truth, colour)
    layers.append(_line(1.0, len(names), len(truths)))
    return Picture(
        "scoreboard-errors",
        f"What instruments say of {QUANTILE}, as a multiple of the true value",
        "",
        Axis("measured / true", "ratio", "log"),
        Axis("instrument", "instrument", names=tuple(names)),
        tuple(layers),
    )


def rankings(board: dict[str, Any]) -> Picture:
    """Return the rank correlation of each instrument with the truth."""
    ours = [each for each in board["rankings"] if each["statistic"] == RANKED_BY]
    names = [each["instrument"] for each in ours]
    height = np.arange(len(ours), dtype=float)
    low, high, tau = (
        np.array([each[name] for each in ours], float) for name in ("ci_low", "ci_high", "tau")
    )
    layers = (
        Layer("spans", "tau", "", {"x": low, "x_end": high, "y": height}, "", 0),
        Layer("points", "tau", "", {"x": tau, "y": height}, "", 0),
    )
    return Picture(
        "scoreboard-ranks",
        f"Whether instruments rank four configurations by {RANKED_BY} as the truth does",
        "",
        Axis("Kendall's rank correlation with the truth", "tau", limits=(-1.05, 1.05)),
        Axis("instrument", "instrument", names=tuple(names)),
        layers,
    )


def _is_shown(cell: Cell) -> bool:
    return cell["quantile"] == QUANTILE and cell["true"] >= _LEAST_NS


def _marks(cells: Sequence[Cell], height: Any, truth: str, colour: int) -> list[Layer]:
    true = np.array([cell["true"] for cell in cells])
    low, high, measured = (
        np.array([cell[name] for cell in cells]) / true
        for name in ("ci_low", "ci_high", "measured")
    )
    return [
        Layer("spans", truth, "", {"x": low, "x_end": high, "y": height}, truth, colour),
        Layer("points", truth, "", {"x": measured, "y": height}, truth, colour),
    ]


def _line(at: float, names: int, colour: int) -> Layer:
    ends = {"x": np.array([at, at]), "y": np.array([-0.5, names - 0.5])}
    return Layer("line", "true", "", ends, "", colour, "dashed")
