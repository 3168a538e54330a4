"""Stable and unstable environments: by repeated trials as PASTRAMI's, `search` and `calibrate`.

``python -m bench.stability FOLDER`` makes one environment after the other, has each judged in three
ways, and keeps what came of it in FOLDER/stability.jsonl. It can be stopped at any time, and goes
on where it was. ``--report`` prints the table.

P. Lungaroni et al., "PASTRAMI: Performance Assessment of SofTware Routers Addressing Measurement
Inaccuracy", arXiv 2410.18644: an environment is unstable if packets are lost even at low loads, or
if losses vary much from trial to trial. The authors' data (github.com/netgroup/pastrami) are counts
of 50 trials at each of nine rates. The numbers from which on a loss is one, and a variation is
large, are ours: see `docs/extra/standards/stability.md`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.clock import say
from bench.duets import loaded
from tailscope.exceptions import TailscopeError
from tailscope.extra.duet.command import _side
from tailscope.extra.duet.kept import kept

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tailscope.extra.duet.kept import KeptSetUp

CAPACITY_PPS = 50_000
"""What a device carries at most that takes 20 µs for each packet."""
DEVICE = {"dut": "work", "law": "fixed:20us"}
SHARES = tuple(percent / 100 for percent in range(20, 101, 10))
"""Rates of the trials, as shares of the capacity: nine, as in the authors' data."""
LOW_LOAD = 0.6
TRIALS = 10
TRIAL_S = 0.5
PERMITTED_LOSS = 0.005
"""Of PDR@0.5%: what loses more does not hold."""
SEARCHES = 3
PDR_SPREAD = 0.1
"""Twice the width of a search."""
BELIEVED = 0.999
"""The first quantile of the floor that 0.5 % of the packets lie beyond in part."""
_CGROUP = Path("/sys/fs/cgroup/cpu")
_PERIOD_US = 100_000
FIELDS = {"duration": f"{TRIAL_S}s", "warm_up": "50ms", "noise": "stalls", "power": "none"}

Losses = dict[float, list[float]]


@contextmanager
def quota(share: float) -> Iterator[None]:
    """Give this process and all that it starts a share of the machine's CPU time (cgroup v1)."""
    group = _CGROUP / f"tailscope-bench-{os.getpid()}"
    group.mkdir()
    try:
        period = group / "cpu.cfs_period_us"
        period.write_text(str(_PERIOD_US))
        allowed_us = round(share * _PERIOD_US * len(os.sched_getaffinity(0)))
        (group / "cpu.cfs_quota_us").write_text(str(allowed_us))
        before = _CGROUP / own_group().lstrip("/")
        (group / "cgroup.procs").write_text(str(os.getpid()))
        try:
            yield
        finally:
            (before / "cgroup.procs").write_text(str(os.getpid()))
    finally:
        while (group / "cgroup.procs").read_text().strip():
            time.sleep(0.1)
        group.rmdir()


def own_group() -> str:
    """Return the cgroup of this process for CPU time."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    return next(line.split(":", 2)[2] for line in lines if "cpu" in line.split(":")[1].split(","))


ENVIRONMENTS: Mapping[str, Callable[[], Any]] = {
    "as it is": lambda: loaded(0),
    "1 program beside": lambda: loaded(1),
    "2 programs beside": lambda: loaded(2),
    "4 programs beside": lambda: loaded(4),
    "quota of 90 %": lambda: quota(0.9),
    "quota of 50 %": lambda: quota(0.5),
}


def trials() -> Losses:
    """Offer each rate so often, each time to a new device; return the losses by share."""
    losses: Losses = {}
    for share in SHARES:
        rate_pps = round(share * CAPACITY_PPS)
        text = (
            f"{{dut: {DEVICE['dut']}, dut_options: {{law: '{DEVICE['law']}'}}, rate: {rate_pps}}}"
        )
        with kept(*_side(text, {**FIELDS}, "set-up")) as set_up:
            losses[share] = []
            for _ in range(TRIALS):
                losses[share].append(_loss(set_up, rate_pps * TRIAL_S))
    return losses


def _loss(set_up: KeptSetUp, offered: float) -> float:
    """Return the share of the offered packets that did not come back; 1 if a trial fails."""
    try:
        set_up.prepare()
        set_up.wait_ready()
        block = set_up.block()()
    except TailscopeError as error:
        say(f"a trial failed: {error}")
        set_up.close()
        return 1.0
    return max(0.0, 1 - (len(block.latency_ns) - block.lost) / offered)


def is_stable_by_trials(losses: Losses) -> bool:
    """Judge as PASTRAMI does: neither loss at low loads, nor trials that contradict each other."""
    low = [each for share, each in losses.items() if share <= LOW_LOAD]
    return all(
        sum(each) / len(each) <= PERMITTED_LOSS
        and len({loss <= PERMITTED_LOSS for loss in each}) == 1
        for each in low
    )


def searches(environment: Mapping[str, str]) -> list[dict[str, Any]]:
    """Search for the PDR some times, and return what was found."""
    device = ("--dut", DEVICE["dut"], "--dut-option", f"law={DEVICE['law']}")
    trial = ("--trial-duration", "500ms", "--warm-up", "50ms")
    rates = ("--min-rate", "5k", "--max-rate", "100k")
    command = ("search", *device, *trial, *rates, "--quiet", "--json", "-")
    return [_tailscope(command, environment) for _ in range(SEARCHES)]


def is_stable_by_search(found: Sequence[dict[str, Any]]) -> bool:
    """Judge by the device's limit: each search finds one, and all find the same."""
    goals = [goal for each in found for goal in each["goals"] if goal["goal"] == "PDR"]
    rates = [goal["rate_pps"] for goal in goals]
    if len(rates) < SEARCHES or None in rates:
        return False
    of_device = all(goal["limited_by"] in {"loss", "back-pressure"} for goal in goals)
    return of_device and max(rates) <= (1 + PDR_SPREAD) * min(rates)


