"""Measurements on several machines, over ssh."""

from __future__ import annotations

from tailscope.registry import AddedCommand, Addition

ADDITION = Addition(
    commands=(
        AddedCommand(
            "agent", "Play a laboratory role on this machine; `tailscope run` starts it over ssh."
        ),
    ),
    sections={"hosts": "hosts:SECTION"},
)
