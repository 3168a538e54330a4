"""The difference of two clocks, and its uncertainty, from bounds at some moments.

Whatever two machines saw of the same thing bounds the difference of their clocks: a packet that one
stamped before the other saw it, an answer that came after its question. Each such bound holds at a
moment. Two clocks differ by a line over some time, an offset and a drift; the lines that keep all
bounds are a polygon of offsets and drifts, and what it spans at a moment is all that can be said.
Where no line keeps all bounds, time is divided until one does in each piece, however short.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    Integers = NDArray[np.int64]
    Floats = NDArray[np.float64]

MOST_DRIFT = 1e-3
"""Largest drift of one computer's clock against another (1000 ppm)."""

_LEAST_MEASURED_NS = 20_000_000
"""Shortest piece whose lines tell the drift of a clock, not only its offset."""
_SLACK_NS = 1.0
"""Largest error by rounding to whole nanoseconds."""
_S = 1e9
_WITNESSES = 1000


class UnboundedError(ValueError):
    """Bounds that leave the difference open above or below."""


class ContradictionError(ValueError):
    """Bounds that no difference keeps; the text names two of them and their times."""


class Bounds(NamedTuple):
    """Bounds of the difference of two clocks at some moments."""

    at_ns: Integers
    """Moments by the first clock."""
    low_ns: Floats
    high_ns: Floats
    """Least and greatest offset from the first clock to the second one, in addition to
    `base_ns`; infinite if unknown."""
    base_ns: int = 0
    """Common part of the offsets, so that a difference of decades loses no digit."""

    @classmethod
    def at_least(cls, at_ns: ArrayLike, other_ns: ArrayLike) -> Bounds:
        """Build lower bounds from events that had happened at these times of the second clock."""
        at, other = np.asarray(at_ns, np.int64), np.asarray(other_ns, np.int64)
        base_ns = int(other[0] - at[0]) if len(at) else 0
        return cls(at, (other - at - base_ns).astype(float), np.full(len(at), np.inf), base_ns)

    @classmethod
    def at_most(cls, at_ns: ArrayLike, other_ns: ArrayLike) -> Bounds:
        """Build upper bounds from events still to come at these times of the second clock."""
        at, high, none, base_ns = cls.at_least(at_ns, other_ns)
        return cls(at, -none, high, base_ns)

    @classmethod
    def of_pairs(cls, at_ns: ArrayLike, low_ns: ArrayLike, high_ns: ArrayLike) -> Bounds:
        """Build bounds from both sides."""
        at, low, high = (np.asarray(each, np.int64) for each in (at_ns, low_ns, high_ns))
        return cls.at_least(at, at + low).with_others(cls.at_most(at, at + high))

    @classmethod
    def of_answers(
        cls, asked_ns: ArrayLike, heard_ns: ArrayLike, said_ns: ArrayLike, answered_ns: ArrayLike
    ) -> Bounds:
        """Build bounds from questions and answers: a question is heard after it was asked."""
        return cls.at_least(heard_ns, asked_ns).with_others(cls.at_most(said_ns, answered_ns))

    def with_others(self, others: Bounds) -> Bounds:
        """Join these bounds and others."""
        by_ns = float(others.base_ns - self.base_ns)
        return Bounds(
            np.concatenate([self.at_ns, others.at_ns]),
            np.concatenate([self.low_ns, others.low_ns + by_ns]),
            np.concatenate([self.high_ns, others.high_ns + by_ns]),
            self.base_ns,
        )

    def loosened(self, by_ns: float) -> Bounds:
        """Loosen the bounds by the error of times that are rounded more coarsely."""
        return self._replace(low_ns=self.low_ns - by_ns, high_ns=self.high_ns + by_ns)

    def at(self, places: Sequence[int]) -> Bounds:
        """Choose the bounds at these indices."""
        chosen = np.asarray(places, np.int64)
        return Bounds(self.at_ns[chosen], self.low_ns[chosen], self.high_ns[chosen], self.base_ns)

    @property
    def are_two_sided(self) -> bool:
        """Return True if the difference is bounded from below and from above."""
        return bool(np.isfinite(self.low_ns).any() and np.isfinite(self.high_ns).any())


