"""The findings of an instrument, against stalls that were injected at known times."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tailscope.engine.analysis import Recording, Ticks


class StallRecovery(NamedTuple):
    """Injected stalls, and what the stall log of the same loop says."""

    injected: int
    """Stalls that were injected."""
    found: int
    """Injected stalls that the log has as one stall."""
    interrupted: int
    """Found stalls that began or ended later because something else came as well; they have no part
    in the errors."""
    duration_error_ns: Ticks
    """Logged duration less the true one."""


class Queue(NamedTuple):
    """Injected stalls, and the packets that waited for their end."""

    expected: int
    """Stalls during which packets left."""
    seen: int
    """Stalls among those for which every such packet arrived after the end, or never."""


def find_injected(
    truth_start_tsc: Ticks,
    truth_duration_tsc: Ticks,
    log_start_tsc: Ticks,
    log_duration_tsc: Ticks,
    *,
    tsc_hz: int,
    around_ns: int = 10_000,
) -> StallRecovery:
    """Look for injected stalls in a stall log.

    A stall is found where a logged one begins at or before it and ends at or after it. One that is
    longer by `around_ns` or more was not alone: something else stalled the loop just before or
    after it, which the log cannot tell apart.
    """
    import numpy as np

    start = np.asarray(truth_start_tsc).astype(np.int64)
    end = start + np.asarray(truth_duration_tsc).astype(np.int64)
    log_start = np.asarray(log_start_tsc).astype(np.int64)
    log_end = log_start + np.asarray(log_duration_tsc).astype(np.int64)
    at = np.searchsorted(log_start, start, side="right") - 1
    there = at >= 0
    there[there] &= log_end[at[there]] >= end[there]
    at, start, end = at[there], start[there], end[there]
    error_ns = ((log_end[at] - log_start[at]) - (end - start)) * 1_000_000_000 // tsc_hz
    alone = error_ns < around_ns
    return StallRecovery(len(there), int(there.sum()), int((~alone).sum()), error_ns[alone])


def find_queues(recording: Recording, truth_start_tsc: Ticks, truth_duration_tsc: Ticks) -> Queue:
    """Look for the queue behind each injected stall in the packets of a run."""
    import numpy as np

    departure = np.asarray(recording.departure_tsc)
    arrival = np.full(len(departure), np.iinfo(np.uint64).max)
    # The first arrival of a packet counts, so the last one is written first.
    arrival[recording.arrival_seq[::-1]] = recording.arrival_tsc[::-1]
    start = np.asarray(truth_start_tsc)
    end = start + np.asarray(truth_duration_tsc)
    first, last = np.searchsorted(departure, start), np.searchsorted(departure, end)
    expected = seen = 0
    for begin, stop, ends in zip(first, last, end, strict=True):
        if begin < stop:
            expected += 1
            seen += bool((arrival[begin:stop] >= ends).all())
    return Queue(expected, seen)
