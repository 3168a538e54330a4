"""The files with which a gate for the latency of a program of yours begins."""

from __future__ import annotations

from tailscope.registry import AddedCommand, Addition

ADDITION = Addition(
    commands=(
        AddedCommand(
            "init",
            "Write a gate for a program of yours: experiment, script, CI job.",
            section="Deciding",
        ),
    ),
)