@dataclass(frozen=True)
class ClockMap:
    """The map from one clock to another."""

    at_ns: Integers
    """Moments by the first clock, ascending; at least two."""
    offset_ns: Integers
    """Offset at each moment; linear in between."""
    error_ns: Floats
    """Largest error at each moment; in between, no more than at the worse of the two."""
    within_ns: tuple[int, int]
    """Stretch of time that the bounds cover."""
    drift_error: float | None
    """Largest error of the drift; None if it is not constant."""
    bounds: int
    """Number of bounds used."""

    @property
    def pieces(self) -> int:
        """Return the number of lines within the time of the bounds."""
        first, last = self.within_ns
        return max(1, int(np.count_nonzero((self.at_ns > first) & (self.at_ns < last))) + 1)

    @property
    def worst_error_ns(self) -> int:
        """Return the largest error at any moment within the time of the bounds."""
        first, last = self.within_ns
        inside = (self.at_ns >= first) & (self.at_ns <= last)
        return int(np.ceil(self.error_ns[inside].max()))

    @property
    def drift(self) -> float:
        """Return the gain of the second clock on the first one, as a share of its time."""
        first, last = self.within_ns
        gained_ns = self.added_ns([last])[0] - self.added_ns([first])[0]
        return float(gained_ns) / max(1, last - first)

    def added_ns(self, times_ns: ArrayLike) -> Integers:
        """Return the offsets at some moments by the first clock."""
        times = np.asarray(times_ns, np.int64)
        place = np.clip(np.searchsorted(self.at_ns, times, "right") - 1, 0, len(self.at_ns) - 2)
        lasts = (self.at_ns[place + 1] - self.at_ns[place]).astype(float)
        gains = (self.offset_ns[place + 1] - self.offset_ns[place]).astype(float)
        since = (times - self.at_ns[place]).astype(float)
        added: Integers = self.offset_ns[place] + np.rint(since * gains / lasts).astype(np.int64)
        return added

    def to_second(self, times_ns: ArrayLike) -> Integers:
        """Convert times of the first clock to the second one; their order stays."""
        times = np.asarray(times_ns, np.int64)
        moved: Integers = times + self.added_ns(times)
        return moved

    def range_ns(self, times_ns: ArrayLike) -> tuple[Integers, Integers]:
        """Return the least and the greatest offset, at moments within those of the knots."""
        times = np.asarray(times_ns, np.int64)
        # Convex between knots: a line between two of them lies above it.
        since = (times - self.at_ns[0]).astype(float)
        knots = (self.at_ns - self.at_ns[0]).astype(float)
        error = np.ceil(np.interp(since, knots, self.error_ns)).astype(np.int64)
        added = self.added_ns(times)
        return added - error, added + error


def between(steps: Sequence[ClockMap], other: ClockMap, *, span_ns: tuple[int, int]) -> ClockMap:
    """Map one clock to another through a third one that both are known against."""
    within = steps[0].within_ns
    knots = sorted({*within, min(span_ns[0], within[0]), max(span_ns[1], within[1])})
    from_ns = np.array(knots, np.int64)
    low = high = np.zeros(len(knots), np.int64)
    for step in steps:
        least, most = step.range_ns(from_ns)
        low, high, from_ns = low + least, high + most, step.to_second(from_ns)
    to_ns = from_ns - other.added_ns(from_ns - other.offset_ns[:1])
    least, most = other.range_ns(to_ns)
    low, high = low - most, high - least
    return ClockMap(
        np.array(knots, np.int64),
        low + (high - low) // 2,
        (high - low).astype(float) / 2 + _SLACK_NS,
        within,
        None,
        sum(step.bounds for step in steps) + other.bounds,
    )


