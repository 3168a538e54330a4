"""Bursts with a cause of their own: those of the start, rare ones, and those on a schedule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tailscope.models.tail.bursts import Bursts

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

_STARTED_WITHIN = 0.1
_START_BURSTS = 5
_START_BY_CHANCE = 0.01
_EPISODE_NS = 100_000_000
"""Bursts closer together than this have one cause."""

_RARE_MOST, _RARE_SHARE = 20, 4
_RARE_GAP = 1.3

_SIZE_WEIGHT, _SIZE_SPREAD = 8, 0.06
"""How much sizes of a rare class vary, in logs, as if seen in 8 bursts before any: within runs of
containers2024 it is 0.06 to 0.07."""
_SIZE_DOUBT = 0.01
"""Sizes that vary so much that chance makes it this seldom speak for themselves."""

_TOLERANCE_NS = 250_000_000
_PERIODIC_TOLERANCE = 0.02
_FEWEST_SCHEDULED, _FEWEST_PERIODIC = 4, 6
_SCHEDULED_BY_CHANCE = 1e-3
_MOST_EVENTS = 40


class StartUp(NamedTuple):
    """Bursts of the beginning that do not return."""

    until_ns: int
    """Since the first packet."""
    bursts: int
    worst_ns: int


@dataclass(frozen=True)
class Rare:
    """A class of large bursts that the law of all others does not reach."""

    sizes_ns: Integers
    """The worst latency of each, largest first."""
    duration_ns: float
    """Of all that was looked at."""

    def __len__(self) -> int:
        return len(self.sizes_ns)

    def rate_per_s(self, level: float) -> tuple[float, float, float]:
        """Bursts per second, and its exact Poisson interval."""
        from scipy.special import gammaincinv

        seconds, seen = self.duration_ns / 1e9, len(self)
        low = float(gammaincinv(seen, (1 - level) / 2))
        high = float(gammaincinv(seen + 1, (1 + level) / 2))
        return seen / seconds, low / seconds, high / seconds

    def larger(self, latency_ns: Floats) -> Floats:
        """The probability that a new burst of the class is larger.

        Logs of sizes are normal; mean and spread are known as well as those seen tell.
        """
        from scipy.special import chdtri, stdtr

        logs = np.log(self.sizes_ns.astype(float))
        own, squares = len(logs) - 1, float(((logs - logs.mean()) ** 2).sum())
        agrees = not own or squares <= _SIZE_SPREAD**2 * chdtri(own, _SIZE_DOUBT)
        weight = _SIZE_WEIGHT if agrees else 0
        freedom, squares = weight + own, weight * _SIZE_SPREAD**2 + squares
        scale = np.sqrt(squares / freedom * (1 + 1 / len(logs)))
        return np.asarray(stdtr(freedom, -(np.log(latency_ns) - logs.mean()) / scale))


class Schedule(NamedTuple):
    """Bursts that come by a clock."""

    period_ns: float | None
    """From one to the next; None where the gaps differ, but are the same in several runs."""
    offsets_ns: tuple[int, ...]
    """Since the first of them, as far as they were seen."""
    runs: int
    """In which they were seen."""
    shifts_ns: tuple[int | None, ...]
    """For each run, when its first is due; None where it has none of them."""
    size_ns: int
    """The median of the worst latencies."""


def start_up(found: Bursts, begin_ns: int, duration_ns: int) -> StartUp | None:
    """Find large bursts at the beginning that chance does not put there.

    Were all times alike, the j largest would all lie within the first share c of the duration, and
    of the bursts, with probability c^j.
    """
    if not len(found) or not duration_ns:
        return None
    order = np.argsort(-found.worst_ns, kind="stable")
    since = (found.sent_ns - begin_ns)[order]
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
    early = found.sent_ns - begin_ns <= best[1]
    return StartUp(best[1], int(early.sum()), int(found.worst_ns[early].max()))


def rare_sizes(worst_ns: Integers) -> int:
    """How many of the largest stand apart from all others, by the widest gap; 0 for none."""
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


def _periodic(times_ns: Sequence[Integers], sizes_ns: Sequence[Integers]) -> Schedule | None:
    """Events of each run that lie on one comb, counted over the longest run."""
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
        int(first) if at == longest else _phase(each, float(period))
        for at, each in enumerate(times_ns)
    )
    size = int(np.median(sizes_ns[longest][on]))
    runs = sum(shift is not None for shift in shifts)
    return Schedule(float(period), offsets, runs, shifts, size)


def _phase(times: Integers, period: float) -> int | None:
    """When the comb of a period begins in another run; None where its bursts lie on none."""
    if len(times) < 2:
        return None
    turns = np.rint((times - times[0]) / period)
    off = np.abs(times - times[0] - turns * period)
    return int(times[0]) if (off <= 2 * _PERIODIC_TOLERANCE * period).all() else None


def _repeated(
    times_ns: Sequence[Integers], sizes_ns: Sequence[Integers], duration_ns: float
) -> Schedule | None:
    """The bursts of one run that most others repeat, each shifted as a whole."""
    best: Schedule | None = None
    for own, times in enumerate(times_ns):
        if len(times) < _FEWEST_SCHEDULED:
            continue
        matched = [
            None if at == own else _matched(times, other, duration_ns)
            for at, other in enumerate(times_ns)
        ]
        if not any(each is not None for each in matched):
            continue
        kept = np.zeros(len(times), bool)
        for each in matched:
            if each is not None:
                kept |= each[1]
        first = int(times[kept][0])
        found = Schedule(
            None,
            tuple((times[kept] - first).tolist()),
            1 + sum(each is not None for each in matched),
            tuple(
                first if at == own else None if each is None else first + each[0]
                for at, each in enumerate(matched)
            ),
            int(np.median(sizes_ns[own][kept])),
        )
        if best is None or (found.runs, len(found.offsets_ns)) > (best.runs, len(best.offsets_ns)):
            best = found
    return best


def _matched(
    times: Integers, other: Integers, duration_ns: float
) -> tuple[int, NDArray[np.bool_]] | None:
    """The shift that brings most bursts of one run onto those of another, if chance does not."""
    from scipy.special import bdtrc

    if len(other) < _FEWEST_SCHEDULED:
        return None
    best: tuple[int, NDArray[np.bool_]] | None = None
    for one in times.tolist():
        for two in other.tolist():
            off = np.abs(other[None, :] - (times + (two - one))[:, None]).min(1)
            on = off <= _TOLERANCE_NS
            if best is None or on.sum() > best[1].sum():
                best = two - one, on
    assert best is not None
    count = int(best[1].sum())
    by_chance = min(1.0, 2 * _TOLERANCE_NS * len(other) / max(duration_ns, 1))
    tried = len(times) * len(other)
    chance = tried * float(bdtrc(count - 2, len(times) - 1, by_chance))
    return best if count >= _FEWEST_SCHEDULED and chance < _SCHEDULED_BY_CHANCE else None


def on_schedule(found: Schedule, run: int, times_ns: Integers) -> NDArray[np.bool_]:
    """Which bursts of a run come by the clock."""
    shift = found.shifts_ns[run]
    if shift is None or not len(times_ns):
        return np.zeros(len(times_ns), bool)
    since = times_ns - shift
    if found.period_ns is not None:
        turns = np.rint(since / found.period_ns)
        off = np.abs(since - turns * found.period_ns)
        return np.asarray(off <= _PERIODIC_TOLERANCE * found.period_ns)
    offsets = np.array(found.offsets_ns)
    return np.asarray(np.abs(since[:, None] - offsets[None, :]).min(1) <= _TOLERANCE_NS)
