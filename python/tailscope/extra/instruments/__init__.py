"""One known delay, measured with every instrument."""

from __future__ import annotations

from tailscope.registry import AddedCommand, Addition

ADDITION = Addition(
    commands=(
        AddedCommand(
            "instruments",
            "Measure one known delay with every instrument that works here.",
            measures=True,
            group="calibrate",
        ),
    ),
)
