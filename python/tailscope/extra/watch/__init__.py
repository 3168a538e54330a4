"""A watch, which repeats a run for days: its log, and metrics for Prometheus."""

from __future__ import annotations

from tailscope.registry import AddedCommand, AddedFile, Addition, Extra

LOG = "watch.jsonl"
"""The log of a watch, beside its runs."""

ADDITION = Addition(
    commands=(
        AddedCommand(
            "watch",
            "Measure for days: hourly runs, metrics, and a log of it all.",
            measures=True,
            section="Measuring",
        ),
        AddedCommand(
            "watch",
            "Measure the paths between hosts, each to all others: metrics, and a page.",
            measures=True,
            module="mesh_command",
            option="--mesh",
        ),
    ),
    files=(
        AddedFile(
            LOG,
            "A line for each run of `tailscope watch`, written when it has ended. The runs are"
            " directories beside it ([watch.md](watch.md)).",
            "records:WatchedRun",
        ),
    ),
    extra=Extra("watch", {"prometheus_client": "prometheus-client", "google.protobuf": "protobuf"}),
)
