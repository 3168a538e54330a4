"""Measurements on several machines, over ssh."""

from __future__ import annotations

from tailscope.registry import AddedCommand, AddedSection, Addition, Extra

ADDITION = Addition(
    commands=(
        AddedCommand(
            "agent", "Play a laboratory role on this machine; `tailscope run` starts it over ssh."
        ),
    ),
    extra=Extra("lab", {"asyncssh": "asyncssh"}),
    sections={"hosts": AddedSection("hosts:SECTION", "bench:Laboratory")},
)
