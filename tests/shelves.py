"""Folders with runs in them: copies of one, each with a plan of its own."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any

from runs import write_mark
from synthetic import latencies, write_run

if TYPE_CHECKING:
    from pathlib import Path

CAUSES = {"local timer": 0.75, "task python": 0.25}


def shelf(folder: Path) -> Path:
    """Five runs: plain, fast, one measured by half, one in a guest, one of a campaign."""
    plain = write_run(folder / "plain", latencies(1), causes=CAUSES)
    copied(plain, folder / "fast", dut="suricata", rate_pps=100_000, pattern="poisson")
    edited(copied(plain, folder / "half"), partial=["the device died"])
    edited(copied(plain, folder / "guest"), platform={"name": "vm", "representative": False})
    copied(plain, folder / "matrix" / "rate=1M", rate_pps=1_000_000)
    (folder / "matrix" / "campaign.json").write_text('{"format": 1, "cells": []}')
    return folder


def copied(run: Path, target: Path, **plan: Any) -> Path:
    """A copy of a run, as if it had been planned otherwise."""
    shutil.copytree(run, target)
    before = json.loads((run / "run.json").read_text())["plan"]
    return edited(target, plan={**before, **plan})


def linked(run: Path, target: Path) -> Path:
    """A copy that shares the content of its files, which are not to be changed."""
    target.mkdir(parents=True)
    for path in run.iterdir():
        os.link(path, target / path.name)
    return target


def edited(run: Path, **content: Any) -> Path:
    """A run whose ``run.json`` says something else."""
    return write_mark(run, {**json.loads((run / "run.json").read_text()), **content})
