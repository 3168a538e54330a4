"""The highest rate that a device carries, searched by MLRsearch.

Every trial is a run. What the instrument has lost or could not send says nothing of the device:
such a trial is invalid and repeated, and a rate that stays so is beyond the instrument. Whether
that is the instrument's own limit, or the device that does not take packets from the wire, is seen
by the same rate without the device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tailscope.duts.dataplane import LOOP, Loop
from tailscope.exceptions import UsageError
from tailscope.experiment.run.execute import execute_whole
from tailscope.extra.standards.mlrsearch import Beyond, Goal, GoalBounds, GoalSearch, Load
from tailscope.extra.standards.search_records import SearchedGoal, SearchedTrial

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tailscope.experiment.plan import RunPlan
    from tailscope.testbed.cores import Cores
    from tailscope.verdict.slo import Level as ServiceLevel

    Figures = Mapping[str, Any]
    Level = Callable[[Figures], float | None]
    """The distance of a trial's figures from a level: 0 where they meet it, at most 1; None where
    that depends on the instrument's stalls."""
    Measure = Callable[[int], "Trial"]

LOSS, LEVEL = "loss", "level"
BACK_PRESSURE, INSTRUMENT, MAX_RATE = "back-pressure", "instrument", "max-rate"

_TRIES = 3
"""Number of trials that say nothing of the device before their rate is given up."""

_TRIALS = 3
"""A rate holds, or does not, by the majority of so many trials: one stall decides nothing."""

_MOST_HINT = 0.5
"""MLRsearch tries next what a trial's ratio leaves of the rate: no less than half of it."""

_MEETS = "meets_level"


@dataclass(frozen=True)
class Trial:
    """A rate that was tried."""

    rate_pps: int
    figures: Figures
    """The figures of the run, as ``summary.json`` has them."""

    @property
    def invalid(self) -> str | None:
        """The reason why the trial says nothing of the device; None if it does."""
        figures = self.figures
        if figures["unsent"]:
            return f"{figures['unsent']:,} packets unsent"
        if figures["lost_in_instrument"]:
            return f"{figures['lost_in_instrument']:,} packets lost in the instrument"
        return None if figures["sent"] else "no packet sent"

    @property
    def carried(self) -> float:
        """The share of the packets to be sent that came back."""
        wanted = self.figures["sent"] + self.figures["unsent"]
        return float(self.figures["count"] / wanted) if wanted else 0.0

    def record(self) -> SearchedTrial:
        """Return the trial as JSON has it."""
        figures = self.figures
        return SearchedTrial(
            rate_pps=self.rate_pps,
            sent=figures["sent"],
            unsent=figures["unsent"],
            lost_in_dut=figures["lost_in_dut"],
            lost_in_instrument=figures["lost_in_instrument"],
            lost_where_unknown=figures["lost_where_unknown"],
            latency_ns_p50=figures.get("latency_ns_p50"),
            loss_ratio=loss_ratio(figures),
            meets_level=figures.get(_MEETS),
            invalid=self.invalid,
        )


def loss_ratio(figures: Figures) -> float:
    """Return the share of the packets sent that were lost, changed, or held for too long.

    What was lost in the instrument is no loss, nor what the device says it dropped on purpose.
    """
    lost = figures["lost_in_dut"] + figures["lost_where_unknown"]
    lost -= figures["dropped_by_dut"] or 0
    sent = figures["sent"]
    return float((lost + figures["late"] + figures["corrupt"]) / sent) if sent else 0.0


@dataclass(frozen=True)
class RateGoal:
    """A condition that is to hold at a rate."""

    name: str
    level: Level
    """The ratio of a trial's figures; goals that share it are searched together."""
    most: float = 0.0
    """The largest ratio that is good."""


def loss_goals(pdr_loss: float) -> list[RateGoal]:
    """No loss (NDR), and as much as `pdr_loss` (PDR)."""
    if not 0 < pdr_loss < 1:
        raise UsageError(
            f"--pdr-loss: got {pdr_loss:g}, expected more than 0 and less than 1", code="pdr-loss"
        )
    return [RateGoal("NDR", loss_ratio), RateGoal("PDR", loss_ratio, pdr_loss)]


