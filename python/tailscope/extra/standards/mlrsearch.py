"""FD.io's MLRsearch (package ``MLRsearch``, of RFC 9971's authors): the one place that knows it."""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from MLRsearch import (
    AbstractMeasurer,
    Config,
    GoalResult,
    MeasurementResult,
    MultipleLossRatioSearch,
    SearchGoal,
)

from tailscope.exceptions import TestbedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_PARTS = 1_000_000_000
"""A ratio is handed over as counts."""
_NEVER_S = 1e9
_COARSER = 2
"""Number of coarser searches before, each twice as coarse as the next."""


class Load(NamedTuple):
    """A load to offer in a trial."""

    rate_pps: int
    duration_s: float


class Beyond(NamedTuple):
    """A load that could not be offered: bad for every goal."""

    carried_pps: float
    """The rate that came back of it, which says where to look next."""


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
        """The goal as the library has it."""
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


@dataclass(frozen=True)
class GoalBounds:
    """The bounds that are known of a goal."""

    goal: Goal
    lower_pps: int | None = None
    upper_pps: int | None = None
    """Relevant Lower Bound and Relevant Upper Bound; None while there is none."""
    conditional_pps: float | None = None
    """Conditional Throughput."""


class GoalSearch(AbstractMeasurer):  # type: ignore[misc]
    """A search for goals by trials that they share; it tells what it knows at any time."""

    def __init__(
        self,
        goals: Sequence[Goal],
        ratio_of: Callable[[Load], float | Beyond],
        *,
        least_pps: int,
        most_pps: int,
    ) -> None:
        """Search between two rates; `ratio_of` makes a trial and gives the share that was lost."""
        self._goals = {goal: goal.as_searched for goal in goals}
        self._ratio_of = ratio_of
        self._bad = max(goal.loss_ratio for goal in goals) + 1 / _PARTS
        with _errors_as_ours():
            config = Config(
                goals=self._goals.values(),
                min_load=least_pps,
                max_load=most_pps,
                search_duration_max=_NEVER_S,
                warmup_duration=0.0,
            )
            self._controller = MultipleLossRatioSearch(config=config)

    def run(self) -> list[GoalBounds]:
        """Search until every goal's bounds are close enough."""
        with _errors_as_ours():
            self._controller.search(measurer=self, debug=lambda _text: None)
        return self.bounds()

    def bounds(self) -> list[GoalBounds]:
        """Return the bounds that are known by now, by goal."""
        return [self._bounds(goal) for goal in self._goals]

    def measure(self, intended_duration: float, intended_load: float) -> MeasurementResult:
        """Make a trial, as MLRsearch asks for it."""
        rate_pps = round(intended_load)
        ratio = self._ratio_of(Load(rate_pps, intended_duration))
        if isinstance(ratio, Beyond):
            ratio = max(self._bad, 1 - ratio.carried_pps / rate_pps)
        return MeasurementResult(
            intended_duration=intended_duration,
            intended_load=intended_load,
            offered_count=_PARTS,
            loss_count=math.ceil(round(ratio * _PARTS, 3)),
        )

    def _bounds(self, goal: Goal) -> GoalBounds:
        controller = self._controller
        if controller.database is None:
            return GoalBounds(goal)
        target = controller.scaling.goal_to_final_target[self._goals[goal]]
        found = GoalResult.from_bounds(controller.database.get_relevant_bounds(target))
        lower, upper = (
            None if bound is None else round(float(bound))
            for bound in (found.relevant_lower_bound, found.relevant_upper_bound)
        )
        conditional = found.conditional_throughput
        return GoalBounds(goal, lower, upper, None if conditional is None else float(conditional))


@contextmanager
def _errors_as_ours() -> Iterator[None]:
    try:
        yield
    except (RuntimeError, ValueError, AssertionError) as error:
        raise TestbedError(
            f"the search cannot continue: {error}",
            code="trials-contradict",
            hint="trials that contradict each other cause this: make them longer",
        ) from error