class _Lines(NamedTuple):
    """The lines that keep some bounds: the corners of a polygon of heights and slopes."""

    since_ns: int
    height: Floats
    slope: Floats

    def range_ns(self, at_ns: int) -> tuple[float, float]:
        """Return the lowest and the highest value of the lines."""
        heights = self.height + self.slope * ((at_ns - self.since_ns) / _S)
        return float(heights.min()), float(heights.max())


def two_clocks(
    bounds: Bounds, *, span_ns: tuple[int, int] | None = None, most_drift: float = MOST_DRIFT
) -> ClockMap:
    """Find what must be added to the times of one clock to get those of another."""
    order = np.argsort(bounds.at_ns, kind="stable")
    at, low, high = bounds.at_ns[order], bounds.low_ns[order], bounds.high_ns[order]
    if not bounds.are_two_sided:
        raise UnboundedError("nothing bounds the difference of the clocks from both sides")
    bounds = Bounds(at, low - _SLACK_NS, high + _SLACK_NS, bounds.base_ns)
    if not _is_possible(bounds, most_drift):
        raise ContradictionError(_witness(bounds, most_drift))
    pieces = _pieces(bounds, most_drift)
    within = int(at[0]), int(at[-1])
    first, last = within if span_ns is None else span_ns
    knots = _knots(pieces, within, (min(first, within[0]), max(last, within[1], within[0] + 1)))
    drift_error = None
    if len(pieces) == 1:
        slope = pieces[0][1].slope
        drift_error = float(slope.max() - slope.min()) / 2 / _S
    moments, lows, highs = (np.array(each) for each in zip(*knots, strict=True))
    clock_map = ClockMap(
        moments.astype(np.int64),
        bounds.base_ns + np.rint((lows + highs) / 2).astype(np.int64),
        (highs - lows) / 2 + _SLACK_NS,
        within,
        drift_error,
        len(at),
    )
    if len(pieces) == 1:
        return clock_map
    return replace(
        clock_map,
        error_ns=np.maximum(clock_map.error_ns, _bent_by(clock_map, bounds, pieces, most_drift)),
    )


def _knots(
    pieces: Sequence[tuple[int, _Lines]], within: tuple[int, int], span: tuple[int, int]
) -> list[tuple[int, float, float]]:
    """Return moments, with the lowest and the highest difference at each.

    Between two of them it is no further from the line in between than at one of both: how high
    lines can be is convex over time, and how low they can be concave.
    """
    knots = {at: pieces[0][1].range_ns(at) for at in (span[0], within[0])}
    for (_, before), (at, behind) in pairwise(pieces):
        ranges = before.range_ns(at), behind.range_ns(at)
        # The range must hold for the lines on both sides, so the wider one counts.
        knots[at] = min(each[0] for each in ranges), max(each[1] for each in ranges)
    knots |= {at: pieces[-1][1].range_ns(at) for at in (within[1], span[1])}
    return [(at, *knots[at]) for at in sorted(knots)]


