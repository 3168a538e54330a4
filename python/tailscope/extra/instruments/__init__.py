"""Instruments against devices of known latency."""

from __future__ import annotations

from tailscope.registry import AddedCommand, Addition

ADDITION = Addition(
    commands=(
        AddedCommand(
            "instruments",
            "Judge instruments by devices of known latency: `calibrate --instruments`.",
            measures=True,
            group="calibrate",
            option="--instruments",
        ),
    ),
)