def service_level_goal() -> RateGoal:
    """The service level that trials were held against (`trials_of`)."""

    def level(figures: Figures) -> float | None:
        meets: bool | None = figures[_MEETS]
        return None if meets is None else float(not meets)

    return RateGoal("level", level)


@dataclass(frozen=True)
class SearchPlan:
    """The range and the precision of a search."""

    min_rate_pps: int
    max_rate_pps: int
    trial_s: float
    """Duration of a trial."""
    width: float
    """The rate that holds and the one that does not lie at most so far apart, relative to the
    second."""

    def __post_init__(self) -> None:
        if not 0 < self.width < 1:
            raise UsageError(
                f"--width: got {self.width:g}, expected more than 0 and less than 1", code="width"
            )
        least = math.ceil(self.min_rate_pps / (1 - self.width))
        if self.max_rate_pps <= least:
            raise UsageError(
                f"--max-rate: got {self.max_rate_pps:,}, expected more than {least:,}: --min-rate"
                " and --width leave nothing to search",
                code="max-rate",
            )


@dataclass(frozen=True)
class RateFound:
    """The rates that are known of a goal."""

    goal: str
    rate_pps: int | None
    """The highest rate that holds; None if none does, or none is known yet."""
    fails_at_pps: int | None
    """The lowest rate above it that does not; None if there is none."""
    limited_by: str | None
    """The limit there: `LOSS`, `LEVEL`, `BACK_PRESSURE`, `INSTRUMENT` or `MAX_RATE`; None where the
    search did not come so far."""

    def record(self) -> SearchedGoal:
        """Return the result as JSON has it."""
        return SearchedGoal(
            goal=self.goal,
            rate_pps=self.rate_pps,
            fails_at_pps=self.fails_at_pps,
            limited_by=self.limited_by,
        )


@dataclass
class Search:
    """A search; it can be asked for what is known at any time."""

    plan: SearchPlan
    goals: Sequence[RateGoal]
    measure: Measure
    """Makes a trial at a rate."""
    control: Measure | None = None
    """Makes one without the device."""
    tell: Callable[[Trial, bool], None] = lambda _trial, _is_control: None
    """Receives each trial, and whether it was without the device."""
    trials: list[Trial] = field(default_factory=list)
    """The trials that were made."""
    controls: list[Trial] = field(default_factory=list)
    """The trials without the device."""
    _shared: list[_SharedTrials] = field(default_factory=list)
    beyond: Trial | None = None
    """A trial at the lowest rate at which none was valid."""
    _has_looked: bool = False

    def run(self) -> list[RateFound]:
        """Search for all goals."""
        levels = dict.fromkeys(goal.level for goal in self.goals)
        for level in levels:
            shared = _SharedTrials(self, [goal for goal in self.goals if goal.level is level])
            self._shared.append(shared)
            shared.run()
        self._look_without_device()
        return self.found()

    def found(self) -> list[RateFound]:
        """Return the rates that are known by now, by goal."""
        known = {each.goal: each for shared in self._shared for each in shared.found()}
        nothing = (None, None, None)
        return [known.get(goal.name, RateFound(goal.name, *nothing)) for goal in self.goals]

    @property
    def instrument_limit_pps(self) -> int | None:
        """The lowest rate at which no trial was valid."""
        return None if self.beyond is None else self.beyond.rate_pps

    @property
    def limit(self) -> str | None:
        """The cause of `instrument_limit_pps`; None if it was not looked for yet."""
        if not self._has_looked:
            return None
        carried = sum(trial.invalid is None for trial in self.controls)
        return BACK_PRESSURE if 2 * carried > _TRIES else INSTRUMENT

    def ratio(self, rate_pps: int, level: Level) -> float | Trial:
        """Return how far a rate is from a level; the last trial of it if none says that."""
        if self.beyond is not None and rate_pps >= self.beyond.rate_pps:
            return self.beyond
        tried = []
        for _ in range(_TRIES):
            trial = self.measure(rate_pps)
            tried.append(trial)
            self.trials.append(trial)
            self.tell(trial, False)
            ratio = None if trial.invalid else level(trial.figures)
            if ratio is not None:
                return ratio
        if all(trial.invalid for trial in tried):
            self.beyond = trial
        return trial

    def _look_without_device(self) -> None:
        """Try the rate that could not be sent without the device: does the instrument carry it."""
        limit = self.instrument_limit_pps
        unsent = any(t.figures["unsent"] for t in self.trials if t.rate_pps == limit)
        if limit is not None and unsent and self.control is not None:
            for _ in range(_TRIES):
                trial = self.control(limit)
                self.controls.append(trial)
                self.tell(trial, True)
        self._has_looked = True


