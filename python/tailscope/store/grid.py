"""The quantiles that percentile files list."""

from __future__ import annotations

HEADLINE = (0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999)
"""The quantiles of the summary."""

_DECADES = 9
_STEPS = 30
_STEPS_DRAWN = 50


def _authors_grid() -> tuple[float, ...]:
    """Compute the grid with the authors' rounding: ``10^d + k * 0.3 * 10^d`` is summed up."""
    grid = {0.05, 0.25, 0.5, 0.75, 0.95}
    for decade in range(_DECADES):
        odds = 10.0**decade
        for _ in range(_STEPS):
            grid.add((odds - 1) / odds)
            odds += 0.3 * 10**decade
    return tuple(sorted(grid))


AUTHORS_GRID = _authors_grid()
"""The 275 ranks of the authors' percentile files, to the last bit."""


def grid_for(count: int) -> list[float]:
    """The quantiles that `count` samples can speak of, for drawing.

    Every percent, 50 ranks a decade, and the headline quantiles, as far as a sample lies beyond.
    """
    percents = (percent / 100 for percent in range(100))
    decades = (1 - 10 ** (-step / _STEPS_DRAWN) for step in range(_DECADES * _STEPS_DRAWN))
    grid = sorted({*percents, *decades, *HEADLINE})
    return [q for q in grid if (1 - q) * count >= 1]
