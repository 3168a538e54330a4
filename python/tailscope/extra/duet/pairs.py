"""Two set-ups, measured by turns."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np

from tailscope.engine.analysis import analyze_recording
from tailscope.experiment.run.execute import execute_whole
from tailscope.extra.duet.paired import Block, Pair

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tailscope.experiment.plan import RunPlan
    from tailscope.experiment.run.measured import Measured
    from tailscope.testbed.cores import Cores

    Integers = NDArray[np.int64]


def pairs(a: tuple[RunPlan, Cores], b: tuple[RunPlan, Cores], seed: int) -> Iterator[Pair]:
    """Measure pair after pair, each in random order.

    Every block is a run of its own: its device is started anew, so that luck in where its memory
    lies is in the differences, and not in all blocks of a side.
    """
    order = random.Random(seed)  # noqa: S311
    while True:
        b_was_first = order.random() < 0.5
        if b_was_first:
            second = _block(*b)
            yield Pair(_block(*a), second, b_was_first)
        else:
            yield Pair(_block(*a), _block(*b), b_was_first)


def _block(plan: RunPlan, cores: Cores) -> Block:
    taken: list[tuple[Integers, Integers]] = []

    def inspect(measured: Measured) -> None:
        assert measured.recording is not None, "a generator has recorded it"

        def sink(*columns: Any) -> None:
            latency_ns = np.asarray(columns[2], np.int64)
            taken.append((latency_ns, latency_ns - np.asarray(columns[5], np.int64)))

        analyze_recording(
            measured.recording,
            trim=plan.trim_ns,
            window=plan.window_ns,
            worst=0,
            series=False,
            sink=sink,
        )

    measured = execute_whole(plan, cores, inspect=inspect)
    sent = int(measured.analysis.summary["sent"] or 0)
    latency_ns, least_ns = (np.concatenate([each[at] for each in taken]) for at in (0, 1))
    return Block(np.sort(latency_ns), np.sort(least_ns), sent, plan.window_ns)
