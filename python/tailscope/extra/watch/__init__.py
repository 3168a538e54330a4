"""The same run again and again for days: its log, and metrics for Prometheus."""

from __future__ import annotations

from tailscope.registry import AddedCommand, Addition

ADDITION = Addition(
    commands=(
        AddedCommand(
            "watch",
            "Measure for days: a run every hour, metrics for Prometheus, and books of it all.",
            measures=True,
        ),
    ),
)
