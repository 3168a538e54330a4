"""Runs every contender side by side and prints ratios of medians beside their targets."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tempfile
from functools import partial
from pathlib import Path

import tailscope
from bench import duckdb_join, engine, hashing, postgres
from bench.clock import Contender, medians, say
from bench.dataplane import TESTPMD, dataplane_rows
from bench.memory import peak_mib
from bench.noise import noise_rows
from bench.overload import overload_rows
from bench.pair import plain_pair, simulate
from bench.pair import tailscope as command
from bench.report import report_rows
from bench.scale import scale_rows
from bench.table import Row, print_table
from bench.tail import tail_rows

MIB = 1 << 20
LARGE_PACKETS = 10_000_000
RECORD_BYTES = 76


def small_rows(folder: Path) -> list[Row]:
    """300 000 packets a side against PostgreSQL and DuckDB."""
    name, pre, post = plain_pair(folder)
    say(f"the pair: {name}")
    with postgres.server() as server:
        say("comparing the answers")
        ours = engine.answer(engine.analyse(pre, post))
        ours.assert_equals(duckdb_join.answer(duckdb_join.analyse(pre, post)), "DuckDB")
        ours.assert_equals(postgres.answer(postgres.analyse(server, pre, post)), "PostgreSQL")
        took = medians(
            3,
            {
                "PostgreSQL": Contender(partial(postgres.analyse, server, pre, post)),
                "engine": Contender(partial(engine.analyse, pre, post), 5),
                "process": Contender(partial(command, "analyze", pre, post, "--trim", "1s"), 5),
                "DuckDB": Contender(partial(duckdb_join.analyse, pre, post), 5),
                "help": Contender(partial(command, "--help"), 5),
            },
        )
    sql, call, duck = took["PostgreSQL"], took["engine"], took["DuckDB"]
    return [
        Row(f"engine, {name}", "PostgreSQL", "speed-up", call, sql, "s", 500),
        Row("tailscope analyze", "PostgreSQL", "speed-up", took["process"], sql, "s", 40),
        Row("engine", "DuckDB", "speed-up", call, duck, "s", 15),
        Row("tailscope --help", "", "absolute", took["help"], None, "s", 0.2),
    ]


def large_rows(folder: Path) -> list[Row]:
    """10 M packets a side, of which 500 000 are within the window."""
    say("simulating 1 M and 10 M packets")
    tenth = simulate(folder / "tenth", "--packets", LARGE_PACKETS // 10, "--rate", "100k")
    pair = simulate(folder / "large", "--packets", LARGE_PACKETS, "--rate", "100k")
    took = medians(
        3,
        {
            "engine": Contender(partial(tailscope.analyze, *pair, series=False)),
            "XXH3, one file after the other": Contender(partial(hashing.in_turn, pair)),
            "XXH3, both at once": Contender(partial(hashing.side_by_side, pair)),
        },
    )
    call, *hashed = took.items()
    targets = (2.5, None)  # the target is about one pass; what two threads reach is for the reader
    rows = [
        Row("engine, 2 x 10 M packets", name, "cost", call[1], seconds, "s", target)
        for (name, seconds), target in zip(hashed, targets, strict=True)
    ]
    return rows + memory_rows(folder, tenth, pair)


def memory_rows(folder: Path, tenth: tuple[Path, Path], pair: tuple[Path, Path]) -> list[Row]:
    """Memory follows the window, not the capture."""
    say("measuring memory")
    small, large = peak_mib(*tenth), peak_mib(*pair)
    for path in pair:
        path.unlink()
    fast = simulate(folder / "fast", "--packets", LARGE_PACKETS, "--rate", "1M")
    return [
        Row("memory, 100 kpps, 10 M", "", "absolute", large, None, "MiB", 256),
        Row("memory, 100 kpps, 10 M", "1 M", "cost", large, small, "MiB", 1.1),
        Row("memory, 1 Mpps, 10 M", "", "absolute", peak_mib(*fast), None, "MiB", 256),
    ]


def check_room(folder: Path) -> None:
    """The captures are large; say so before they fill a disk."""
    needed, free = 2.5 * LARGE_PACKETS * RECORD_BYTES, shutil.disk_usage(folder).free
    say(f"needs {needed / MIB:.0f} MiB in {folder}, {free / MIB:.0f} MiB are free")
    if free < needed:
        raise SystemExit(
            f"error: {folder}: got {free / MIB:.0f} MiB free, expected {needed / MIB:.0f} MiB\n"
            "hint: set TMPDIR to a folder with more room"
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there as well")
    parser.add_argument(
        "--only",
        choices=["analysis", "dataplane", "noise", "overload", "report", "scale", "tail"],
        help="leave out the others",
    )
    options = parser.parse_args()
    say(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="tailscope-bench-") as name:
        folder = Path(name)
        rows = []
        if options.only in (None, "analysis"):
            check_room(folder)
            rows += small_rows(folder) + large_rows(folder)
        if options.only in (None, "dataplane"):
            if shutil.which(TESTPMD) is None:
                raise SystemExit(f"error: no {TESTPMD}\nhint: install dpdk, or --only analysis")
            rows += dataplane_rows()
        if options.only in (None, "noise"):
            rows += noise_rows()
        if options.only in (None, "report"):
            check_room(folder)
            rows += report_rows(folder)
        if options.only in (None, "overload"):
            rows += overload_rows(folder)
        if options.only in (None, "scale"):
            rows += scale_rows(folder)
        if options.only in (None, "tail"):
            rows += tail_rows()
    print_table(rows)
    if options.json:
        options.json.write_text(json.dumps([row.figures() for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"error: {error}") from None