def _bent_by(
    clock_map: ClockMap,
    bounds: Bounds,
    pieces: Sequence[tuple[int, _Lines]],
    most_drift: float,
) -> Floats:
    """Return the distance of the truth from `clock_map` at each knot, as its drift varies.

    What it does in a piece is no line either. It is taken to drift no further from the mean than
    twice as far as pieces do, or as far as it takes to keep all bounds. If a piece does not
    measure a drift, it may be any that is possible.
    """
    x = (bounds.at_ns - bounds.at_ns[0]) / _S
    mean = clock_map.drift * _S
    slopes = [float(lines.slope.min() + lines.slope.max()) / 2 for _, lines in pieces]
    starts = [start for start, _ in pieces]
    is_measured = all(np.abs(lines.slope).max() < most_drift * _S for _, lines in pieces) and bool(
        (np.diff([*starts, bounds.at_ns[-1]]) >= _LEAST_MEASURED_NS).all()
    )
    if is_measured:
        wanders = 2 * max(abs(slope - mean) for slope in slopes) + 1.0
    else:
        wanders = most_drift * _S + abs(mean)
    low, high = bounds.low_ns - mean * x, bounds.high_ns - mean * x
    while True:
        rise = wanders * x
        least = np.maximum(
            np.maximum.accumulate(low + rise) - rise,
            np.maximum.accumulate((low - rise)[::-1])[::-1] + rise,
        )
        most = np.minimum(
            np.minimum.accumulate(high - rise) + rise,
            np.minimum.accumulate((high + rise)[::-1])[::-1] - rise,
        )
        if (least <= most).all():
            break
        wanders *= 2
    added = (clock_map.added_ns(bounds.at_ns) - bounds.base_ns).astype(float) - mean * x
    error = np.maximum(most - added, added - least)
    piece = np.clip(
        np.searchsorted(clock_map.at_ns, bounds.at_ns, "right") - 1, 0, len(clock_map.at_ns) - 2
    )
    worst = np.zeros(len(clock_map.at_ns) - 1)
    gaps = np.diff(x, append=x[-1])
    if is_measured:
        np.maximum.at(worst, piece, error + 2 * wanders * gaps)
    else:
        np.maximum.at(worst, piece, np.maximum(error, np.append(error[1:], 0)) + wanders * gaps / 2)
    beside: Floats = np.maximum(np.append(worst, 0.0), np.insert(worst, 0, 0.0))
    return beside


