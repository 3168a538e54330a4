"""The files of a run directory, and of a campaign."""

from __future__ import annotations

import os
from pathlib import PurePath
from typing import Final

RUN_FORMAT: Final = 3
"""Version of ``run.json``; a reader refuses any other one."""

FORMAT: Final = 2
"""Version of explanations and kept conclusions; a reader refuses any other one."""

SUMMARY_FORMAT: Final = 4
"""Version of ``summary.json``; a reader refuses any other one."""

RUN = "run.json"
SUMMARY = "summary.json"
PERCENTILES = "percentiles.csv"
HISTOGRAM = "histogram.csv"
HLOG = "histogram.hlog"
BUCKETS = "buckets.csv"
GAPS = "gaps.csv"
RATE = "rate.csv"
WORST = "worst.parquet"
LATENCY = "latency.parquet"
LOST = "lost.parquet"
UNTIMED = "untimed.parquet"
CLOCK_DOUBTS = "clock_doubts.csv"
FLOWS = "flows.csv"
LOSS_RUNS = "loss_runs.csv"
CORRUPT = "corrupt.csv"
NOISE = "noise.parquet"
NEIGHBOURS = "neighbours.parquet"
STAGES = "stages.parquet"
WATCHED = "noise.json"
INTERRUPTS = "interrupts.parquet"
POWER = "power.parquet"
EXPLANATION = "explanation.json"
CAPTURES = "captures"
RECORDING = "recording"
"""Folder of a measurement's recording, until that is analysed."""
RECORDED = f"{RECORDING}/recorded.json"
REPORT = "report.html"
OVERLOAD = "overload.json"
VERDICT = "verdict.json"
CAMPAIGN = "campaign.json"
NOTES = "notes.json"


def is_inside(name: str) -> bool:
    """Return whether a name that was read stays within its directory."""
    path = PurePath(name)
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    is_below = bool(path.parts) and not path.is_absolute() and ".." not in path.parts
    return is_below and "\0" not in name
