"""A model of the tail: what lies beyond a measurement, by extreme values."""

from __future__ import annotations

from tailscope.registry import AddedCommand, AddedFile, Addition, Extra

TAIL = "tail.json"
"""A kept model of the tail, beside the files of its run."""

ADDITION = Addition(
    commands=(AddedCommand("tail", "Extrapolate the tail beyond the measurement.", group="model"),),
    files=(
        AddedFile(
            TAIL,
            "What a model of the tail keeps beside the checksums: its `--json`, and where that"
            " comes from.",
            "records:TailRecord",
        ),
    ),
    conclusions={TAIL: "records:TailRecord"},
    services={
        "conclusion_doubts": "words:conclusion_doubts",
        "conclusion_rows": "words:conclusion_rows",
        "figures": "figures:FIGURES",
        "next_run": "words:next_run",
        "overloaded": "overloaded:overloaded",
        "tail_rate": "rates:tail_rate",
    },
    extra=Extra("tail", {"scipy": "scipy"}),
)
