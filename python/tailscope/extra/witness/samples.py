"""What a log says of a clock at one moment, and which moments leave the clock in doubt."""

from __future__ import annotations

from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

Reason: TypeAlias = Literal["offset", "frequency", "state", "silence"]

SILENT_INTERVALS = 4
"""A log is silent where nothing follows for so many of its usual intervals."""
FOREVER_NS = 1 << 62
_USUAL = 4
_UNUSUAL = 20
"""The smallest fourth of a log's offsets shows what is usual, even if most of it is a fault; an
offset of more than so many times the largest of these is none of them."""
_LEAST_LIMIT_NS = 1_000
"""Offsets up to this never leave a clock in doubt."""
_PPB = 10**9


class Sample(NamedTuple):
    """What a line of a log says."""

    at_ns: int
    """Time of the line, in the log's own time."""
    offset_ns: int | None
    """Offset of the clock, or the largest since the line before; None if the line has none."""
    frequency_ppb: float | None = None
    """By how much the clock's rate is corrected, in parts per 10^9."""
    is_kept: bool = True
    """False if the line says that nothing keeps the clock."""


class Doubt(NamedTuple):
    """A time at which a log leaves the clock in doubt, in the log's own time."""

    start_ns: int
    end_ns: int
    offset_ns: int | None
    reason: Reason


def limit_of(samples: Sequence[Sample], limit_ns: int) -> int:
    """Return from which offset on a clock is in doubt: `limit_ns`, or less if offsets are smaller.

    A log whose offsets are some hundred nanoseconds proves that one of 20 microseconds is a fault.
    """
    offsets_ns = [abs(each.offset_ns) for each in samples if each.offset_ns is not None]
    usual_ns = sorted(offsets_ns)[len(offsets_ns) // _USUAL] if offsets_ns else limit_ns
    return min(limit_ns, max(_LEAST_LIMIT_NS, _UNUSUAL * usual_ns))


def doubts_of(samples: Sequence[Sample], limit_ns: int, resolution_ns: int) -> list[Doubt]:
    """Return when samples, in order of time, leave a clock in doubt.

    Between two lines the clock is as far off as the worse of them says, and as far as it can have
    run away meanwhile: between two offsets, with rates between those of the two lines, by a quarter
    of what their difference makes in that time. Before the first and behind the last line nobody
    says anything. `resolution_ns` is the last digit of the log's times, which are rounded down.
    """
    gaps_ns = [later.at_ns - former.at_ns for former, later in pairwise(samples)]
    limit_ns = limit_of(samples, limit_ns)
    silent_ns = SILENT_INTERVALS * max(median(gaps_ns) if gaps_ns else 0, resolution_ns)
    doubts = [
        Doubt(-FOREVER_NS, samples[0].at_ns + resolution_ns, None, "silence"),
        Doubt(samples[-1].at_ns, FOREVER_NS, None, "silence"),
    ]
    for former, later in pairwise(samples):
        if (found := _between(former, later, limit_ns, silent_ns)) is not None:
            reason, offset_ns = found
            # What the clock stamped while it was off lies as far from the log's times.
            wider_ns = offset_ns or 0
            start_ns, end_ns = former.at_ns - wider_ns, later.at_ns + resolution_ns + wider_ns
            doubts.append(Doubt(start_ns, end_ns, offset_ns, reason))
    return merged(doubts)


def _between(
    former: Sample, later: Sample, limit_ns: int, silent_ns: float
) -> tuple[Reason, int | None] | None:
    """Say why the clock is in doubt between two lines, and how far it was off, if it is."""
    offsets_ns = [abs(each.offset_ns) for each in (former, later) if each.offset_ns is not None]
    offset_ns = max(offsets_ns, default=None)
    if not (former.is_kept and later.is_kept):
        return "state", offset_ns
    if offset_ns is not None and offset_ns > limit_ns:
        return "offset", offset_ns
    lasts_ns = later.at_ns - former.at_ns
    if lasts_ns > silent_ns:
        return "silence", None
    if former.frequency_ppb is not None and later.frequency_ppb is not None:
        jump_ppb = abs(later.frequency_ppb - former.frequency_ppb)
        run_ns = jump_ppb / _PPB * lasts_ns / 4
        if run_ns + (offset_ns or 0) > limit_ns:
            return "frequency", round(run_ns) + (offset_ns or 0)
    return None


def merged(doubts: Sequence[Doubt]) -> list[Doubt]:
    """Join doubts that touch, if they have one reason; those of one moment may have several."""
    joined: list[Doubt] = []
    for doubt in sorted(doubts, key=lambda doubt: doubt.start_ns):
        former = joined[-1] if joined else None
        if former and former.reason == doubt.reason and doubt.start_ns <= former.end_ns:
            offsets_ns = [ns for ns in (former.offset_ns, doubt.offset_ns) if ns is not None]
            joined[-1] = former._replace(
                end_ns=max(former.end_ns, doubt.end_ns), offset_ns=max(offsets_ns, default=None)
            )
        else:
            joined.append(doubt)
    return joined
