"""Runs every contender side by side and prints ratios of medians beside their targets."""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import xxhash

import tailscope
from bench import duckdb_join, postgres
from bench.pair import QUANTILES, Answer, plain_pair, simulate

if TYPE_CHECKING:
    from collections.abc import Callable

MIB = 1 << 20
LARGE_BYTES = 2 * 10_000_000 * 76


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    what: str
    against: str
    measured: float
    target: float
    unit: str
    at_least: bool

    @property
    def met(self) -> bool:
        return self.measured >= self.target if self.at_least else self.measured <= self.target


def say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


def seconds(act: Callable[[], object]) -> float:
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def medians(rounds: int, **contenders: Callable[[], object]) -> dict[str, float]:
    """Time the contenders in turn, so that whatever else runs here disturbs them alike."""
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for done in range(rounds):
        for name, act in contenders.items():
            times[name].append(seconds(act))
        say(f"{', '.join(contenders)}: {done + 1} of {rounds}")
    return {name: statistics.median(found) for name, found in times.items()}


def engine(pre: Path, post: Path) -> Answer:
    """Every figure and series by the engine's call."""
    found = tailscope.analyze(pre, post, trim="1s")
    found.histogram(100), found.gaps("pre", 100), found.gaps("post", 100)
    found.rate("pre"), found.rate("post")
    worst = found.worst
    return Answer(
        found.summary["count"],
        tuple(quantile.value_ns for quantile in found.quantiles(QUANTILES)),
        tuple(zip(worst.latency_ns.tolist(), worst.pre_ns.tolist(), strict=True)),
    )


def small_rows(folder: Path) -> list[Row]:
    """300 000 packets a side against PostgreSQL and DuckDB."""
    name, pre, post = plain_pair(folder)
    say(f"the pair: {name}")
    command = ["tailscope", "analyze", str(pre), str(post), "--trim", "1s"]
    process = lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: E731
    ours = engine(pre, post)
    assert duckdb_join.analyse(pre, post) == ours, "DuckDB finds the same"
    with postgres.server() as server:
        assert postgres.analyse(server, pre, post) == ours, "PostgreSQL finds the same"
        slow = medians(3, postgres=lambda: postgres.analyse(server, pre, post))
    fast = medians(
        15,
        engine=lambda: engine(pre, post),
        process=process,
        duckdb=lambda: duckdb_join.analyse(pre, post),
        help=lambda: subprocess.run(["tailscope", "--help"], check=True, stdout=subprocess.DEVNULL),
    )
    slow_s = slow["postgres"]
    say(f"medians in s: {slow | fast}")
    return [
        Row("engine, 300 000 pairs", "PostgreSQL", slow_s / fast["engine"], 500, "x", True),
        Row("tailscope analyze", "PostgreSQL", slow_s / fast["process"], 40, "x", True),
        Row("engine", "DuckDB", fast["duckdb"] / fast["engine"], 15, "x", True),
        Row("tailscope --help", "", fast["help"], 0.2, "s", False),
        *report_rows(pre, post, folder),
    ]


def report_rows(pre: Path, post: Path, folder: Path) -> list[Row]:
    run, page = folder / "run", folder / "report.html"
    subprocess.run(
        ["tailscope", "analyze", pre, post, "--out", run], check=True, stdout=subprocess.DEVNULL
    )
    command = ["tailscope", "report", run, "--out", page]
    act = lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: E731
    took = medians(3, report=act)["report"]
    return [
        Row("report.html", "", took, 2, "s", False),
        Row("report.html", "", page.stat().st_size / MIB, 2, "MiB", False),
    ]


def digest(path: Path) -> str:
    """Read a file and hash it with XXH3."""
    state = xxhash.xxh3_64()
    buffer = memoryview(bytearray(MIB))
    with path.open("rb", buffering=0) as file:
        while length := file.readinto(buffer):
            state.update(buffer[:length])
    return state.hexdigest()


def digest_both(paths: tuple[Path, Path]) -> None:
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(digest, paths))


MEASURE = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def peak_mib(pre: Path, post: Path) -> float:
    """The largest resident size of a whole analysis.

    Measured by a small process in between: a child begins with the peak of the one that forked it.
    """
    command = ["tailscope", "analyze", str(pre), str(post), "--json", "-"]
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *command], check=True, stdout=subprocess.PIPE
    )
    return int(done.stdout) / 1024


def large_rows(folder: Path) -> list[Row]:
    """10 M packets a side at 100 kpps: 500 000 are within the window."""
    free = shutil.disk_usage(folder).free
    if free < 3 * LARGE_BYTES:
        raise SystemExit(
            f"error: {folder}: got {free // MIB} MiB free, expected {3 * LARGE_BYTES // MIB}\n"
            "hint: set TMPDIR to a folder with more room"
        )
    say("simulating 1 M and 10 M packets")
    pair = simulate(folder / "large", "--packets", 10_000_000, "--rate", "100k")
    tenth = simulate(folder / "tenth", "--packets", 1_000_000, "--rate", "100k")
    found = medians(
        3,
        engine=lambda: tailscope.analyze(*pair, series=False),
        one_by_one=lambda: [digest(path) for path in pair],
        side_by_side=lambda: digest_both(pair),
    )
    say(f"medians in s: {found}")
    fast = simulate(folder / "fast", "--packets", 10_000_000, "--rate", "1M")
    small, large, fastest = peak_mib(*tenth), peak_mib(*pair), peak_mib(*fast)
    return [
        Row(
            "engine, 10 M pairs",
            "XXH3, files in turn",
            found["engine"] / found["one_by_one"],
            2.5,
            "x",
            False,
        ),
        Row(
            "engine, 10 M pairs",
            "XXH3, both at once",
            found["engine"] / found["side_by_side"],
            2.5,
            "x",
            False,
        ),
        Row("peak memory, 10 M pairs", "", large, 256, "MiB", False),
        Row("... at 1 Mpps", "", fastest, 256, "MiB", False),
        Row("peak memory, 10 M pairs", "1 M pairs", large / small, 1.1, "x", False),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there as well")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tailscope-bench-") as folder:
        rows = small_rows(Path(folder)) + large_rows(Path(folder))
    print(f"{'what':<26}{'against':<22}{'measured':>12}{'target':>12}")
    for row in rows:
        sign = ">=" if row.at_least else "<="
        measured = f"{row.measured:.4g} {row.unit}"
        target = f"{sign} {row.target:g} {row.unit}"
        verdict = "met" if row.met else "missed"
        print(f"{row.what:<26}{row.against:<22}{measured:>12}{target:>12}  {verdict}")
    if options.json:
        options.json.write_text(
            json.dumps([asdict(row) | {"met": row.met} for row in rows], indent=1)
        )


if __name__ == "__main__":
    main()
