"""A device that works on one packet after the other, whose CPU others hold at known times."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from tailscope.noise.held import HeldIntervals
from tailscope.noise.neighbour_sampler import RecordedNeighbours

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from tailscope.noise.neighbour_sampler import RunDelay

    Integers = NDArray[np.int64]

MARK = "the device"
LOOP = "while True: pass"


def latencies(came_ns: Integers, work_ns: int, held: HeldIntervals) -> Integers:
    """How long packets take that each need some work, in a single queue."""
    starts, ends = held.start_ns.tolist(), held.end_ns.tolist()
    left, free_ns, at = [], 0, 0
    for came in came_ns.tolist():
        now, rest = max(came, free_ns), work_ns
        while at < len(ends) and ends[at] <= now:
            at += 1
        while at < len(starts) and starts[at] < now + rest:
            rest -= max(0, starts[at] - now)
            now = max(now, ends[at])
            at += 1
        free_ns = now + rest
        left.append(free_ns)
    return np.array(left, np.int64) - came_ns


def holds(seed: int, lasts_ns: int, share: float, mean_ns: int) -> HeldIntervals:
    """When others hold the CPU, by chance: for a share of the time, so long on average."""
    chance = np.random.default_rng(seed)
    count = max(1, int(lasts_ns * share / mean_ns))
    held_ns = chance.exponential(mean_ns, count).astype(np.int64) + 1
    free_ns = chance.exponential(mean_ns * (1 / share - 1), count).astype(np.int64) + 1
    start = np.cumsum(free_ns + held_ns) - held_ns
    return HeldIntervals.whole(start, start + held_ns)


def recorded(
    delays: Sequence[RunDelay] = (),
    *,
    others_ns: int = 10**12,
    programs: dict[str, int] | None = None,
    platform: Sequence[int] = (),
) -> RecordedNeighbours:
    """What was sampled of a device on CPU 1, on which others may have run for `others_ns`."""
    return RecordedNeighbours(
        delays={MARK: [*delays]} if delays else {},
        busy_ns={1: others_ns + 5},
        own_ns={("", 1): 5},
        programs_ns={(name, 1): ns for name, ns in (programs or {}).items()},
        platform=frozenset(platform),
        watched_ns=10**9,
        sampling_ns=1,
    )


@contextmanager
def busy_neighbour(cpu: int) -> Iterator[None]:
    """Keep a CPU busy by a program that is no child of this process."""
    command = ["taskset", "-c", str(cpu), sys.executable, "-c", LOOP]
    start = f"import subprocess as s; print(s.Popen({command!r}, stdout=s.DEVNULL).pid, flush=True)"
    done = subprocess.run(
        [sys.executable, "-c", start], stdout=subprocess.PIPE, check=True, text=True
    )
    try:
        yield
    finally:
        os.kill(int(done.stdout), signal.SIGKILL)
