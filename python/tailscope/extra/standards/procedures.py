"""The tests of a standard with frames of one size: what is offered, and what is made of it."""

from __future__ import annotations

import math
from statistics import fmean
from typing import TYPE_CHECKING, Any

from tailscope.exceptions import UsageError
from tailscope.extra.standards.bench import TRIES, Offer
from tailscope.extra.standards.delays import spread_of
from tailscope.extra.standards.records import (
    BackToBackFound,
    BurstTried,
    DelaysFound,
    FrameSizeResult,
    GoalFound,
    LatencyFound,
    LossFound,
    RateLimits,
    RecoveryFound,
    SoakFound,
)
from tailscope.extra.standards.search import (
    Bounds,
    Outcome,
    Tried,
    binary_search,
    search_goals,
    verified,
)
from tailscope.units import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailscope.extra.standards.asked import Asked
    from tailscope.extra.standards.bench import Bench, Trial
    from tailscope.extra.standards.delays import Delays
    from tailscope.extra.standards.mlrsearch import Load
    from tailscope.extra.standards.records import Limit
    from tailscope.extra.standards.search import SearchedGoal

_OVERLOAD = 1.1
_LOSS_STEPS = 10
_OF_DEVICE = ("loss", "back-pressure")
"""Limits that are the device's own; others are the instrument's."""


