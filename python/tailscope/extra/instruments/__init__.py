"""Instruments against devices of known latency."""

from __future__ import annotations

from tailscope.registry import AddedCommand, Addition

ADDITION = Addition(
    commands=(
        AddedCommand(
            "instruments",
            "Measure devices of known latency with other instruments, too.",
            measures=True,
            group="calibrate",
            option="--instruments",
        ),
    ),
)
