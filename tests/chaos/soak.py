"""Measure without a pause, and see whether anything grows: ``python -m tests.chaos.soak``."""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from .attack import COMMAND, home

EXPERIMENT = """\
name: soak
fixed: {rate: 20k, duration: 1s, warm_up: 0s}
vary: {dut: [l2fwd, delay]}
repeats: 1000
"""
SETTLED = 4
"""Cells until everything is imported and every cache has its size."""
MEMORY_GROWTH = 1.1
COMPARED = 5
"""Looks at the beginning and at the end of which the least is compared: cells come and go."""


class Resources(NamedTuple):
    """What a command that measures holds, and what there is of its things on the machine."""

    cells: int
    memory_kib: int
    open_files: int
    threads: int
    children: int
    private_files: int
    namespaces: int
    semaphores: int

    def grown(self, first: Resources) -> list[str]:
        """What is more than it was."""
        more = [
            name
            for name in ("open_files", "threads", "children", "private_files", "namespaces")
            if getattr(self, name) > getattr(first, name)
        ]
        if self.semaphores > first.semaphores:
            more.append("semaphores")
        if self.memory_kib > MEMORY_GROWTH * first.memory_kib:
            more.append("memory_kib")
        return more


def resources(pid: int, runtime: Path, cells: int) -> Resources:
    """Look at a command."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    status = dict(line.split(":", 1) for line in lines)
    children = sum(
        len(path.read_text().split()) for path in Path(f"/proc/{pid}/task").glob("*/children")
    )
    return Resources(
        cells,
        int(status["VmRSS"].split()[0]),
        _count(Path(f"/proc/{pid}/fd")),
        int(status["Threads"]),
        children,
        sum(1 for _ in runtime.rglob("*")),
        _count(Path("/run/netns")),
        len(Path("/proc/sysvipc/sem").read_text().splitlines()) - 1,
    )


def least(looks: list[Resources]) -> Resources:
    """The least of each."""
    return Resources(*(min(column) for column in zip(*looks, strict=True)))


def _count(folder: Path) -> int:
    return sum(1 for _ in folder.iterdir()) if folder.is_dir() else 0


def done(out: Path) -> int:
    """How many runs are whole."""
    return sum(1 for _ in out.glob("*/report.html"))


def main() -> int:
    """Measure until the time is up; exit status 1 if anything has grown."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    asked = parser.parse_args()
    with home() as place:
        (place.path / "soak.yaml").write_text(EXPERIMENT)
        out = place.path / "campaign"
        said = place.path / "said"
        with said.open("w") as file:
            process = subprocess.Popen(
                [*COMMAND, "run", str(place.path / "soak.yaml"), "--out", str(out)],
                stdout=file,
                stderr=file,
                env=place.environment,
            )
        ends_s = time.monotonic() + 60 * asked.minutes
        looks: list[Resources] = []
        print(*Resources._fields, sep="\t")
        while time.monotonic() < ends_s or len(looks) < 2 * COMPARED:
            if process.poll() is not None:
                print(f"it ended by itself: {said.read_text()[-500:]}", file=sys.stderr)
                return 1
            with suppress(OSError):
                if (cells := done(out)) >= SETTLED:
                    looks.append(resources(process.pid, place.path / "run", cells))
                    print(*looks[-1], sep="\t", flush=True)
            time.sleep(asked.minutes)
        process.send_signal(signal.SIGINT)
        process.wait()
        grown = least(looks[-COMPARED:]).grown(least(looks[:COMPARED]))
        left = place.left()
    print(f"grown: {', '.join(grown) or 'nothing'}; left behind: {', '.join(left) or 'nothing'}")
    return 1 if grown or left else 0


if __name__ == "__main__":
    sys.exit(main())
