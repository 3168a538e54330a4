"""An ablation: which knob of the host matters."""

from __future__ import annotations

from tailscope.registry import AddedCommand, Addition

ADDITION = Addition(
    commands=(
        AddedCommand(
            "tune",
            "Rank the host's knobs: measure the tail with all, with none, and with all but one.",
            measures=True,
            group="host",
        ),
    ),
)
