"""Two set-ups, measured by turns."""

from __future__ import annotations

import random
from contextlib import ExitStack
from typing import TYPE_CHECKING

from tailscope.experiment.run.execute import execute_whole
from tailscope.extra.duet.kept import block_of, can_be_kept, kept
from tailscope.extra.duet.others import OthersHeld
from tailscope.extra.duet.paired import Block, Pair

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from tailscope.experiment.plan import RunPlan
    from tailscope.experiment.run.measured import Measured
    from tailscope.extra.duet.kept import KeptSetUp
    from tailscope.testbed.cores import Cores


def pairs(a: tuple[RunPlan, Cores], b: tuple[RunPlan, Cores], seed: int) -> Generator[Pair]:
    """Measure pair after pair, each in random order.

    Every block starts its device anew, so that luck in where its memory lies is in the differences,
    and not in all blocks of a side.
    """
    order = random.Random(seed)  # noqa: S311
    with ExitStack() as stack:
        side_a, side_b = sides = [_side(stack, *each) for each in (a, b)]
        _prepare(sides)
        while True:
            for side in sides:
                side.wait_ready()
            b_was_first = order.random() < 0.5
            if b_was_first:
                of_b = side_b.block()
                of_a = side_a.block()
            else:
                of_a = side_a.block()
                of_b = side_b.block()
            # The next ones start while these are analysed.
            _prepare(sides)
            yield Pair(of_a(), of_b(), b_was_first)


class _WholeRuns:
    """A set-up that cannot be kept: each block is a whole run."""

    def __init__(self, plan: RunPlan, cores: Cores) -> None:
        self._plan, self._cores = plan, cores

    def prepare(self) -> None:
        """Do nothing."""

    def wait_ready(self) -> None:
        """Do nothing."""

    def block(self) -> Callable[[], Block]:
        """Measure a run, and return what gives its block."""
        found: list[Block] = []

        def inspect(measured: Measured) -> None:
            assert measured.recording is not None, "a generator has recorded it"
            found.append(block_of(self._plan, measured.recording, OthersHeld.unknown()))

        execute_whole(self._plan, self._cores, inspect=inspect)
        return found.pop


def _side(stack: ExitStack, plan: RunPlan, cores: Cores) -> KeptSetUp | _WholeRuns:
    """Return what measures blocks: a set-up that stays, or whole runs."""
    if can_be_kept(plan):
        return stack.enter_context(kept(plan, cores))
    return _WholeRuns(plan, cores)


def _prepare(sides: list[KeptSetUp | _WholeRuns]) -> None:
    for side in sides:
        side.prepare()
