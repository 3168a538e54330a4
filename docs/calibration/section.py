"""What each part of the page is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope.words.promises import Model


class Section(NamedTuple):
    """A part of the page.

    Attributes
    ----------
    title : str
    text : str
        What is promised, and how that was tried.
    tables : tuple of str
        In Markdown.
    sentences : dict
        What commands quote of it, each beside the figures that it names.
    """

    title: str
    text: str
    tables: tuple[str, ...]
    sentences: dict[Model, str]

    def page(self) -> str:
        """It in Markdown."""
        said = [f"> {sentence}" for sentence in self.sentences.values()]
        return "\n\n".join([f"## {self.title}", self.text, *self.tables, *said])


SURE = 0.95
"""Probability that a pass or a fail promises."""


def brier(probabilities: Sequence[float], came: Sequence[bool]) -> float:
    """The Brier score: the mean square of what was said, minus what came; a coin has 0.25."""
    pairs = zip(probabilities, came, strict=True)
    return sum((said - it_came) ** 2 for said, it_came in pairs) / max(len(came), 1)


def interval_score(low: float, high: float, truth: float) -> float:
    """The interval score (Gneiting and Raftery, 2007) of the logs of an interval of 95 %."""
    ends, came = np.log10([low, high]), np.log10(truth)
    outside = max(ends[0] - came, came - ends[1], 0.0)
    return float(ends[1] - ends[0] + 2 / (1 - SURE) * outside)


def share(part: int, whole: int) -> str:
    """A part of a whole in percent."""
    return f"{part / whole:.1%}".replace(".0%", "%") if whole else "-"
