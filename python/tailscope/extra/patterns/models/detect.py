"""All patterns of a series of packets, each named or refused."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.extra.patterns.models.answer import Finding, Refusal
from tailscope.extra.patterns.models.batches import batching
from tailscope.extra.patterns.models.bucket import policer, shaper
from tailscope.extra.patterns.models.holds import BEYOND_A_CLOCK, long_gaps
from tailscope.extra.patterns.models.paths import ecmp, reordering
from tailscope.extra.patterns.models.queue import find_limit, find_pace, paced_ns, queue
from tailscope.extra.patterns.models.stalls import stalls
from tailscope.extra.patterns.models.system import find_system, is_idle_at_times, undelayed_ns

if TYPE_CHECKING:
    from tailscope.extra.patterns.models.answer import Answer, Marks
    from tailscope.extra.patterns.models.series import Series
    from tailscope.extra.patterns.models.system import System


class Detected(NamedTuple):
    """What the packets say."""

    undelayed_ns: int | None
    """Latency of a packet that nothing delays; None if the device was never seen empty."""
    answers: tuple[Answer, ...]
    system: System
    stalls: Marks
    """Busy periods in which the device stalled, and no pattern says why."""


class Explained(NamedTuple):
    """What the patterns say that need no clock."""

    undelayed_ns: int
    answers: tuple[Answer, ...]
    system: System
    accounted: Marks
    """Packets whose delay one of them explains."""
    stalls: Marks
    """Busy periods in which the device stalled, and none of them says why."""


def detect(series: Series) -> Detected:
    """Look for each pattern in a series of at least one packet."""
    known = explained(series)
    clock = stalls(series, known.system, known.accounted)
    unnamed = known.stalls
    if isinstance(clock, Finding):
        # A clock holds no packet for much longer than it was found to.
        held_ns = clock.figures["duration_ns"]
        assert isinstance(held_ns, int), "a clock has a duration"
        unnamed = unnamed & (known.system.longest_gap_ns > BEYOND_A_CLOCK * held_ns)
    known_ns = known.undelayed_ns if is_idle_at_times(series) else None
    return Detected(known_ns, (*known.answers, clock), known.system, unnamed)


def explained(series: Series) -> Explained:
    """Look for the patterns that need no clock, and for stalls that none of them explains."""
    by_flow = ecmp(series)
    base_ns = undelayed_ns(series)
    each_ns = by_flow.base_ns
    if each_ns is None:
        each_ns = np.broadcast_to(base_ns, len(series.latency_ns))
    system = find_system(series, each_ns)
    pace = find_pace(series, system)
    backlog = queue(series, system, pace, find_limit(series, pace))
    refused = "" if isinstance(backlog, Finding) else backlog.reason
    answers = [
        backlog,
        shaper(series, system, pace, refused),
        policer(series),
        Refusal("batching", "a queue drained at a constant rate explains how packets leave")
        if isinstance(backlog, Finding)
        else batching(series),
        by_flow.answer,
        reordering(series, by_flow.answer),
    ]
    # What a stall held did not wait for the rate of the output.
    stalled = long_gaps(system, paced_ns(series, pace))
    held = system.within(series, stalled)
    answers[:2] = [_without(answer, held) for answer in answers[:2]]
    accounted = np.zeros(len(series.arrival_ns), bool)
    for answer in answers:
        if isinstance(answer, Finding) and answer.delayed is not None:
            accounted |= answer.delayed
    unnamed = stalled & ~system.holding(series, accounted)
    return Explained(base_ns, tuple(answers), system, accounted, unnamed)


def _without(answer: Answer, packets: Marks) -> Answer:
    """Return an answer that does not explain these packets."""
    if isinstance(answer, Refusal) or answer.delayed is None:
        return answer
    return replace(answer, delayed=answer.delayed & ~packets)
