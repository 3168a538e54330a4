"""Simulation of packets that queue at a server which interruptions take away."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

import numpy as np

from tailscope.extra.patterns.models.aliasing.slices import slices
from tailscope.extra.patterns.models.aliasing.wander import STEADY, Track, Wander

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Times: TypeAlias = NDArray[np.int64]


class Interruptions(NamedTuple):
    """The start and duration of each interruption of the server."""

    start_ns: Times
    duration_ns: Times


class InterruptSource(Protocol):
    """A source of interruptions."""

    @property
    def share(self) -> float:
        """Return the share of all time that this source takes in the long run."""

    def interruptions(self, first_ns: int, last_ns: int) -> Interruptions:
        """Return all interruptions that matter to packets from `first_ns` to `last_ns`."""


@dataclass(frozen=True)
class Periodic:
    """A clock that interrupts at some of its ticks, each time for as long."""

    period_ns: float
    """Period from tick to tick."""
    duration_ns: int
    phase_ns: float = 0.0
    """Start of tick 0, counted from the first packet."""
    every: int = 1
    """Number of ticks in a group; groups repeat."""
    teeth: tuple[int, ...] = (0,)
    """Numbers of the ticks within a group, from 0, that interrupt."""
    wander: Wander | Track = STEADY
    """Lateness of ticks against even ones."""

    def __post_init__(self) -> None:
        if not 0 < self.period_ns < math.inf:
            raise ValueError(f"period_ns: expected more than 0, got {self.period_ns}")
        if self.duration_ns < 0:
            raise ValueError(f"duration_ns: expected at least 0, got {self.duration_ns}")
        if self.every < 1:
            raise ValueError(f"every: expected at least 1, got {self.every}")
        if not self.teeth or not set(self.teeth) <= set(range(self.every)):
            raise ValueError(
                f"teeth: expected some of 0 to {self.every - 1}, got {list(self.teeth)}"
            )

    @property
    def rate_hz(self) -> float:
        """Return the interruptions per second."""
        return len(set(self.teeth)) / (self.every * self.period_ns) * 1e9

    @property
    def share(self) -> float:
        """Return the share of all time that the clock takes."""
        return self.rate_hz * self.duration_ns / 1e9

    def interruptions(self, first_ns: int, last_ns: int) -> Interruptions:
        """Return the interruptions to `last_ns`, from one possibly under way at `first_ns`."""
        astray_ns = self.wander.largest_ns
        begin = math.ceil((-self.phase_ns - self.duration_ns - astray_ns) / self.period_ns)
        end = math.floor((last_ns - first_ns - self.phase_ns + astray_ns) / self.period_ns) + 1
        ticks = np.arange(begin, max(begin, end))
        ticks = ticks[np.isin(ticks % self.every, self.teeth)]
        even_ns = (self.phase_ns + ticks * self.period_ns).astype(np.float64)
        start_ns = first_ns + np.rint(even_ns + self.wander.at(even_ns)).astype(np.int64)
        return Interruptions(start_ns, np.full(len(ticks), self.duration_ns, np.int64))


@dataclass(frozen=True)
class RecordedInterruptions:
    """Recorded interruptions, on the clock of the packets."""

    start_ns: Times
    duration_ns: Times

    def __post_init__(self) -> None:
        if self.start_ns.shape != self.duration_ns.shape or self.start_ns.ndim != 1:
            raise ValueError(
                f"duration_ns: expected shape {self.start_ns.shape}, got {self.duration_ns.shape}"
            )
        if np.any(self.duration_ns < 0):
            raise ValueError(f"duration_ns: expected at least 0, got {self.duration_ns.min()}")

    @property
    def share(self) -> float:
        """Return 0, as a record ends and takes no time in the long run."""
        return 0.0

    def interruptions(self, first_ns: int, last_ns: int) -> Interruptions:  # noqa: ARG002
        """Return the interruptions that begin until `last_ns`."""
        until = self.start_ns <= last_ns
        return Interruptions(self.start_ns[until], self.duration_ns[until])


def simulate(
    arrival_ns: Times,
    sources: Sequence[InterruptSource],
    *,
    base_ns: int | Times,
    service_ns: int | Times = 0,
) -> Times:
    """Simulate the latency of every packet under these interruptions."""
    if np.any(np.diff(arrival_ns) < 0):
        raise ValueError("arrival_ns: expected ascending times")
    share = sum(source.share for source in sources)
    if share >= 1:
        raise ValueError(f"sources: expected less than all of the time, got {share:.3f} of it")
    if not len(arrival_ns):
        return np.empty(0, np.int64)
    first_ns, last_ns = int(arrival_ns[0]), int(arrival_ns[-1])
    while True:
        calls = [source.interruptions(first_ns, last_ns) for source in sources]
        departure_ns = departures(arrival_ns, _together(calls), service_ns)
        if departure_ns[-1] <= last_ns:
            break
        # What is still queued behind the last packet may be interrupted as well.
        last_ns = int(departure_ns[-1])
    latency_ns: Times = departure_ns - arrival_ns
    latency_ns += base_ns
    latency_ns -= service_ns
    return latency_ns


def in_window(done_ns: Times, clock: Periodic, window_ns: float) -> NDArray[np.bool_]:
    """Mark the packets that are done within this time from a tick."""
    even_ns = done_ns - clock.wander.at(done_ns.astype(np.float64)) - clock.phase_ns
    return np.asarray(even_ns % clock.period_ns < window_ns, np.bool_)


def departures(
    arrival_ns: Times, interruptions: Interruptions, service_ns: int | Times = 0
) -> Times:
    """Return the departures from a server that serves in order and never idles with a queue.

    Interruptions come before packets and wait for each other, so the server is away from
    ``max(start, previous end)`` on. What is left, A(t) = time the server had for packets until t,
    is a clock of its own, on which packets form a queue without interruptions. It stands still
    during an interruption: a departure that falls on such a moment happens at its end.
    """
    clock = _ServerTime.of(interruptions)
    return clock.back(queue(clock.at(arrival_ns), service_ns))


def lateness(begin_ns: Times, sources: Sequence[InterruptSource], service_ns: int) -> Times:
    """Return by how much each piece of work is late that the server could begin at these times.

    Sources count from the first of these times, as in `simulate`.
    """
    if not len(begin_ns):
        return np.empty(0, np.int64)
    calls = [source.interruptions(int(begin_ns[0]), int(begin_ns.max())) for source in sources]
    clock = _ServerTime.of(_together(calls))
    late_ns: Times = clock.back(clock.at(begin_ns) + service_ns) - begin_ns - service_ns
    return late_ns


class _ServerTime(NamedTuple):
    """The time that the server had for packets, A(t)."""

    begin_ns: Times
    """Begin of each interruption, when those before it have ended."""
    away_ns: Times
    """Time that the server was away for before each interruption, and in all."""
    had_ns: Times
    """A(t) during each interruption."""

    @classmethod
    def of(cls, interruptions: Interruptions) -> _ServerTime:
        duration_ns = interruptions.duration_ns
        begin_ns = queue(interruptions.start_ns, duration_ns) - duration_ns
        away_ns = np.concatenate([[0], np.cumsum(duration_ns)])
        return cls(begin_ns, away_ns, begin_ns - away_ns[:-1])

    def at(self, time_ns: Times) -> Times:
        """Return A(t)."""
        # The first of these is for packets before every interruption; there is none to wait for.
        floor_ns = np.concatenate([[np.iinfo(np.int64).min], self.had_ns])
        had_ns = np.empty(len(time_ns), np.int64)
        for some in slices(len(time_ns)):
            last = np.searchsorted(self.begin_ns, time_ns[some], "right")
            had_ns[some] = np.maximum(floor_ns[last], time_ns[some] - self.away_ns[last])
        return had_ns

    def back(self, had_ns: Times) -> Times:
        """Return the last moment at which the server had so much time."""
        time_ns = np.empty(len(had_ns), np.int64)
        for some in slices(len(had_ns)):
            ended = np.searchsorted(self.had_ns, had_ns[some], "right")
            time_ns[some] = had_ns[some] + self.away_ns[ended]
        return time_ns


def queue(arrival_ns: Times, service_ns: int | Times) -> Times:
    """Return departures in order of service, each begun at max(arrival, previous departure)."""
    served_ns: Times = np.cumsum(np.broadcast_to(service_ns, arrival_ns.shape), dtype=np.int64)
    idle_ns = arrival_ns - served_ns
    idle_ns += service_ns
    served_ns += np.maximum.accumulate(idle_ns)
    return served_ns


def _together(calls: Sequence[Interruptions]) -> Interruptions:
    """Merge interruptions in order of their start; at the same moment, in the given order."""
    none = np.empty(0, np.int64)
    start_ns = np.concatenate([none, *(call.start_ns for call in calls)])
    duration_ns = np.concatenate([none, *(call.duration_ns for call in calls)])
    order = np.argsort(start_ns, kind="stable")
    return Interruptions(start_ns[order], duration_ns[order])
