"""Loss of CPU time by cause: frequency, duration and share (noms2020 Table V)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from tailscope.store.records.watched import WatchedCause

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tailscope.noise.timeline import Timeline

_SUPPORT = 10


@dataclass(frozen=True)
class Cause:
    """The CPU time that one cause takes."""

    cause: str
    count: int
    """Number of events."""
    rate_hz: float
    """Events per second on each CPU."""
    total_ns: int
    """Total duration of all events, without the time in which they were interrupted."""
    share: float
    """Share of the time of all CPUs, in [0, 1]."""
    duration_ns_p50: int
    duration_ns_p99: int
    duration_ns_max: int
    """Quantiles and maximum of the duration of an event."""
    p99_supported: bool
    """True if at least 10 events lie above p99; otherwise p99 is the maximum."""
    details: tuple[str, ...]
    """Further details, the most frequent first."""

    def record(self) -> WatchedCause:
        """Return the cause as the record of ``noise.json``."""
        return WatchedCause(**{field.name: getattr(self, field.name) for field in fields(self)})


def causes_of(timelines: Sequence[Timeline], duration_ns: int) -> list[Cause]:
    """Count causes over some CPUs, largest total first."""
    durations: dict[str, list[NDArray[np.int64]]] = {}
    details: dict[str, dict[str, int]] = {}
    for timeline in timelines:
        lasted = event_durations_ns(timeline)
        numbers = np.unique(timeline.event)
        for code, cause in enumerate(timeline.causes):
            events = numbers[timeline.cause[numbers] == code]
            if len(events):
                durations.setdefault(cause, []).append(lasted[events])
                _count(details.setdefault(cause, {}), timeline, events)
    whole_ns = duration_ns * max(1, len(timelines))
    causes = [
        _cause(name, np.sort(np.concatenate(pieces)), whole_ns, details[name])
        for name, pieces in durations.items()
    ]
    return sorted(causes, key=lambda cause: (-cause.total_ns, cause.cause))


def event_durations_ns(timeline: Timeline) -> NDArray[np.int64]:
    """Return the duration of each event: the sum of its pieces."""
    total = np.zeros(len(timeline.cause), np.int64)
    np.add.at(total, timeline.event, timeline.end_ns - timeline.start_ns)
    return total


def _count(counts: dict[str, int], timeline: Timeline, events: NDArray[np.int64]) -> None:
    codes, often = np.unique(timeline.detail[events], return_counts=True)
    for code, count in zip(codes.tolist(), often.tolist(), strict=True):
        if text := timeline.details[code]:
            counts[text] = counts.get(text, 0) + count


def _cause(
    name: str, durations_ns: NDArray[np.int64], whole_ns: int, details: dict[str, int]
) -> Cause:
    count, total_ns = len(durations_ns), int(durations_ns.sum())

    def quantile(q: float) -> int:
        return int(durations_ns[max(0, int(np.ceil(q * count)) - 1)])

    return Cause(
        cause=name,
        count=count,
        rate_hz=count / (whole_ns / 1e9),
        total_ns=total_ns,
        share=total_ns / whole_ns,
        duration_ns_p50=quantile(0.5),
        duration_ns_p99=quantile(0.99),
        duration_ns_max=int(durations_ns[-1]),
        p99_supported=count - int(np.ceil(0.99 * count)) >= _SUPPORT,
        details=tuple(sorted(details, key=lambda text: -details[text])),
    )