class _SharedTrials:
    """The search for goals that share a level, and so their trials."""

    def __init__(self, search: Search, goals: Sequence[RateGoal]) -> None:
        self._search, self._goals, self._level = search, goals, goals[0].level
        most = max(goal.most for goal in goals)
        self._most_ratio = _MOST_HINT if most < _MOST_HINT else (1 + most) / 2
        self._beyond: Trial | None = None
        plan = search.plan
        self._searching = GoalSearch(
            [
                Goal(
                    goal.name,
                    final_trial_duration_s=plan.trial_s,
                    duration_sum_s=_TRIALS * plan.trial_s,
                    loss_ratio=goal.most,
                    exceed_ratio=0.5,
                    width=plan.width,
                    initial_trial_duration_s=plan.trial_s,
                )
                for goal in goals
            ],
            self._ratio_of,
            least_pps=plan.min_rate_pps,
            most_pps=plan.max_rate_pps,
        )

    def run(self) -> None:
        """Search until every goal's rates are close enough."""
        self._searching.run()

    def found(self) -> list[RateFound]:
        """Return the rates that are known by now."""
        return list(map(self._found, self._goals, self._searching.bounds()))

    def _ratio_of(self, load: Load) -> float | Beyond:
        if self._beyond is None or load.rate_pps < self._beyond.rate_pps:
            found = self._search.ratio(load.rate_pps, self._level)
            if not isinstance(found, Trial):
                return min(found, self._most_ratio)
            self._beyond = found
        return Beyond(self._beyond.rate_pps * self._beyond.carried)

    def _found(self, goal: RateGoal, known: GoalBounds) -> RateFound:
        limit = self._limit(goal, known.lower_pps, known.upper_pps)
        return RateFound(goal.name, known.lower_pps, known.upper_pps, limit)

    def _limit(self, goal: RateGoal, rate: int | None, fails_at: int | None) -> str | None:
        search = self._search
        if fails_at is None:
            return MAX_RATE if rate == search.plan.max_rate_pps else None
        has_failed = any(
            trial.rate_pps == fails_at
            and not trial.invalid
            and (goal.level(trial.figures) or 0.0) > goal.most
            for trial in search.trials
        )
        if not has_failed:
            is_undecided = self._beyond is not None and not self._beyond.invalid
            return INSTRUMENT if is_undecided else search.limit
        return LOSS if self._level is loss_ratio else LEVEL


def trials_of(plan: RunPlan, cores: Cores, service_level: ServiceLevel | None = None) -> Measure:
    """Trials that are runs of a plan at other rates, and are held against a service level."""

    def measure(rate_pps: int) -> Trial:
        measured = execute_whole(replace(plan, rate_pps=rate_pps), cores)
        figures = dict(measured.figures)
        if service_level is not None:
            from tailscope.verdict.verdict import meets

            found = measured.analysis
            figures[_MEETS] = meets(
                service_level, figures, found.histogram(1), found.least_histogram(1)
            )
        return Trial(rate_pps, figures)

    return measure


def without_device(plan: RunPlan) -> RunPlan | None:
    """Return the plan with the generator joined with itself; None over a wire that cannot be."""
    if plan.wire not in Loop.wires:
        return None
    return in_place_of_device(plan, LOOP)


def in_place_of_device(plan: RunPlan, dut: str) -> RunPlan:
    """Return the plan with another device, as it comes; a loop runs on nothing."""
    if dut != LOOP:
        return replace(plan, dut=dut, dut_options={})
    return replace(
        plan,
        dut=dut,
        dut_options={},
        kernel=None,
        boot=None,
        platform="bare",
        platform_options={},
    )