def is_stable_by_calibrate(found: Mapping[str, Any]) -> bool:
    """Judge by the floor: it is believed up to what decides on 0.5 % of the packets."""
    return (found.get("believed_up_to") or 0.0) >= BELIEVED


def _tailscope(command: Sequence[str], environment: Mapping[str, str]) -> dict[str, Any]:
    """Run a command that prints JSON; a command that fails has found nothing."""
    done = subprocess.run(
        [sys.executable, "-m", "tailscope", *command],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )
    if not done.stdout.strip():
        return {"goals": [], "error": done.stderr.strip()[-300:]}
    content: dict[str, Any] = json.loads(done.stdout)
    return content


def measure(name: str, number: int) -> dict[str, Any]:
    """Make an environment, and have it judged in three ways."""
    began_s, load_before = time.monotonic(), os.getloadavg()[0]
    with ExitStack() as stack:
        state = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(ENVIRONMENTS[name]())
        losses = trials()
        found = searches({"XDG_STATE_HOME": state})
        floor = _tailscope(
            ("calibrate", "--duration", "5s", "--quiet", "--json", "-"), {"XDG_STATE_HOME": state}
        )
    return {
        "environment": name,
        "number": number,
        "lasted_s": time.monotonic() - began_s,
        "load_before": load_before,
        "losses": list(losses.items()),
        "searches": [each["goals"] for each in found],
        "believed_up_to": floor.get("believed_up_to"),
        "trials": is_stable_by_trials(losses),
        "search": is_stable_by_search(found),
        "calibrate": is_stable_by_calibrate(floor),
    }


def read(folder: Path) -> list[dict[str, Any]]:
    """Return what is there; a line that was cut off is none."""
    path = folder / "stability.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def carry_on(folder: Path, repeats: int) -> None:
    """Judge what was not judged yet: all environments by turns."""
    folder.mkdir(parents=True, exist_ok=True)
    there = {(each["environment"], each["number"]) for each in read(folder)}
    for number, name in itertools.product(range(repeats), ENVIRONMENTS):
        if (name, number) in there:
            continue
        found = measure(name, number)
        with (folder / "stability.jsonl").open("a") as file:
            file.write(json.dumps(found) + "\n")
        verdicts = ", ".join(f"{by} {found[by]}" for by in ("trials", "search", "calibrate"))
        say(f"{name}, {number}: stable by {verdicts} ({found['lasted_s']:.0f} s)")


def report(folder: Path) -> None:
    """Print the table as Markdown."""
    judged = read(folder)
    head = ("environment", "times", "loss at up to 60 %: mean, worst trial", "stable by trials")
    print(f"| {' | '.join((*head, 'by search', 'by calibrate', 'PDRs, packets/s'))} |")
    print("|---" * 7 + "|")
    for name in ENVIRONMENTS:
        ours = [each for each in judged if each["environment"] == name]
        if not ours:
            continue
        low = [
            loss for each in ours for at, row in each["losses"] if at <= LOW_LOAD for loss in row
        ]
        rates = sorted(
            goal["rate_pps"] or 0
            for each in ours
            for found in each["searches"]
            for goal in found
            if goal["goal"] == "PDR"
        )
        stable = [str(sum(each[by] for each in ours)) for by in ("trials", "search", "calibrate")]
        loss = f"{sum(low) / len(low):.2%}, {max(low):.2%}"
        span = f"{rates[0]:,} to {rates[-1]:,}" if rates else "none"
        print(f"| {' | '.join((name, str(len(ours)), loss, *stable, span))} |")
    for by in ("search", "calibrate"):
        same = sum(each[by] == each["trials"] for each in judged)
        print(f"\nsame verdict by trials and {by}: {same} of {len(judged)}")


def main() -> None:
    """Judge environments, or print what is there."""
    parser = argparse.ArgumentParser(prog="python -m bench.stability", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="of each environment")
    parser.add_argument("--report", action="store_true", help="only print the table")
    given = parser.parse_args()
    if not given.report:
        carry_on(given.folder, given.repeats)
    report(given.folder)


if __name__ == "__main__":
    main()