class SizeTests:
    """The tests with frames of one size or mix; it can be asked for what is known at any time."""

    def __init__(self, bench: Bench, asked: Asked) -> None:
        self._bench, self._asked = bench, asked
        self._max_rate_pps: int | None = asked.max_rate_pps
        self._found: dict[str, Any] = {}
        self._remarks: list[str] = []

    def run(self) -> None:
        """Make all tests."""
        tests: dict[str, Callable[[], None]] = {
            "throughput": self._throughput,
            "capacity": self._capacity,
            "latency": self._latency,
            "pdv": self._variation,
            "loss": self._loss,
            "back-to-back": self._back_to_back,
            "recovery": self._recovery,
            "soak": self._soak,
            "goals": self._goals,
        }
        if self._max_rate_pps is None:
            self._max_rate_pps = self._bench.ceiling_pps(self._asked.trial_s)
            if self._max_rate_pps is None:
                raise UsageError(
                    f"--max-rate: expected one with --wire {self._bench.plan.wire}, whose limit"
                    " cannot be measured without the device",
                    code="requires-max-rate",
                    hint="the maximum frame rate of its medium, such as 14880952 for 64 bytes at"
                    " 10 Gbit/s",
                )
        for test in self._asked.every_test:
            tests[test]()

    def result(self) -> FrameSizeResult | None:
        """Return what is known by now; None before the highest rate is known."""
        if self._max_rate_pps is None:
            return None
        plan = self._bench.plan
        return FrameSizeResult(
            frame_bytes=plan.size_bytes,
            frame_mix=plan.size_mix,
            max_rate_pps=self._max_rate_pps,
            max_rate_from="wire" if self._asked.max_rate_pps is None else "option",
            remarks=tuple(dict.fromkeys(self._remarks)),
            **self._found,
        )

    @property
    def _most_pps(self) -> int:
        assert self._max_rate_pps is not None, "it is the first thing that is found"
        return self._max_rate_pps

    @property
    def _throughput_pps(self) -> int | None:
        found: RateLimits | None = self._found.get("throughput")
        return None if found is None else found.rate_pps

    def _throughput(self) -> None:
        self._found["throughput"] = self._highest("throughput", 0.0)

    def _capacity(self) -> None:
        self._found["capacity"] = self._highest("capacity", self._asked.capacity_loss)

    def _highest(self, test: str, loss_ratio: float) -> RateLimits:
        """The highest rate with no more loss than that."""
        asked = self._asked

        def offer(rate_pps: int) -> Tried:
            return self._tried(Offer(test, rate_pps, asked.trial_s), loss_ratio)

        bounds = binary_search(
            verified(offer, tries=asked.tries, most_lost=asked.most_lost),
            self._most_pps,
            width=asked.width,
            least=math.ceil(1 / asked.trial_s),
        )
        limit = self._limit(bounds, bounds.fails or 0, asked.trial_s)
        return RateLimits(
            rate_pps=bounds.holds,
            fails_at_pps=bounds.fails,
            limited_by=limit,
            is_lower_bound=limit not in _OF_DEVICE,
            loss_ratio=loss_ratio,
        )

    def _limit(self, bounds: Bounds, rate_pps: int, lasts_s: float) -> Limit:
        """Return what ended a search; what the device refused, the wire has to carry without it."""
        if bounds.why is None:
            return "max-rate"
        if bounds.why is Outcome.LOST:
            return "loss"
        is_refused = bounds.why is Outcome.REFUSED
        if is_refused and self._bench.carries(rate_pps, lasts_s):
            return "back-pressure"
        return "not-offered"

    def _tried(self, offer: Offer, loss_ratio: float = 0.0) -> Tried:
        trial = self._bench.offer(offer)
        tried = trial.tried
        if tried.outcome is Outcome.LOST and tried.frames_lost <= loss_ratio * tried.frames_sent:
            return Tried(Outcome.HOLDS, tried.frames_sent, tried.frames_lost, tried.carried_pps)
        return tried

    def _streams(self, test: str, lasts_s: float) -> tuple[list[Delays], list[Trial], bool]:
        """Streams at the throughput, those that could be offered; and whether they are all.

        At Ctrl-C those that there are.
        """
        rate_pps = self._throughput_pps
        if rate_pps is None:
            self._remarks.append(f"{test}: not measured, for there is no throughput")
            return [], [], True
        trials: list[Trial] = []
        wanted, is_whole = self._asked.times(test), False
        try:
            for _ in range(wanted):
                trials.append(self._bench.offer(Offer(test, rate_pps, lasts_s, has_delays=True)))
                if sum(trial.record.not_offered is not None for trial in trials) == TRIES:
                    break
            is_whole = True
        except KeyboardInterrupt:
            if not trials:
                raise
        whole = [trial for trial in trials if trial.record.not_offered is None]
        if len(whole) < wanted:
            self._remarks.append(
                f"{test}: {wanted - len(whole)} of {wanted} streams at {rate_pps:,} frames/s are"
                " missing: the generator could not offer them, or the test was ended"
            )
        delays = [trial.delays for trial in whole if trial.delays and trial.delays.tagged]
        return delays, whole, is_whole

    def _latency(self) -> None:
        asked = self._asked
        delays, whole, is_whole = self._streams("latency", asked.stream_s)
        if delays and asked.standard.name == "8219":
            self._found["delays"] = self._delays(delays, whole, asked.stream_s)
        elif delays:
            tagged = [each.tagged for each in delays if each.tagged is not None]
            latency_ns = [each.latency_ns for each in tagged]
            self._found["latency"] = LatencyFound(
                rate_pps=whole[0].record.rate_pps,
                stream_s=asked.stream_s,
                repetitions=len(tagged),
                latency_ns_mean=fmean(latency_ns),
                latency_ns_min=min(latency_ns),
                latency_ns_max=max(latency_ns),
                tainted=sum(each.tainted for each in tagged),
            )
        if not is_whole:
            raise KeyboardInterrupt

    def _variation(self) -> None:
        if "latency" in self._asked.tests:
            return  # Its streams are longer, and serve both.
        delays, whole, is_whole = self._streams("pdv", self._asked.trial_s)
        if delays:
            self._found["delays"] = self._delays(delays, whole, self._asked.trial_s)
        if not is_whole:
            raise KeyboardInterrupt

    def _delays(self, delays: list[Delays], whole: list[Trial], stream_s: float) -> DelaysFound:
        tests = self._asked.tests
        found: dict[str, Any] = {}
        if "latency" in tests:
            found |= {
                "typical_latency": spread_of([each.second_half.median for each in delays]),
                "worst_case_latency": spread_of(
                    [each.second_half.quantile(0.999) for each in delays]
                ),
            }
        changing = [each.differences for each in delays if each.differences.count]
        if "pdv" in tests:
            found["pdv"] = spread_of([each.pdv_ns for each in delays])
        if "pdv" in tests and changing:
            found |= {
                "ipdv_min": spread_of([each.least for each in changing]),
                "ipdv_median": spread_of([each.median for each in changing]),
                "ipdv_max": spread_of([each.most for each in changing]),
            }
        counted = [each.second_half if "latency" in tests else each.every for each in delays]
        every = sum(each.every.count for each in delays)
        return DelaysFound(
            rate_pps=whole[0].record.rate_pps,
            stream_s=stream_s,
            repetitions=len(delays),
            frames_min=min(each.count for each in counted),
            tainted_ratio=sum(each.tainted for each in delays) / every,
            **found,
        )

    def _loss(self) -> None:
        """Go down from the highest rate by tenths, until two trials in a row lose nothing."""
        points: list[LossFound] = []
        whole_in_a_row = 0
        try:
            for tenth in range(_LOSS_STEPS, 0, -1):
                rate_pps = max(1, self._most_pps * tenth // _LOSS_STEPS)
                trial = self._bench.offer(Offer("loss", rate_pps, self._asked.trial_s))
                record, tried = trial.record, trial.tried
                was_offered = record.not_offered is None
                points.append(
                    LossFound(
                        rate_pps=rate_pps,
                        max_rate_ratio=tenth / _LOSS_STEPS,
                        frames_sent=record.frames_sent,
                        frames_received=record.frames_received,
                        loss_percent=(
                            100 * trial.frames_lost / record.frames_sent if was_offered else None
                        ),
                    )
                )
                whole_in_a_row = whole_in_a_row + 1 if tried.outcome is Outcome.HOLDS else 0
                if whole_in_a_row == 2:
                    break
        finally:
            self._found["loss"] = tuple(points)

    def _back_to_back(self) -> None:
        asked, rate_pps = self._asked, self._most_pps
        longest = max(1, math.floor(rate_pps * asked.burst_s))

        def outcome_of(frames: int) -> Outcome:
            return self._tried(Offer("back-to-back", rate_pps, frames / rate_pps)).outcome

        found: list[tuple[Bounds, Limit]] = []
        try:
            for _ in range(asked.times("back-to-back")):
                bounds = binary_search(outcome_of, longest, width=asked.width)
                lasts_s = (bounds.fails or 0) / rate_pps
                found.append((bounds, self._limit(bounds, rate_pps, lasts_s)))
                if found[-1][1] not in _OF_DEVICE:
                    self._remarks.append(
                        "back-to-back: a search ended at what the instrument could offer: it was"
                        " not repeated any more"
                    )
                    break
        finally:
            if found:
                self._found["back_to_back"] = self._bursts(found, longest)

    def _bursts(self, found: list[tuple[Bounds, Limit]], longest: int) -> BackToBackFound:
        rate_pps, throughput_pps = self._most_pps, self._throughput_pps
        mean = fmean(bounds.holds or 0 for bounds, _ in found)
        implied_s = mean / rate_pps
        limits: RateLimits | None = self._found.get("throughput")
        is_known = limits is not None and not limits.is_lower_bound and throughput_pps is not None
        bursts = tuple(
            BurstTried(frames=bounds.holds or 0, is_lower_bound=limit not in _OF_DEVICE)
            for bounds, limit in found
        )
        return BackToBackFound(
            rate_pps=rate_pps,
            longest_frames=longest,
            repetitions=len(found),
            frames_mean=mean,
            is_lower_bound=any(each.is_lower_bound for each in bursts),
            implied_buffer_s=implied_s,
            corrected_buffer_s=(
                implied_s * (1 - (throughput_pps or 0) / rate_pps) if is_known else None
            ),
            bursts=bursts,
        )

    def _recovery(self) -> None:
        asked, throughput_pps = self._asked, self._throughput_pps
        if throughput_pps is None:
            self._remarks.append("recovery: not measured, for there is no throughput")
            return
        overload_pps = max(1, min(math.ceil(_OVERLOAD * throughput_pps), self._most_pps))
        reduced_pps = max(1, overload_pps // 2)
        offer = Offer(
            "recovery",
            overload_pps,
            asked.stream_s,
            step_pps=reduced_pps,
            step_after_s=asked.trial_s,
        )
        found: list[tuple[bool, float]] = []
        missing = 0
        try:
            for _ in range(asked.times("recovery")):
                trial = self._bench.offer(offer)
                if trial.record.not_offered is not None:
                    missing += 1
                    continue
                lasted_s = max(0.0, trial.last_lost_s or 0.0)
                found.append((trial.frames_lost > 0, lasted_s))
        finally:
            if missing:
                self._remarks.append(
                    f"recovery: {counted(missing, 'trial')} at {overload_pps:,} frames/s missing:"
                    " the generator could not offer it"
                )
            if found:
                self._found["recovery"] = RecoveryFound(
                    overload_pps=overload_pps,
                    reduced_pps=reduced_pps,
                    overload_s=asked.trial_s,
                    repetitions=len(found),
                    has_lost=any(has_lost for has_lost, _ in found),
                    recovery_s_mean=fmean(lasted_s for _, lasted_s in found),
                    recovery_s_max=max(lasted_s for _, lasted_s in found),
                )

    def _soak(self) -> None:
        rate_pps = self._throughput_pps
        if rate_pps is None:
            self._remarks.append("soak: not measured, for there is no throughput")
            return
        trial = self._bench.offer(Offer("soak", rate_pps, self._asked.soak_s, has_delays=True))
        delays = trial.delays
        has_any = delays is not None and delays.every.count > 0
        self._found["soak"] = SoakFound(
            rate_pps=rate_pps,
            duration_s=self._asked.soak_s,
            frames_sent=trial.record.frames_sent,
            frames_received=trial.record.frames_received,
            offered=trial.record.not_offered is None,
            latency_ns_p50=delays.every.quantile(0.5) if delays and has_any else None,
            latency_ns_p999=delays.every.quantile(0.999) if delays and has_any else None,
        )

    def _goals(self) -> None:
        def offer(load: Load) -> Tried:
            return self._bench.offer(Offer("goals", load.rate_pps, load.duration_s)).tried

        goals = self._asked.goals
        shortest_s = min(goal.initial_trial_duration_s for goal in goals)
        found = search_goals(
            goals,
            offer,
            most_pps=self._most_pps,
            least_pps=max(1, min(self._most_pps - 1, math.ceil(1 / shortest_s))),
        )
        self._found["goals"] = tuple(self._goal_found(each) for each in found)

    def _goal_found(self, found: SearchedGoal) -> GoalFound:
        lasts_s = found.goal.final_trial_duration_s
        return _goal_record(found, self._limit(found.bounds, found.bounds.fails or 0, lasts_s))


def _goal_record(found: SearchedGoal, limited_by: Limit) -> GoalFound:
    goal = found.goal
    return GoalFound(
        goal=goal.name,
        goal_final_trial_duration_s=goal.final_trial_duration_s,
        goal_duration_sum_s=goal.duration_sum_s,
        goal_loss_ratio=goal.loss_ratio,
        goal_exceed_ratio=goal.exceed_ratio,
        goal_width=goal.width,
        goal_initial_trial_duration_s=goal.initial_trial_duration_s,
        relevant_lower_bound_pps=found.bounds.holds,
        relevant_upper_bound_pps=found.bounds.fails,
        conditional_throughput_pps=found.conditional_pps,
        is_regular=found.is_regular,
        limited_by=limited_by,
    )
