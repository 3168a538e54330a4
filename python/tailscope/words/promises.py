"""Reliability of predictions: how often they were right where the truth is known."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Literal

Model = Literal["verdict", "recommendation", "tail", "aliasing", "overload"]


def kept(model: Model) -> str:
    """Return how often a model was right on data with known truth, in words."""
    return _sentences()[model]


@cache
def _sentences() -> dict[Model, str]:
    found: dict[Model, str] = json.loads(
        files("tailscope.words").joinpath("promises.json").read_text()
    )
    return found
