"""The stages of any flow on its way through this machine's kernel."""

from __future__ import annotations

from tailscope.registry import AddedCommand, Addition

ADDITION = Addition(
    commands=(
        AddedCommand(
            "stages",
            "Follow each packet of a flow through the kernel.",
            section="Explaining",
        ),
    ),
)
