"""Searches for the highest load that holds: binary, with loss verification, and MLRsearch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from MLRsearch import (
    AbstractMeasurer,
    Config,
    MeasurementResult,
    MultipleLossRatioSearch,
    SearchGoal,
)

from tailscope.exceptions import TestbedError, UsageError
from tailscope.units import positive_duration_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    OutcomeOf = Callable[[int], "Outcome"]

_PARTS = 1_000_000_000
"""A loss ratio is handed over to MLRsearch as counts."""
_NEVER_S = 1e9
_COARSER = 2
"""How often MLRsearch searches before, each time twice as coarse as the next."""
_GOAL = ("loss", "exceed", "final", "sum", "width", "initial")


class Outcome(Enum):
    """What a trial says of a load."""

    HOLDS = "holds"
    LOST = "lost"
    REFUSED = "refused"
    """The wire, or the device behind it, took no more; nothing was lost."""
    NOT_OFFERED = "not offered"
    """The generator did not send it, or the instrument lost of it."""


@dataclass(frozen=True)
class Load:
    """What is offered."""

    rate_pps: int
    duration_s: float


@dataclass(frozen=True)
class Tried:
    """What became of a load."""

    outcome: Outcome
    frames_sent: int = 0
    frames_lost: int = 0
    carried_pps: float = 0.0
    """What came back, of a load that could not be offered: the instrument's limit."""


@dataclass(frozen=True)
class Bounds:
    """Where a load stops to hold."""

    holds: int | None
    """The highest that was seen to hold."""
    fails: int | None
    """The lowest that was not."""
    why: Outcome | None
    """What became of that one."""


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
    """How many loads a binary search offers, where the load that holds is not far below the most.

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


@dataclass(frozen=True)
class Goal:
    """A Search Goal of RFC 9971, its attributes by their names there."""

    name: str
    final_trial_duration_s: float
    """Goal Final Trial Duration."""
    duration_sum_s: float
    """Goal Duration Sum."""
    loss_ratio: float
    """Goal Loss Ratio."""
    exceed_ratio: float
    """Goal Exceed Ratio."""
    width: float
    """Goal Width, relative to the upper bound."""
    initial_trial_duration_s: float
    """Goal Initial Trial Duration."""

    @property
    def as_searched(self) -> SearchGoal:
        """It as the library has it."""
        return SearchGoal(
            loss_ratio=self.loss_ratio,
            exceed_ratio=self.exceed_ratio,
            relative_width=self.width,
            initial_trial_duration=self.initial_trial_duration_s,
            final_trial_duration=self.final_trial_duration_s,
            duration_sum=self.duration_sum_s,
            preceding_targets=_COARSER,
            fail_fast=False,
        )


def parse_goal(text: str, trial_s: float, width: float) -> Goal:
    """Read a goal: ``loss=0.005,exceed=0.5,final=60s,sum=120s,width=0.01,initial=1s``.

    What is left out is that of the goal which conforms to RFC 2544, with trials of `trial_s`.
    """
    given: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if name not in _GOAL or not equals or name in given:
            expected = ", ".join(f"{each}=..." for each in _GOAL)
            raise UsageError(f"--goal: got {part!r} in {text!r}, expected each once of {expected}")
        given[name] = value

    def seconds(name: str, otherwise: float) -> float:
        if name not in given:
            return otherwise
        return positive_duration_ns(given[name], f"--goal {name}") / 1e9

    def ratio(name: str, otherwise: float) -> float:
        try:
            return float(given.get(name, otherwise))
        except ValueError:
            raise UsageError(f"--goal {name}: got {given[name]!r}, expected a ratio") from None

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
        raise UsageError(f"--goal: got {text!r}: {error}") from None
    return goal


@dataclass(frozen=True)
class GoalBounds:
    """The Goal Result of a Search Goal."""

    goal: Goal
    lower_pps: int | None
    upper_pps: int | None
    """Relevant Lower Bound and Relevant Upper Bound."""
    conditional_pps: float | None
    """Conditional Throughput."""
    upper_is_lossy: bool
    """Whether the upper bound is one because frames were lost, not because it could not be offered.
    """
    upper_is_refused: bool = False
    """Whether it could not, as the wire or the device took no more."""

    @property
    def is_regular(self) -> bool:
        """Whether both bounds exist, are close enough, and the upper one is the device's."""
        if self.lower_pps is None or self.upper_pps is None or not self.upper_is_lossy:
            return False
        # Loads are rounded to whole frames per second.
        return self.upper_pps - self.lower_pps <= self.goal.width * self.upper_pps + 1


def search_goals(
    goals: Sequence[Goal], offer: Callable[[Load], Tried], *, most_pps: int, least_pps: int
) -> list[GoalBounds]:
    """Search for all goals by FD.io's MLRsearch (package ``MLRsearch``, of RFC 9971's authors)."""
    searched = {goal: goal.as_searched for goal in goals}
    measurer = _Measurer(offer)
    config = Config(
        goals=searched.values(),
        min_load=least_pps,
        max_load=most_pps,
        search_duration_max=_NEVER_S,
        warmup_duration=0.0,
    )
    try:
        controller = MultipleLossRatioSearch(config=config)
        found = controller.search(measurer=measurer, debug=lambda _text: None)
    except (RuntimeError, ValueError, AssertionError) as error:
        raise TestbedError(
            f"the search cannot continue: {error}",
            hint="trials that contradict each other cause this: make them longer",
        ) from error
    results = []
    for goal, own in searched.items():
        result = found[own]
        lower, upper = (
            None if bound is None else round(float(bound))
            for bound in (result.relevant_lower_bound, result.relevant_upper_bound)
        )
        conditional = result.conditional_throughput
        results.append(
            GoalBounds(
                goal,
                lower,
                upper,
                None if conditional is None else float(conditional),
                upper is not None and upper not in measurer.not_offered,
                measurer.not_offered.get(upper or 0) is Outcome.REFUSED,
            )
        )
    return results


class _Measurer(AbstractMeasurer):  # type: ignore[misc]
    """Makes trials as MLRsearch asks for them."""

    def __init__(self, offer: Callable[[Load], Tried]) -> None:
        self._offer = offer
        self.not_offered: dict[int, Outcome] = {}

    def measure(self, intended_duration: float, intended_load: float) -> MeasurementResult:
        """Make a trial."""
        rate_pps = round(intended_load)
        tried = self._offer(Load(rate_pps, intended_duration))
        lost = tried.frames_lost / max(1, tried.frames_sent)
        if tried.outcome in (Outcome.NOT_OFFERED, Outcome.REFUSED):
            self.not_offered[rate_pps] = tried.outcome
            # Bad for every goal; how bad says where to look next.
            lost = min(0.999, max(0.5, 1 - tried.carried_pps / rate_pps))
        return MeasurementResult(
            intended_duration=intended_duration,
            intended_load=intended_load,
            offered_count=_PARTS,
            loss_count=math.ceil(round(lost * _PARTS, 3)),
        )
