"""A campaign as a static site, without what is private to a machine."""

from __future__ import annotations

from tailscope.registry import AddedCommand, Addition

ADDITION = Addition(
    commands=(
        AddedCommand(
            "publish",
            "Publish a campaign as a static site: pages, data, plan, environment, figures.",
        ),
    ),
)
