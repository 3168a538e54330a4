"""Times several contenders fairly on a machine that does other things as well."""

from __future__ import annotations

import statistics
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class Contender(NamedTuple):
    """What is timed, and how often in each round."""

    act: Callable[[], object]
    turns: int = 1


def say(text: str) -> None:
    """Tell the person who waits."""
    print(f"bench: {text}", file=sys.stderr, flush=True)


def medians(rounds: int, contenders: dict[str, Contender]) -> dict[str, float]:
    """Median seconds of each contender.

    They take turns, so that whatever else runs here disturbs them alike.
    """
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for done in range(rounds):
        for turn in range(max(contender.turns for contender in contenders.values())):
            for name, contender in contenders.items():
                if turn < contender.turns:
                    times[name].append(seconds(contender.act))
        say(f"{', '.join(contenders)}: round {done + 1} of {rounds}")
    return {name: statistics.median(found) for name, found in times.items()}


def seconds(act: Callable[[], object]) -> float:
    """How long something takes."""
    start = time.perf_counter()
    act()
    return time.perf_counter() - start
