"""Runs every contender side by side and prints ratios of medians beside their targets."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.analysis import large_rows, small_rows
from bench.clock import say, seconds
from bench.commands import command_rows
from bench.dataplane import TESTPMD, dataplane_rows
from bench.peers import peer_rows
from bench.report import report_rows
from bench.scale import PAIR_PACKETS, scale_rows
from bench.table import Row, print_table

MIB = 1 << 20
RECORD_BYTES = 76

Group = Callable[[Path], list[Row]]


def _noise(_folder: Path) -> list[Row]:
    from bench.noise import noise_rows

    return noise_rows()


def _overload(folder: Path) -> list[Row]:
    from bench.overload import overload_rows

    return overload_rows(folder)


def _tail(_folder: Path) -> list[Row]:
    from bench.tail import tail_rows

    return tail_rows()


def _coverage(_folder: Path) -> list[Row]:
    from bench.coverage import coverage_rows

    return coverage_rows()


GROUPS: dict[str, Group] = {
    "analysis": lambda folder: small_rows(folder) + large_rows(folder),
    "commands": command_rows,
    "report": report_rows,
    "tail": _tail,
    "dataplane": lambda _: dataplane_rows(),
    "noise": _noise,
    "scale": scale_rows,
    "peers": peer_rows,
}
ON_REQUEST: dict[str, Group] = {
    "coverage": _coverage,
    "overload": _overload,
}
"""These judge models, not speed, and take longer than all others."""


def check_room(folder: Path) -> None:
    """The captures are large; say so before they fill a disk."""
    needed, free = 2.5 * PAIR_PACKETS * RECORD_BYTES, shutil.disk_usage(folder).free
    say(f"needs {needed / MIB:.0f} MiB in {folder}, {free / MIB:.0f} MiB are free")
    if free < needed:
        raise SystemExit(
            f"error: {folder}: got {free / MIB:.0f} MiB free, expected {needed / MIB:.0f} MiB\n"
            "hint: set TMPDIR to a folder with more room"
        )


def run(name: str, group: Group) -> list[Row]:
    """Measure one group and print it; what it wrote is gone afterwards."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="tailscope-bench-") as folder:
        took_s = seconds(lambda: rows.extend(group(Path(folder))))
    print(f"\n{name}, {took_s:.0f} s")
    print_table(rows)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there as well")
    parser.add_argument(
        "--only",
        choices=[*GROUPS, *ON_REQUEST],
        help=f"leave out the others; {' and '.join(ON_REQUEST)} run on request only",
    )
    options = parser.parse_args()
    say(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    names = [options.only] if options.only else list(GROUPS)
    check_room(Path(tempfile.gettempdir()))
    if "dataplane" in names and shutil.which(TESTPMD) is None:
        raise SystemExit(f"error: no {TESTPMD}\nhint: install dpdk, or --only analysis")
    rows = [row for name in names for row in run(name, (GROUPS | ON_REQUEST)[name])]
    if options.json:
        options.json.write_text(json.dumps([row.figures() for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"error: {error}") from None
