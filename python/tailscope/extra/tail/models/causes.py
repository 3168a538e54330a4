"""Bursts with a cause of their own: at the start, rare, or on a schedule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tailscope.extra.tail.models.bursts import Bursts

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

_STARTED_WITHIN = 0.1
_START_BURSTS = 5
_START_BY_CHANCE = 0.01
_EPISODE_NS = 100_000_000
"""Largest distance between bursts with one cause."""

_RARE_MOST, _RARE_SHARE = 20, 4
_RARE_GAP = 1.3

_TOLERANCE_NS = 250_000_000
_PERIODIC_TOLERANCE = 0.02
_FEWEST_SCHEDULED, _FEWEST_PERIODIC = 4, 6
_SCHEDULED_BY_CHANCE = 1e-3
_MOST_EVENTS = 40
_LARGEST = (10, 15, 20, 40, 80, 160)


class StartUp(NamedTuple):
    """Bursts at the beginning that do not recur."""

    until_ns: int
    """End of the start, since the first packet."""
    bursts: int
    worst_ns: int


@dataclass(frozen=True)
class Rare:
    """A class of large bursts beyond the law of all others."""

    sizes_ns: Integers
    """Worst latency of each, the largest first."""
    duration_ns: float
    """Duration of the observation."""

    def __len__(self) -> int:
        return len(self.sizes_ns)

    def rate_per_s(self, level: float) -> tuple[float, float, float]:
        """Return the bursts per second, and their exact Poisson interval."""
        from scipy.special import gammaincinv

        seconds, seen = self.duration_ns / 1e9, len(self)
        low = float(gammaincinv(seen, (1 - level) / 2))
        high = float(gammaincinv(seen + 1, (1 + level) / 2))
        return seen / seconds, low / seconds, high / seconds


class Schedule(NamedTuple):
    """Bursts that come by a clock."""

    period_ns: float | None
    """Period; None if the gaps differ, but are the same in several runs."""
    offsets_ns: tuple[int, ...]
    """Offsets from the first burst, as far as they were seen."""
    runs: int
    """Number of runs in which they were seen."""
    shifts_ns: tuple[int | None, ...]
    """Time of the first burst in each run; None for a run without them."""
    size_ns: int
    """Median of the worst latencies."""


def start_up(events: Bursts, begin_ns: int, duration_ns: int) -> StartUp | None:
    """Find large bursts at the beginning that chance does not put there.

    Were all times alike, the j largest would all lie within the first share c of the duration, and
    of the bursts, with probability c^j.
    """
    if not len(events) or not duration_ns:
        return None
    order = np.argsort(-events.worst_ns, kind="stable")
    since = (events.sent_ns - begin_ns)[order]
    best: tuple[float, int] | None = None
    seen: list[int] = []
    until = 0
    for at in since.tolist():
        until = max(until, at)
        # A table of the worst packets begins with one of them: places tell what times do not.
        first = max(until / duration_ns, int((since <= until).sum()) / len(since))
        if first > _STARTED_WITHIN or len(seen) == _START_BURSTS:
            break
        if all(abs(at - other) > _EPISODE_NS for other in seen):
            seen.append(at)
        chance = _START_BURSTS * first ** len(seen)
        if best is None or chance < best[0]:
            best = chance, until
    if best is None or best[0] >= _START_BY_CHANCE:
        return None
    early = events.sent_ns - begin_ns <= best[1]
    return StartUp(best[1], int(early.sum()), int(events.worst_ns[early].max()))


def rare_sizes(worst_ns: Integers) -> int:
    """Count the largest sizes that stand apart by the widest gap; 0 for none."""
    most = min(_RARE_MOST, len(worst_ns) // _RARE_SHARE)
    if not most:
        return 0
    gaps = worst_ns[:most] / np.maximum(worst_ns[1 : most + 1], 1)
    widest = int(np.argmax(gaps))
    return widest + 1 if gaps[widest] >= _RARE_GAP else 0


def schedule(
    times_ns: Sequence[Integers], sizes_ns: Sequence[Integers], duration_ns: float
) -> Schedule | None:
    """Find a clock behind rare bursts: one period, or gaps that repeat from run to run."""
    if not 0 < max(map(len, times_ns), default=0) <= _MOST_EVENTS:
        return None
    return _periodic(times_ns, sizes_ns) or _repeated(times_ns, sizes_ns, duration_ns)


def schedule_of_largest(own: Sequence[Bursts]) -> Schedule | None:
    """Find one period of the largest bursts, though they may not stand apart from the others."""
    for most in _LARGEST:
        largest = [part.kept(np.sort(np.argsort(-part.worst_ns)[:most])) for part in own]
        times, sizes = zip(*((part.sent_ns, part.worst_ns) for part in largest), strict=True)
        found = _periodic(times, sizes)
        if found is not None:
            return found
    return None


def _periodic(times_ns: Sequence[Integers], sizes_ns: Sequence[Integers]) -> Schedule | None:
    """Find the events of each run that lie on one comb, counted over the longest run."""
    longest = max(range(len(times_ns)), key=lambda at: len(times_ns[at]))
    times = times_ns[longest].astype(float)
    if len(times) < _FEWEST_PERIODIC:
        return None
    period = float(np.median(np.diff(times)))
    turns = np.rint((times - times[0]) / period)
    if len(set(turns.tolist())) < len(turns):
        return None
    period, first = np.polyfit(turns, times, 1)
    off = np.abs(times - first - turns * period)
    on = off <= _PERIODIC_TOLERANCE * period
    chance = len(times) * (2 * _PERIODIC_TOLERANCE) ** (int(on.sum()) - 2)
    if on.sum() < max(_FEWEST_PERIODIC, 0.8 * len(times)) or chance > _SCHEDULED_BY_CHANCE:
        return None
    offsets = tuple(int(turn * period) for turn in turns[on] - turns[on][0])
    shifts = tuple(
        int(first) if at == longest else _phase(times, float(period))
        for at, times in enumerate(times_ns)
    )
    size = int(np.median(sizes_ns[longest][on]))
    runs = sum(shift is not None for shift in shifts)
    return Schedule(float(period), offsets, runs, shifts, size)


def _phase(times: Integers, period: float) -> int | None:
    """Return when the comb of a period begins in another run; None if it has no such bursts."""
    if len(times) < 2:
        return None
    turns = np.rint((times - times[0]) / period)
    off = np.abs(times - times[0] - turns * period)
    return int(times[0]) if (off <= 2 * _PERIODIC_TOLERANCE * period).all() else None


def _repeated(
    times_ns: Sequence[Integers], sizes_ns: Sequence[Integers], duration_ns: float
) -> Schedule | None:
    """Find the bursts of one run that most others repeat, each shifted as a whole."""
    best: Schedule | None = None
    for own, times in enumerate(times_ns):
        if len(times) < _FEWEST_SCHEDULED:
            continue
        matched = [
            None if at == own else _matched(times, other, duration_ns)
            for at, other in enumerate(times_ns)
        ]
        if not any(match is not None for match in matched):
            continue
        repeated = np.zeros(len(times), bool)
        for match in matched:
            if match is not None:
                repeated |= match[1]
        first = int(times[repeated][0])
        schedule = Schedule(
            None,
            tuple((times[repeated] - first).tolist()),
            1 + sum(match is not None for match in matched),
            tuple(
                first if at == own else None if match is None else first + match[0]
                for at, match in enumerate(matched)
            ),
            int(np.median(sizes_ns[own][repeated])),
        )
        if best is None or (schedule.runs, len(schedule.offsets_ns)) > (
            best.runs,
            len(best.offsets_ns),
        ):
            best = schedule
    return best


def _matched(
    times: Integers, other: Integers, duration_ns: float
) -> tuple[int, NDArray[np.bool_]] | None:
    """Return the shift that brings most bursts of one run onto those of another, beyond chance."""
    from scipy.special import bdtrc

    if len(other) < _FEWEST_SCHEDULED:
        return None
    best: tuple[int, NDArray[np.bool_]] | None = None
    for first in times.tolist():
        for second in other.tolist():
            off = np.abs(other[None, :] - (times + (second - first))[:, None]).min(1)
            on = off <= _TOLERANCE_NS
            if best is None or on.sum() > best[1].sum():
                best = second - first, on
    assert best is not None
    count = int(best[1].sum())
    by_chance = min(1.0, 2 * _TOLERANCE_NS * len(other) / max(duration_ns, 1))
    tried = len(times) * len(other)
    chance = tried * float(bdtrc(count - 2, len(times) - 1, by_chance))
    return best if count >= _FEWEST_SCHEDULED and chance < _SCHEDULED_BY_CHANCE else None


def on_schedule(schedule: Schedule, run: int, times_ns: Integers) -> NDArray[np.bool_]:
    """Mark the bursts of a run that come by the clock."""
    shift = schedule.shifts_ns[run]
    if shift is None or not len(times_ns):
        return np.zeros(len(times_ns), bool)
    since = times_ns - shift
    if schedule.period_ns is not None:
        turns = np.rint(since / schedule.period_ns)
        off = np.abs(since - turns * schedule.period_ns)
        return np.asarray(off <= _PERIODIC_TOLERANCE * schedule.period_ns)
    offsets = np.array(schedule.offsets_ns)
    return np.asarray(np.abs(since[:, None] - offsets[None, :]).min(1) <= _TOLERANCE_NS)
