"""All patterns of a series of packets, each named or refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.extra.patterns.models.answer import Finding, Refusal
from tailscope.extra.patterns.models.batches import batching
from tailscope.extra.patterns.models.bucket import policer, shaper
from tailscope.extra.patterns.models.holds import long_gaps
from tailscope.extra.patterns.models.paths import ecmp, reordering
from tailscope.extra.patterns.models.queue import find_limit, find_pace, queue
from tailscope.extra.patterns.models.stalls import stalls
from tailscope.extra.patterns.models.system import find_system, undelayed_ns

if TYPE_CHECKING:
    from tailscope.extra.patterns.models.answer import Answer, Marks
    from tailscope.extra.patterns.models.series import Series
    from tailscope.extra.patterns.models.system import System


class Detected(NamedTuple):
    """What the packets say."""

    undelayed_ns: int
    """Latency of a packet that nothing delays."""
    answers: tuple[Answer, ...]
    system: System
    stalls: Marks
    """Busy periods in which the device stalled, and no pattern says why."""


def detect(series: Series) -> Detected:
    """Look for each pattern in a series of at least one packet."""
    by_flow = ecmp(series)
    base_ns = undelayed_ns(series.latency_ns)
    each_ns = by_flow.base_ns
    if each_ns is None:
        each_ns = np.full(len(series.latency_ns), base_ns)
    system = find_system(series, each_ns)
    pace = find_pace(series, system)
    backlog = queue(series, system, pace, find_limit(series))
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
    accounted = np.zeros(len(series.arrival_ns), bool)
    for answer in answers:
        if isinstance(answer, Finding) and answer.delayed is not None:
            accounted |= answer.delayed
    clock = stalls(series, system, accounted)
    unnamed = long_gaps(system) & ~system.holding(series, accounted)
    if isinstance(clock, Finding):
        unnamed[:] = False
    return Detected(base_ns, (*answers, clock), system, unnamed)
