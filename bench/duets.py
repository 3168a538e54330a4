"""Duets of equals, and of set-ups that differ by 5 %, at several loads: what is said of them.

``python -m bench.duets FOLDER`` measures one duet after the other, and keeps each in
FOLDER/duets.jsonl. It can be stopped at any time, and goes on where it was when it is called again.
``--report`` prints the table of what is there, beside what other tools' rules say of the same
numbers.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.clock import say
from bench.rules import RULES
from tailscope.compare.limits import parse_limit
from tailscope.exceptions import TailscopeError
from tailscope.extra.duet.command import _side
from tailscope.extra.duet.judge import Judge
from tailscope.extra.duet.pairs import pairs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

LIMIT = "p50>+2.5%"
KINDS = {"equal": 200_000, "5 % slower": 210_000}
"""Delay of the second device in ns, by kind; the first one has that of equals."""
LOADS = (0, 1, 2, 4)
FIELDS = {"rate": "10k", "duration": "250ms", "warm_up": "50ms", "noise": "stalls", "power": "none"}
SPIN = "while True: pass"


def _set_up(delay_ns: int) -> Any:
    text = f"{{dut: delay, dut_options: {{law: 'fixed:{delay_ns}ns'}}}}"
    return _side(text, {**FIELDS}, "set-up")


@contextmanager
def loaded(programs: int) -> Iterator[None]:
    """Let so many programs work beside the measurement, on any CPU."""
    with ExitStack() as stack:
        for _ in range(programs):
            process = subprocess.Popen([sys.executable, "-c", SPIN])
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield


def measure(kind: str, load: int, number: int, most_s: float) -> dict[str, Any]:
    """Measure one duet, until it is decided or its time is over."""
    judge, began_s = Judge([parse_limit(LIMIT)]), time.monotonic()
    load_before = os.getloadavg()[0]
    sides = _set_up(KINDS["equal"]), _set_up(KINDS[kind])
    error, medians_ns = None, []
    with loaded(load), closing(pairs(*sides, seed=number)) as measuring:
        try:
            while (left_s := began_s + most_s - time.monotonic()) > 0 and not judge.is_decided:
                if judge.is_hopeless(left_s * judge.pairs / (most_s - left_s)):
                    break
                judge.add(pair := next(measuring))
                medians_ns.append([block.quantile(0.5, least=False) for block in pair[:2]])
        except TailscopeError as failure:
            error = str(failure)
    [finding] = judge.findings or [None]
    return {
        "kind": kind,
        "load": load,
        "number": number,
        "lasted_s": time.monotonic() - began_s,
        "load_before": load_before,
        "a": [a for a, _ in medians_ns],
        "b": [b for _, b in medians_ns],
        "error": error,
        "finding": None if finding is None else finding.record(),
    }


def read(folder: Path) -> list[dict[str, Any]]:
    """Return the duets that are there; a line that was cut off is none."""
    path = folder / "duets.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def carry_on(folder: Path, wanted: dict[str, int], loads: Sequence[int], most_s: float) -> None:
    """Measure what is not there yet: all loads and kinds by turns."""
    folder.mkdir(parents=True, exist_ok=True)
    there = {(each["kind"], each["load"], each["number"]) for each in read(folder)}
    for number, load, kind in itertools.product(range(max(wanted.values())), loads, KINDS):
        if number >= wanted[kind] or (kind, load, number) in there:
            continue
        found = measure(kind, load, number, most_s)
        with (folder / "duets.jsonl").open("a") as file:
            file.write(json.dumps(found) + "\n")
        verdict = found["error"] or (found["finding"] or {}).get("verdict", "no look")
        say(f"{kind}, load {load}, {number}: {verdict}, {len(found['a'])} pairs")


def table(duets: Sequence[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return rows: by kind and load, how often each rule called the second device slower.

    A duet that failed counts with the pairs that it had, if those are two or more.
    """
    header = ("second device", "load", "duets", "tailscope: slower", "kept", "not decided")
    rows = [(*header, "s a pair, a duet", *RULES)]
    for kind, load in itertools.product(KINDS, LOADS):
        ours = [
            each
            for each in duets
            if (each["kind"], each["load"]) == (kind, load) and len(each["a"]) > 1
        ]
        if not ours:
            continue
        said = [(each["finding"] or {}).get("verdict", "inconclusive") for each in ours]
        counts = [str(said.count(word)) for word in ("fail", "pass", "inconclusive")]
        median_s = sorted(each["lasted_s"] for each in ours)[len(ours) // 2]
        pair_s = sum(each["lasted_s"] for each in ours) / sum(len(each["a"]) for each in ours)
        alarms = [str(sum(rule(each["a"], each["b"]) for each in ours)) for rule in RULES.values()]
        timing = f"{pair_s:.1f}, {median_s:.0f}"
        rows.append((kind, str(load), str(len(ours)), *counts, timing, *alarms))
    return rows


def report(folder: Path) -> None:
    """Print the table as Markdown."""
    for number, row in enumerate(table(read(folder))):
        print(f"| {' | '.join(row)} |")
        if not number:
            print(f"|{'---|' * len(row)}")


def main() -> None:
    """Measure, or print what is there."""
    parser = argparse.ArgumentParser(prog="python -m bench.duets", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--equal", type=int, default=50, metavar="N", help="of each load")
    parser.add_argument("--slower", type=int, default=25, metavar="N", help="of each load")
    parser.add_argument("--loads", type=int, nargs="+", default=LOADS, choices=LOADS)
    parser.add_argument("--for-s", type=float, default=300, help="time limit of a duet in seconds")
    parser.add_argument("--report", action="store_true", help="only print the table")
    given = parser.parse_args()
    # Shells let programs in the background ignore SIGINT.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    if not given.report:
        wanted = dict(zip(KINDS, (given.equal, given.slower), strict=True))
        carry_on(given.folder, wanted, given.loads, given.for_s)
    report(given.folder)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
