"""What must hold for every run directory, whatever was measured."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tailscope.store.reader import read_run

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces and containers are root's")


def sound(path: Path) -> dict[str, Any]:
    """Read a run directory with its checksums, check that its counts add up; ``run.json``."""
    run = read_run(path)
    summary = run.summary
    assert summary["sent"] == summary["count"] + summary["lost"] + summary["late"] + (
        summary["corrupt"] or 0
    )
    instrument = run.info["instrument"]
    assert summary["lost"] == instrument["lost_in_dut"] + instrument["lost_in_instrument"]
    assert summary["sent"] > 0
    return dict(run.info)


def needed(*programs: str) -> None:
    """Skip without these programs; in continuous integration they are there."""
    import shutil

    for program in programs:
        if shutil.which(program) is None and not Path("/usr/sbin", program).exists():
            assert not os.environ.get("CI"), f"no {program}: make setup-ci installs it"
            pytest.skip(f"no {program}")


def left_behind() -> list[str]:
    """Namespaces, groups of containers and processes of measurements that are there."""
    found = []
    listed = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    found += [line for line in listed.splitlines() if line.startswith("tailscope-")]
    groups = Path("/sys/fs/cgroup")
    for pattern in ("lxc.payload.*", "*/lxc.payload.*"):
        found += [str(path) for path in groups.glob(pattern)]
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            environment = path.read_bytes()
        except OSError:
            continue
        if b"TAILSCOPE_MEASUREMENT=" in environment:
            found.append(str(path))
    return found


def records(path: Path) -> list[dict[str, Any]]:
    """The cells of a campaign."""
    cells: list[dict[str, Any]] = json.loads((path / "campaign.json").read_text())["cells"]
    return cells