def _pieces(bounds: Bounds, most_drift: float) -> list[tuple[int, _Lines]]:
    """Find lines for stretches of time, each with its beginning, as some clock keeps the bounds."""
    first, last = int(bounds.at_ns[0]), int(bounds.at_ns[-1])
    lines = _lines(bounds, most_drift)
    if lines is not None:
        return [(first, lines)]
    if first == last:
        return [(first, _lines_but_for_rounding(bounds, most_drift))]
    middle = int(np.searchsorted(bounds.at_ns, (first + last) // 2, "right"))
    pieces = []
    for half in (range(middle), range(middle, len(bounds.at_ns))):
        part = bounds.at(half)
        if part.are_two_sided:
            pieces += _pieces(part, most_drift)
        else:
            lines = _lines_but_for_rounding(_completed(bounds, half), most_drift)
            pieces.append((int(part.at_ns[0]), lines))
    return pieces


def _completed(bounds: Bounds, half: range) -> Bounds:
    """Add the nearest bound of each side that a half lacks to those of the half.

    Then all bounds of one side are before those of the other, and the steepest line keeps them.
    """
    chosen = [*half]
    for side in (bounds.low_ns, bounds.high_ns):
        places = np.flatnonzero(np.isfinite(side))
        after = int(np.searchsorted(places, half.start))
        if after == len(places) or places[after] >= half.stop:
            chosen.append(int(places[after - 1 if half.start else after]))
    return bounds.at(sorted(chosen))


def _lines_but_for_rounding(bounds: Bounds, most_drift: float) -> _Lines:
    """Find the lines that keep bounds which some line is known to keep."""
    lines = _lines(bounds, most_drift)
    while lines is None:
        bounds = bounds.loosened(_SLACK_NS)
        lines = _lines(bounds, most_drift)
    return lines


def _is_possible(bounds: Bounds, most_drift: float) -> bool:
    """Return True if some clock that drifts no faster, straight or not, keeps all bounds."""
    gained = (bounds.at_ns - bounds.at_ns[0]) * most_drift
    rising = np.maximum.accumulate(bounds.low_ns + gained) <= bounds.high_ns + gained
    falling = bounds.low_ns - gained <= np.minimum.accumulate(bounds.high_ns - gained)
    return bool(rising.all() and falling.all())


def _lines(bounds: Bounds, most_drift: float) -> _Lines | None:
    """Find the lines that keep all bounds; return None if there are none."""
    since_ns = (int(bounds.at_ns[0]) + int(bounds.at_ns[-1])) // 2
    x = (bounds.at_ns - since_ns) / _S
    below, above = np.isfinite(bounds.low_ns), np.isfinite(bounds.high_ns)
    floor = _hull(x[below], bounds.low_ns[below])
    ceiling = [(at, -height) for at, height in _hull(x[above], -bounds.high_ns[above])]
    steepest = most_drift * _S
    reach = steepest * float(np.abs(x).max()) + 1
    lowest = min(bounds.high_ns[above].min(), bounds.low_ns[below].min()) - reach
    highest = max(bounds.high_ns[above].max(), bounds.low_ns[below].max()) + reach
    corners = [
        (lowest, -steepest),
        (highest, -steepest),
        (highest, steepest),
        (lowest, steepest),
    ]
    for at, height in floor:
        corners = _clipped(corners, 1.0, at, height)
    for at, height in ceiling:
        corners = _clipped(corners, -1.0, -at, -height)
    if not corners:
        return None
    heights, slopes = (np.array(each) for each in zip(*corners, strict=True))
    return _Lines(since_ns, heights, slopes)


def _hull(x: Floats, y: Floats) -> list[tuple[float, float]]:
    """Return the upper convex hull of the points."""
    hull: list[tuple[float, float]] = []
    for point in zip(x.tolist(), y.tolist(), strict=True):
        if hull and hull[-1][0] == point[0]:
            if hull[-1][1] >= point[1]:
                continue
            hull.pop()
        while len(hull) > 1 and not _turns_down(hull[-2], hull[-1], point):
            hull.pop()
        hull.append(point)
    return hull


def _turns_down(
    one: tuple[float, float], two: tuple[float, float], three: tuple[float, float]
) -> bool:
    rise = (two[1] - one[1]) * (three[0] - two[0])
    return (three[1] - two[1]) * (two[0] - one[0]) < rise


def _clipped(
    corners: list[tuple[float, float]], by_height: float, by_slope: float, least: float
) -> list[tuple[float, float]]:
    """Clip a polygon to ``by_height * height + by_slope * slope >= least``."""
    beyond = [by_height * height + by_slope * slope - least for height, slope in corners]
    left: list[tuple[float, float]] = []
    for at, corner in enumerate(corners):
        if beyond[at] >= 0:
            left.append(corner)
        behind = (at + 1) % len(corners)
        if (beyond[at] < 0) != (beyond[behind] < 0):
            share = beyond[at] / (beyond[at] - beyond[behind])
            following = corners[behind]
            left.append(
                (
                    corner[0] + share * (following[0] - corner[0]),
                    corner[1] + share * (following[1] - corner[1]),
                )
            )
    return left


def _witness(bounds: Bounds, most_drift: float) -> str:
    """Say which two bounds contradict each other the most."""
    below = np.flatnonzero(np.isfinite(bounds.low_ns))
    above = np.flatnonzero(np.isfinite(bounds.high_ns))
    below = below[np.argsort(bounds.low_ns[below])[-_WITNESSES:]]
    above = above[np.argsort(bounds.high_ns[above])[:_WITNESSES]]
    at_low, at_high = bounds.at_ns[below], bounds.at_ns[above]
    low, high = bounds.low_ns[below], bounds.high_ns[above]
    apart = np.abs(at_low[:, None] - at_high[None, :]) * most_drift
    lacking = low[:, None] - high[None, :] - apart
    row, column = np.unravel_index(int(lacking.argmax()), lacking.shape)
    base = bounds.base_ns
    return _contradiction(
        int(at_low[row]), base + float(low[row]), int(at_high[column]), base + float(high[column])
    )


def _contradiction(at_low: int, low: float, at_high: int, high: float) -> str:
    return (
        f"at {at_low / _S:.6f} s the difference is at least {low:,.0f} ns,"
        f" at {at_high / _S:.6f} s it is at most {high:,.0f} ns"
    )
