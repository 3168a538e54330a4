"""Instruments against devices of known latency."""

from __future__ import annotations

from tailscope.registry import AddedCommand, Addition

ADDITION = Addition(
    commands=(
        AddedCommand(
            "calibrate",
            "Judge instruments by devices of known latency.",
            measures=True,
            option="--instruments",
        ),
    ),
)
