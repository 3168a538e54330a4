"""Two set-ups, measured by turns."""

from __future__ import annotations

import random
from contextlib import ExitStack
from itertools import cycle
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
        first = [_side(stack, *each) for each in (a, b)]
        # What starts meanwhile must not meet what waits for its turn: it has a wire of its own.
        second = [
            stack.enter_context(kept(*each)) if side.can_wait else side
            for side, each in zip(first, (a, b), strict=True)
        ]
        _prepare(first)
        _prepare(second)
        for sides, ahead in cycle([(first, second), (second, first)]):
            b_was_first = order.random() < 0.5
            turns = sides[::-1] if b_was_first else sides
            for side in turns:
                side.wait_ready()
            for side in ahead:
                side.rest()
            of_first, of_second = [side.block() for side in turns]
            of_a, of_b = (of_second, of_first) if b_was_first else (of_first, of_second)
            # Those for the pair after the next start while these are analysed.
            _prepare(sides)
            yield Pair(of_a(), of_b(), b_was_first)


class _WholeRuns:
    """A set-up that cannot be kept: each block is a whole run."""

    def __init__(self, plan: RunPlan, cores: Cores) -> None:
        self._plan, self._cores = plan, cores
        self.can_wait = False

    def prepare(self) -> None:
        """Do nothing."""

    def rest(self) -> None:
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
