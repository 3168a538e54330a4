"""What must hold for every run directory, whatever was measured."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tailscope.engine.analysis import Series
from tailscope.store.reader import open_packets, read_run
from tailscope.testbed.tracefs import instances, tracefs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces and containers are root's")


def sound(path: Path) -> dict[str, Any]:
    """Read a run directory with its checksums, check that its counts add up; ``run.json``."""
    run = read_run(path)
    summary = run.summary
    names = ("count", "lost", "late", "corrupt", "outside")
    ends = {name: int(summary.get(name) or 0) for name in names}
    assert summary["sent"] == sum(ends.values()), f"{summary['sent']} sent, of which {ends}"
    instrument = run.info.instrument
    assert instrument is not None
    parts = (instrument.lost_in_dut, instrument.lost_in_instrument, instrument.lost_where_unknown)
    assert summary["lost"] == sum(part or 0 for part in parts), f"{summary['lost']} lost: {parts}"
    assert summary["sent"] > 0, "nothing was sent"
    found: dict[str, Any] = json.loads((path / "run.json").read_text())
    return found


def write_mark(run: Path, content: dict[str, Any]) -> Path:
    """Give a run another ``run.json``, with the checksum that tailscope would have given it."""
    known = {name: value for name, value in content.items() if name != "lines_sha256"}
    lines = json.dumps(known, indent=2).removesuffix("\n}") + ",\n"
    digest = hashlib.sha256(lines.encode()).hexdigest()
    # Never in place: copies may share the file.
    (run / "run.json").unlink(missing_ok=True)
    (run / "run.json").write_text(f'{lines}  "lines_sha256": "{digest}"\n}}\n')
    return run


def needed(*programs: str) -> None:
    """Skip without these programs; in continuous integration they are there."""
    import shutil

    for program in programs:
        if shutil.which(program) is None and not Path("/usr/sbin", program).exists():
            assert not os.environ.get("CI"), f"no {program}: make setup-ci installs it"
            pytest.skip(f"no {program}")


_CLEANED_UP_S = 30.0
"""What other tests kill on purpose they have removed by then."""

MEASUREMENT = re.compile(r"tailscope-\d+-[0-9a-f]{8}")
"""What a measurement calls its folder, and begins the names of all that is its with."""


def left_behind(*containers: str) -> list[str]:
    """What measurements that have ended left: namespaces, groups of containers, tracers, processes.

    Containers that were given a name are known by it alone. Other tests may measure meanwhile, or
    kill a measurement and clean up after it: what is in use counts for nothing, nor what comes or
    goes while we look.
    """
    left = set(_belongings(containers))
    deadline_s = time.monotonic() + _CLEANED_UP_S
    while left:
        in_use = set(_in_use())
        left &= {thing for thing in _belongings(containers) if thing[1] not in in_use}
        if time.monotonic() > deadline_s:
            break
        time.sleep(0.2)
    return sorted(thing for thing, _ in left)


def _belongings(containers: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Things of measurements, and whose they are."""
    listed = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines():
        if found := MEASUREMENT.match(line):
            yield f"namespace {line}", found[0]
    groups = Path("/sys/fs/cgroup")
    for path in (*groups.glob("*.payload.*"), *groups.glob("*/*.payload.*")):
        name = path.name.partition(".payload.")[2]
        found = MEASUREMENT.match(name)
        if found or name in containers:
            yield str(path), found[0] if found else name
    if os.geteuid() == 0:
        with tracefs() as root:
            for name in instances(root):
                if found := MEASUREMENT.match(name):
                    yield f"kernel tracer {name}", found[0]
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            mark = re.search(rb"\0TAILSCOPE_MEASUREMENT=([^\0]*)", b"\0" + path.read_bytes())
            if mark and (found := MEASUREMENT.match(mark[1].decode())):
                yield str(path), found[0]


def _in_use() -> Iterator[str]:
    """Measurements whose folder some process holds by its lock."""
    for process in Path("/proc").glob("[0-9]*"):
        # Processes and what they have opened go while we look.
        opened: list[Path] = []
        with suppress(OSError):
            opened = [*(process / "fd").iterdir()]
        for path in opened:
            with suppress(OSError):
                target = path.readlink()
                if target.name == "lock" and MEASUREMENT.fullmatch(target.parent.name):
                    yield target.parent.name


def records(path: Path) -> list[dict[str, Any]]:
    """The cells of a campaign."""
    cells: list[dict[str, Any]] = json.loads((path / "campaign.json").read_text())["cells"]
    return cells


def read_packets(path: Path) -> Series:
    """Read the single packets of a run as a whole."""
    with open_packets(path, read_run(path).info) as packets:
        return Series(*packets.columns(*Series._fields))
