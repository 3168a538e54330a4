"""Searches for the highest load that holds: binary, with loss verification, and MLRsearch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from tailscope.exceptions import UsageError
from tailscope.extra.standards.mlrsearch import Beyond, Goal, GoalSearch, Load
from tailscope.units import positive_duration_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    OutcomeOf = Callable[[int], "Outcome"]

_GOAL = ("loss", "exceed", "final", "sum", "width", "initial")


class Outcome(Enum):
    """The outcome of a trial at a load."""

    HOLDS = "holds"
    LOST = "lost"
    REFUSED = "refused"
    """The wire, or the device behind it, took no more; nothing was lost."""
    NOT_OFFERED = "not offered"
    """The generator did not send it, or the instrument lost of it."""


@dataclass(frozen=True)
class Tried:
    """The result of offering a load."""

    outcome: Outcome
    frames_sent: int = 0
    frames_lost: int = 0
    carried_pps: float = 0.0
    """The rate that came back of a load that could not be offered: the instrument's limit."""


@dataclass(frozen=True)
class Bounds:
    """The highest load that holds, and the lowest that does not."""

    holds: int | None
    """The highest that was seen to hold."""
    fails: int | None
    """The lowest that was not."""
    why: Outcome | None
    """The outcome of the lowest that was not."""


def binary_search(
    outcome_of: Callable[[int], Outcome], most: int, *, width: float, least: int = 1
) -> Bounds:
    """Search by halves: RFC 2544, sections 26.1 and 26.4; TST 009, section 12.3.2."""
    why = outcome_of(most)
    if why is Outcome.HOLDS:
        return Bounds(most, None, None)
    low, high = 0, most
    while high - low > max(1.0, width * high):
        middle = (low + high) // 2
        if middle < least:
            break
        found = outcome_of(middle)
        if found is Outcome.HOLDS:
            low = middle
        else:
            high, why = middle, found
    return Bounds(low or None, high, why)


def most_steps(width: float) -> int:
    """Count the loads that a binary search offers, if the one that holds is not far below the most.

    It takes more to find one that is much smaller.
    """
    return 1 + math.ceil(math.log2(1 / width))


def verified(offer: Callable[[int], Tried], *, tries: int, most_lost: int | None) -> OutcomeOf:
    """Try a load again where frames were lost: binary search with loss verification."""

    def outcome_of(load: int) -> Outcome:
        for _ in range(tries):
            tried = offer(load)
            if tried.outcome is not Outcome.LOST:
                return tried.outcome
            if most_lost is not None and tried.frames_lost > most_lost:
                break
        return Outcome.LOST

    return outcome_of


def parse_goal(text: str, trial_s: float, width: float) -> Goal:
    """Read a goal: ``loss=0.005,exceed=0.5,final=60s,sum=120s,width=0.01,initial=1s``.

    What is left out is that of the goal which conforms to RFC 2544, with trials of `trial_s`.
    """
    given: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if name not in _GOAL or not equals or name in given:
            expected = ", ".join(f"{each}=..." for each in _GOAL)
            raise UsageError(
                f"--goal: got {part!r} in {text!r}, expected each once of {expected}",
                code="goal-term",
            )
        given[name] = value

    def seconds(name: str, otherwise: float) -> float:
        if name not in given:
            return otherwise
        return positive_duration_ns(given[name], f"--goal {name}") / 1e9

    def ratio(name: str, otherwise: float) -> float:
        try:
            return float(given.get(name, otherwise))
        except ValueError:
            raise UsageError(
                f"--goal {name}: got {given[name]!r}, expected a ratio", code="goal-ratio"
            ) from None

    final_s = seconds("final", trial_s)
    goal = Goal(
        text,
        final_s,
        seconds("sum", final_s),
        ratio("loss", 0.0),
        ratio("exceed", 0.0),
        ratio("width", width),
        seconds("initial", final_s),
    )
    try:
        _ = goal.as_searched
    except ValueError as error:
        raise UsageError(f"--goal: got {text!r}: {error}", code="goal") from None
    return goal


@dataclass(frozen=True)
class SearchedGoal:
    """The Goal Result of a Search Goal."""

    goal: Goal
    bounds: Bounds
    """Relevant Lower Bound and Relevant Upper Bound."""
    conditional_pps: float | None
    """Conditional Throughput."""

    @property
    def is_regular(self) -> bool:
        """True if both bounds exist, are close enough, and the upper one is the device's."""
        holds, fails, why = self.bounds.holds, self.bounds.fails, self.bounds.why
        if holds is None or fails is None or why is not Outcome.LOST:
            return False
        # Loads are rounded to whole frames per second.
        return fails - holds <= self.goal.width * fails + 1


def search_goals(
    goals: Sequence[Goal], offer: Callable[[Load], Tried], *, most_pps: int, least_pps: int
) -> list[SearchedGoal]:
    """Search for all goals by MLRsearch."""
    not_offered: dict[int, Outcome] = {}

    def ratio_of(load: Load) -> float | Beyond:
        tried = offer(load)
        if tried.outcome in (Outcome.NOT_OFFERED, Outcome.REFUSED):
            not_offered[load.rate_pps] = tried.outcome
            return Beyond(tried.carried_pps)
        return tried.frames_lost / max(1, tried.frames_sent)

    def bounds_of(lower_pps: int | None, upper_pps: int | None) -> Bounds:
        why = None if upper_pps is None else not_offered.get(upper_pps, Outcome.LOST)
        return Bounds(lower_pps, upper_pps, why)

    search = GoalSearch(goals, ratio_of, least_pps=least_pps, most_pps=most_pps)
    return [
        SearchedGoal(each.goal, bounds_of(each.lower_pps, each.upper_pps), each.conditional_pps)
        for each in search.run()
    ]
