"""Trends: the change of figures from run to run, and the run from which on they differ.

`series` sorts runs into series of steps, `points` finds change points, `changes` judges the last
one, `words` says it.
"""

from __future__ import annotations

from tailscope.registry import AddedCommand, Addition, Extra

ADDITION = Addition(
    commands=(
        AddedCommand(
            "trend",
            "Show how figures change from run to run, and since when.",
            section="Deciding",
        ),
    ),
    extra=Extra(
        "trend",
        {"otava": "apache-otava"},
        install="--no-deps 'apache-otava>=0.8,<0.9' scipy",
    ),
)
