"""Measure without a pause, and see whether anything grows: ``python -m tests.chaos.soak``."""

from __future__ import annotations

import argparse
import math
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from runs import MEASUREMENT

from .attack import COMMAND, SETTINGS, home
from .machine import be_apart, carrying, semaphores, shared_memory

EXPERIMENT = """\
name: soak
fixed: {{rate: 20k, duration: 1s, warm_up: 0s, counter_interval: 500ms}}
vary: {{dut: [{devices}]}}
repeats: 1000
"""
DEVICES = ("l2fwd", "delay", "bridge", "router")
"""Over shared memory and, as root, over links of the kernel."""
SETTLED = 100
"""Cells until everything is imported and pools of memory have their size."""
MEMORY_GROWTH = 1.1
COMPARED = 5
"""Lines at the beginning and at the end that are compared, or a third of all if that is more."""
LOOKS_S = 0.2
"""How often to look. A line is the least of some looks: what a cell holds comes and goes."""


class Resources(NamedTuple):
    """What a command that measures holds, and what there is of its measurements on the machine."""

    cells: int
    memory_kib: int
    open_files: int
    threads: int
    processes: int
    runtime_files: int
    temporary_files: int
    shared_memory: int
    semaphores: int
    namespaces: int
    mounts: int
    tracers: int
    sockets: int

    def grown(self, first: Resources) -> list[str]:
        """What is more than it was."""
        more = {
            name: getattr(self, name) > getattr(first, name)
            for name in self._fields
            if name not in {"cells", "memory_kib"}
        }
        more["memory_kib"] = self.memory_kib > MEMORY_GROWTH * first.memory_kib
        return [name for name, is_more in more.items() if is_more]


def resources(pid: int, place: Path, names: set[str]) -> Resources:
    """Look at a command whose measurements had these names."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    status = dict(line.split(":", 1) for line in lines)
    children = sum(
        len(path.read_text().split()) for path in Path(f"/proc/{pid}/task").glob("*/children")
    )
    things = [thing.partition(" ")[0] for thing in carrying(names)]
    return Resources(
        done(place / "campaign"),
        int(status["VmRSS"].split()[0]),
        sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()),
        int(status["Threads"]),
        children,
        sum(1 for _ in (place / "run").rglob("*")),
        sum(1 for _ in (place / "tmp").rglob("*")),
        len(shared_memory()),
        len(semaphores()),
        *(things.count(kind) for kind in ("namespace", "mount", "tracer", "socket")),
    )


def least(looks: list[Resources]) -> Resources:
    """The least of each."""
    return Resources(*(min(column) for column in zip(*looks, strict=True)))


def done(out: Path) -> int:
    """How many runs are whole."""
    return sum(1 for _ in out.glob("*/report.html"))


def devices() -> list[str]:
    """Those that this user can measure."""
    there = {word for each in SETTINGS if each.is_there for word in each.options}
    return [name for name in DEVICES if name in there]


def looked_at(process: subprocess.Popen[bytes], place: Path, minutes: float) -> list[Resources]:
    """Look at a command until the time is up, or it has ended; a line of each stretch."""
    ends_s = time.monotonic() + 60 * minutes
    next_s = math.inf
    names: set[str] = set()
    looks: list[Resources] = []
    lines: list[Resources] = []
    while process.poll() is None and (time.monotonic() < ends_s or len(lines) < 2 * COMPARED):
        found = map(MEASUREMENT.match, (path.name for path in (place / "run").iterdir()))
        names.update(each[0] for each in found if each)
        if done(place / "campaign") >= SETTLED:
            with suppress(OSError):
                looks.append(resources(process.pid, place, names))
            next_s = min(next_s, time.monotonic() + minutes)
        if looks and time.monotonic() >= next_s:
            lines.append(least(looks)._replace(cells=looks[-1].cells))
            print(*lines[-1], sep="\t", flush=True)
            next_s, looks = time.monotonic() + minutes, looks[-1:]
        time.sleep(LOOKS_S)
    return lines


def main() -> int:
    """Measure until the time is up; exit status 1 if anything has grown."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    asked = parser.parse_args()
    be_apart()
    with home() as place:
        file, said = place.path / "soak.yaml", place.path / "said"
        file.write_text(EXPERIMENT.format(devices=", ".join(devices())))
        words = [*COMMAND, "run", str(file), "--out", str(place.path / "campaign")]
        print(*Resources._fields, sep="\t", flush=True)
        with said.open("w") as output:
            process = subprocess.Popen(
                words, stdout=output, stderr=output, env=place.environment, start_new_session=True
            )
        lines = looked_at(process, place.path, asked.minutes)
        if process.poll() is not None:
            print(f"it ended by itself: {said.read_text()[-500:]}", file=sys.stderr)
            return 1
        process.send_signal(signal.SIGINT)
        process.wait()
        left = [*place.left(), *map(str, (place.path / "tmp").iterdir())]
        left += [*shared_memory(), *semaphores()]
    print("", "first and last line:", sep="\n")
    for line in (Resources._fields, lines[0], lines[-1]):
        print(*line, sep="\t")
    part = max(COMPARED, len(lines) // 3)
    grown = least(lines[-part:]).grown(least(lines[:part]))
    print(f"grown: {', '.join(grown) or 'nothing'}; left behind: {', '.join(left) or 'nothing'}")
    return 1 if grown or left else 0


if __name__ == "__main__":
    sys.exit(main())
