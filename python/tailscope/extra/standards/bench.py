"""Trials: a load is offered to a device, and every frame that left is looked for behind it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import asdict, replace

from tailscope.engine.analysis import analyze_recording
from tailscope.experiment.plan import RunPlan
from tailscope.experiment.run.execute import execute_whole
from tailscope.extra.standards.delays import Delays
from tailscope.extra.standards.rates import without_device
from tailscope.extra.standards.records import StandardTrial
from tailscope.extra.standards.search import Outcome, Tried
from tailscope.store.records.plan import MeasurementPlan
from tailscope.units import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailscope.experiment.run.measured import Measured
    from tailscope.extra.standards.rates import Figures
    from tailscope.testbed.cores import Cores

DRAIN_S = 2.0
"""Time that a trial waits for its last frames: RFC 2544, section 23."""
TRIES = 3
"""Number of attempts to offer a load before it is given up."""
_NS_PER_S = 1_000_000_000
_CEILING_PPS = 20_000_000
"""Rate offered to a wire without a device to see how much it carries."""
_CEILING_S = 0.2
CEILING = "highest rate, without the device"
"""The purpose of trials that offer more than any wire carries."""


class TrialPlan(RunPlan, frozen=True, kw_only=True):
    """The run that a trial is."""

    step_pps: int | None = None
    """The rate from `step_after_ns` on; None for one that does not change."""
    step_after_ns: int = 0

    @classmethod
    def of(cls, plan: RunPlan) -> TrialPlan:
        """Return a run as a trial."""
        return cls(**{name: getattr(plan, name) for name in RunPlan.__struct_fields__})

    def record(self) -> MeasurementPlan:
        """The plan as records keep it."""
        own = asdict(self)
        plan = {name: own[name] for name in RunPlan.__struct_fields__}
        return MeasurementPlan(**plan, stall_ns=self.device.stall_ns)

    def generator_options(self) -> list[str]:
        """Arguments of ``tailscope-dp gen``, apart from folders."""
        options = [*super().generator_options(), f"--drain={round(DRAIN_S * _NS_PER_S)}ns"]
        if self.step_pps is not None:
            options += [f"--step-rate={self.step_pps}", f"--step-after={self.step_after_ns}ns"]
        return options


@dataclass(frozen=True)
class Offer:
    """A load, as a trial offers it."""

    test: str
    """The purpose of the trial."""
    rate_pps: int
    duration_s: float
    step_pps: int | None = None
    """The rate behind `step_after_s`."""
    step_after_s: float = 0.0
    has_delays: bool = False
    """True if delays are wanted, which takes time."""


@dataclass(frozen=True)
class Trial:
    """The result of offering a load."""

    record: StandardTrial
    delays: Delays | None = None
    """The delays of the stream; None unless they were wanted."""
    last_lost_s: float | None = None
    """Time from the step of the rate, or the first departure, to the departure of the last frame
    that was lost; None if none was, or it was not asked for."""

    @property
    def frames_lost(self) -> int:
        """Frames that left and did not come back."""
        return self.record.frames_sent - self.record.frames_received

    @property
    def tried(self) -> Tried:
        """The trial as a search sees it."""
        record = self.record
        carried_pps = record.frames_received / record.duration_s
        if record.not_offered is not None:
            is_refused = not (record.frames_unsent_by_generator or record.frames_lost_in_instrument)
            outcome = Outcome.REFUSED if is_refused else Outcome.NOT_OFFERED
        else:
            outcome = Outcome.LOST if self.frames_lost else Outcome.HOLDS
        return Tried(outcome, record.frames_sent, self.frames_lost, carried_pps)


@dataclass
class Bench:
    """A device with what measures it; it makes trials with frames of one size or mix."""

    plan: RunPlan
    """The plan of each trial, but for its rate and duration."""
    cores: Cores
    tell: Callable[[Trial], None] = lambda _trial: None
    """Receives each trial."""
    trials: list[Trial] = field(default_factory=list)
    """All that were made."""
    _beyond: Offer | None = None

    @property
    def frame(self) -> str:
        """The size or the mix, as people write it."""
        return self.plan.size_mix or str(self.plan.size_bytes)

    def offer(self, offer: Offer) -> Trial:
        """Offer a load until it could be offered, `TRIES` times at most.

        Of trials in which it could not, one of those that say why for most of them. A load that is
        beyond another one which could not be offered is offered once.
        """
        refused: list[Trial] = []
        tries = 1 if self._is_beyond(offer) else TRIES
        for _ in range(tries):
            trial = self._try(self.plan, offer)
            if trial.record.not_offered is None:
                return trial
            if trial.tried.outcome is Outcome.REFUSED:
                refused.append(trial)
        if offer.step_pps is None and tries > 1:
            self._beyond = offer
        return refused[0] if 2 * len(refused) > tries else trial

    def _is_beyond(self, offer: Offer) -> bool:
        beyond = self._beyond
        if beyond is None or offer.step_pps is not None:
            return False
        return offer.rate_pps >= beyond.rate_pps and offer.duration_s >= beyond.duration_s

    def carries(self, rate_pps: int, lasts_s: float) -> bool:
        """Try whether the wire carries a load without the device, in most of `TRIES` trials."""
        alone = without_device(self.plan)
        if alone is None:
            return False
        offer = Offer("control, without the device", rate_pps, lasts_s)
        found = [self._try(alone, offer).tried.outcome for _ in range(TRIES)]
        return 2 * found.count(Outcome.HOLDS) > TRIES

    def ceiling_pps(self, most_s: float) -> int | None:
        """Measure what the wire carries without the device; None for a wire that cannot be without.

        The best of `TRIES` short trials at more than it can carry.
        """
        alone = without_device(self.plan)
        if alone is None:
            return None
        lasts_s = min(most_s, _CEILING_S)
        offer = Offer(CEILING, _CEILING_PPS, lasts_s)
        found = [self._try(alone, offer) for _ in range(TRIES)]
        return max(math.floor(each.record.frames_sent / lasts_s) for each in found)

    def _try(self, plan: RunPlan, offer: Offer) -> Trial:
        looked: list[tuple[Delays, float | None]] = []

        def inspect(measured: Measured) -> None:
            looked.append(_look(measured, offer))

        wanted = offer.has_delays or offer.step_pps is not None
        measured = execute_whole(
            replace(
                TrialPlan.of(plan),
                rate_pps=offer.rate_pps,
                duration_ns=max(1, round(offer.duration_s * _NS_PER_S)),
                step_pps=offer.step_pps,
                step_after_ns=round(offer.step_after_s * _NS_PER_S),
            ),
            self.cores,
            inspect=inspect if wanted else None,
        )
        delays, last_lost_s = looked[0] if looked else (None, None)
        trial = Trial(_record(offer, self.frame, measured.figures), delays, last_lost_s)
        self.trials.append(trial)
        self.tell(trial)
        return trial


def _look(measured: Measured, offer: Offer) -> tuple[Delays, float | None]:
    recording, plan = measured.recording, measured.info.plan
    assert recording is not None and isinstance(plan, MeasurementPlan), "a generator recorded it"
    delays = Delays(round(offer.duration_s * _NS_PER_S / 2))
    analyze_recording(recording, window=plan.window_ns, worst=0, series=False, sink=delays)
    departed = recording.departure_tsc
    last = delays.last_lost(len(departed))
    if last is None:
        return delays, None
    ends = np.asarray([departed[0], departed[last]], np.int64)
    first_ns, last_ns = recording.clock.all_at_ns(ends)
    return delays, (int(last_ns) - int(first_ns)) / _NS_PER_S - offer.step_after_s


def _record(offer: Offer, frame: str, figures: Figures) -> StandardTrial:
    return StandardTrial(
        test=offer.test,
        frame=frame,
        rate_pps=offer.rate_pps,
        duration_s=offer.duration_s,
        frames_sent=figures["sent"],
        frames_unsent=figures["unsent"],
        frames_unsent_by_generator=figures["unsent_generator"],
        frames_received=figures["count"],
        frames_lost_in_instrument=figures["lost_in_instrument"],
        frames_tainted=figures["tainted"] or 0,
        not_offered=_not_offered(figures),
    )


def _not_offered(figures: Figures) -> str | None:
    """Say why the load did not reach the device; None if it did, and came back."""
    unsent, own = figures["unsent"], figures["unsent_generator"]
    if own:
        late = counted(own, "frame")
        return f"{late} could not be sent in time: the generator was kept from its work"
    if unsent:
        return (
            f"{counted(unsent, 'frame')} could not be sent in time: the wire, or the device behind"
            " it, took no more"
        )
    if figures["lost_in_instrument"]:
        return f"{counted(figures['lost_in_instrument'], 'frame')} lost in the instrument"
    return None
