"""Two set-ups measured by turns, until it is clear whether the second is slower."""

from __future__ import annotations

from tailscope.registry import AddedCommand, Addition

ADDITION = Addition(
    commands=(
        AddedCommand(
            "duet",
            "Measure two set-ups by turns until it is clear whether the second is slower.",
            measures=True,
            group="compare",
        ),
    ),
)
