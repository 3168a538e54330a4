"""Commands that write, each in a folder with what it needs."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, NamedTuple

import campaigns
import captures
import numpy as np
import synthetic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    Start = Callable[[Path, str], None]

HOME = ("cache", "state", "run", "tmp")
"""Folders that the environment of commands names."""

_MEASURED = "--dut l2fwd --duration 100ms --warm-up 0s --rate 5k --noise stalls --quiet"
_CAMPAIGN = """\
name: faults
fixed: {dut: l2fwd, duration: 100ms, warm_up: 0s, noise: stalls}
vary: {rate: [4k, 5k]}
"""


class Command(NamedTuple):
    """A command, and what may become of the files that are there before it."""

    name: str
    words: str
    needs: tuple[str, ...] = ()
    """Files and folders of the workshop; behind a colon, their names for the command."""
    replaces: tuple[str, ...] = ()
    """Files that it may write anew, or remove."""
    measures: bool = False
    """Whether it sends traffic."""
    recorded: str = ""
    """A run that holds a recording, and no figures."""
    status: int = 0
    """Exit status without a fault."""


COMMANDS = (
    Command("analyze", "analyze in/x-pre-1.pcap in/x-post-1.pcap --out out", ("in",)),
    Command("analyze --csv", "analyze in/x-pre-1.pcap in/x-post-1.pcap --csv csv", ("in",)),
    Command("analyze --json", "analyze in/x-pre-1.pcap in/x-post-1.pcap --json all.json", ("in",)),
    Command("report", "report run-a", ("run-a",), ("run-a/report.html",)),
    Command("report --out", "report run-a run-b --out both.html", ("run-a", "run-b")),
    Command(
        "report --figures", "report run-a --out page.html --figures drawn --format svg", ("run-a",)
    ),
    Command(
        "report CAMPAIGN",
        "report campaign",
        ("campaign",),
        ("campaign/report.html", "campaign/*.csv", "campaign/*/report.html"),
    ),
    Command(
        "verify",
        "verify run-a run-b --slo p50<1s --json all.json --junit v.xml",
        ("run-a", "run-b"),
    ),
    Command("compare", "compare run-a run-b --json all.json --out page.html", ("run-a", "run-b")),
    Command("compare save", "compare save run-a run-b --out base.json", ("run-a", "run-b")),
    Command(
        "model tail",
        "model tail long --threshold p99 --run-length 1ns --keep --json all.json",
        ("long",),
        ("long/tail.json",),
        status=3,
    ),
    Command("init", "init project --run 'forward {eal}' --ready up"),
    Command("simulate", "simulate sim --seed 1 --packets 300"),
    Command("import", "runs import hdr/histogram.hlog --out out", ("hdr",)),
    Command("runs tag", "runs tag run-a --add fast", ("run-a",), ("run-a/notes.json",)),
    Command("runs note", "runs note run-a fine", ("run-a",), ("run-a/notes.json",)),
    Command("runs list", "runs list runs --json all.json", ("runs",)),
    Command("runs publish", "runs publish campaign site", ("campaign",)),
    Command("runs finish (page)", "runs finish drawn", ("drawn",)),
    Command(
        "runs finish (recorded)",
        "runs finish recorded",
        ("recorded",),
        ("recorded/run.json", "recorded/recording/*"),
        recorded="recorded",
    ),
    Command("runs clean", "runs clean", ("killed:run",), ("run/*",)),
    Command("noise", "noise --duration 50ms --noise stalls --quiet --out out"),
    Command("run", f"run {_MEASURED} --out out", measures=True),
    Command("run EXPERIMENT", "run faults.yaml --out out --quiet", ("faults.yaml",), measures=True),
)


def make_workshop(folder: Path, commands: Iterable[Command], start: Start) -> None:
    """Write what commands need; `start` carries out a measurement in a folder, and kills it."""
    names = {need.partition(":")[0] for command in commands for need in command.needs}
    for name in HOME:
        (folder / name).mkdir(parents=True, mode=0o700)
    for seed, name in enumerate(("run-a", "run-b", "drawn", "runs/one", "runs/two")):
        if name.partition("/")[0] in names:
            _write_run(folder / name, seed)
    if "in" in names:
        slow = [5_000 + 13 * at % 900 + (40_000 if at % 50 == 0 else 0) for at in range(400)]
        captures.pair(folder / "in", slow)
    if "long" in names:
        _write_run(folder / "long", 5, packets=synthetic.PACKETS)
    if "campaign" in names:
        campaigns.write(folder / "campaign", {"rate": ["10k", "20k"]})
    if "hdr" in names:
        _write_run(folder / "hdr", 6)
    (folder / "faults.yaml").write_text(_CAMPAIGN)
    if names & {"recorded", "killed"}:
        start(folder, f"run {_MEASURED} --out recorded")
        (folder / "run").rename(folder / "killed")
        (folder / "run").mkdir(mode=0o700)


def _write_run(path: Path, seed: int, *, packets: int = 2_000) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    found = synthetic.latencies(seed, base_ns=2_000 + 100 * seed)[:packets]
    synthetic.write_run(path, found.astype(np.int64))


def furnish(workshop: Path, work: Path, command: Command) -> None:
    """Give a command a folder of its own."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    named = [name.partition(":") for name in (*HOME, *command.needs)]
    for name, given in {to or name: name for name, _, to in named}.items():
        if (workshop / given).is_dir():
            shutil.copytree(workshop / given, work / name)
        else:
            shutil.copyfile(workshop / given, work / name)


def environment(work: Path, others: Mapping[str, str]) -> dict[str, str]:
    """Variables of a command: all that it keeps lies below its folder."""
    return {
        **others,
        "XDG_CACHE_HOME": str(work / "cache"),
        "XDG_STATE_HOME": str(work / "state"),
        "XDG_RUNTIME_DIR": str(work / "run"),
        "TMPDIR": str(work / "tmp"),
        "HOME": str(work),
    }
