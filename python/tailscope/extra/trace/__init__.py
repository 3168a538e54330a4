"""A run as one timeline in the format of Perfetto."""

from __future__ import annotations

from tailscope.registry import AddedCommand, Addition, Extra

ADDITION = Addition(
    commands=(
        AddedCommand(
            "trace",
            "Write a run as a timeline for ui.perfetto.dev: CPUs, packets, and the worst of them.",
        ),
    ),
    services={"write_trace": "perfetto:write_trace"},
    extra=Extra("trace", {"perfetto": "perfetto"}),
)
