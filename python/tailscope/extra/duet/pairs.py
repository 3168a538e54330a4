"""Two set-ups, measured by turns."""

from __future__ import annotations

import random
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from tailscope.experiment.run.execute import execute_whole
from tailscope.extra.duet.kept import block_of, can_be_kept, kept
from tailscope.extra.duet.paired import Block, Pair

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tailscope.experiment.plan import RunPlan
    from tailscope.experiment.run.measured import Measured
    from tailscope.testbed.cores import Cores


def pairs(a: tuple[RunPlan, Cores], b: tuple[RunPlan, Cores], seed: int) -> Iterator[Pair]:
    """Measure pair after pair, each in random order.

    Every block starts its device anew, so that luck in where its memory lies is in the differences,
    and not in all blocks of a side.
    """
    order = random.Random(seed)  # noqa: S311
    with ExitStack() as stack:
        block_a, block_b = _blocks(stack, *a), _blocks(stack, *b)
        while True:
            b_was_first = order.random() < 0.5
            if b_was_first:
                second = block_b()
                yield Pair(block_a(), second, b_was_first)
            else:
                yield Pair(block_a(), block_b(), b_was_first)


def _blocks(stack: ExitStack, plan: RunPlan, cores: Cores) -> Callable[[], Block]:
    """Return what measures a block: with a set-up that stays, or as a whole run."""
    if can_be_kept(plan):
        return stack.enter_context(kept(plan, cores)).block
    return partial(_whole_run, plan, cores)


def _whole_run(plan: RunPlan, cores: Cores) -> Block:
    found: list[Block] = []

    def inspect(measured: Measured) -> None:
        assert measured.recording is not None, "a generator has recorded it"
        found.append(block_of(plan, measured.recording))

    execute_whole(plan, cores, inspect=inspect)
    return found[0]
