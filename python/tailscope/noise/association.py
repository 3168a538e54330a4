"""Association of polled counters with slow packets, by windows with and without slow packets.

Whoever polls knows that something happened between two readings, and no more. So a counter can be
*associated* with slow packets, and never be called their cause.

Windows with slow packets that touch each other make an episode. If a counter had nothing to do
with slow packets, every arrangement of the episodes among the windows would be as likely as the one
observed, whatever the counter did; the p value is the share of arrangements in which its rate is at
least as high. It is exact if all of them are listed. Y. Benjamini and Y. Hochberg, *Controlling the
false discovery rate*, J. R. Statist. Soc. B 57 (1995), correct for the number of counters.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.models.special import betaincinv
from tailscope.noise.arrangements import arranged, arrangement_count, runs, sampled, starts_of
from tailscope.noise.clocks import align
from tailscope.store.records.explanation import (
    Associated,
    AssociatedCounter,
    PolledFile,
    RegularCounter,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tailscope.noise.clocks import Offsets
    from tailscope.noise.counters import Readings
    from tailscope.store.packets import Latencies, Packets
    from tailscope.store.records.explanation import Alignment

    Integers = NDArray[np.int64]
    Values = NDArray[np.float64]
    Marks = NDArray[np.bool_]

LEVEL = 0.05
"""Probability of naming any counter if none is related to slow packets."""

_TEST = (
    "permutation of the episodes of slow windows, one-sided;"
    " Benjamini-Hochberg over all counters tested"
)
_SUMS_FIRST = ", of CPUs that are named over their sums first"
_QUANTILES = (0.9999, 0.999, 0.99)
_ENOUGH = 10
_FEWEST_EPISODES = 2
_SEARCH_ARRANGEMENTS = 2_000
_STEPS_A_PERIOD = 8
_MOST_SEARCHED = 500_000
_REGULAR = 0.1
"""Variance of the counts in windows divided by their mean; random events have 1."""
_CLOSE = 1e-9
SUM = "all counters"
"""Name of the sum of a CPU's counters."""


class Slow(NamedTuple):
    """The slow packets."""

    quantile: float
    """Quantile above which packets are slow."""
    threshold_ns: int
    start_ns: Integers
    end_ns: Integers
    """Interval in which each packet was in the device, in order of its start."""
    span_ns: tuple[int, int]
    """Arrival of the first packet and departure of the last one."""


def slow_packets(packets: Packets, latencies: Latencies, quantile: float | None) -> Slow:
    """Choose the slow packets."""
    for at in _QUANTILES if quantile is None else (quantile,):
        threshold_ns = latencies.distribution.at(at)
        if latencies.distribution.above(threshold_ns) >= _ENOUGH:
            break
    start, end = packets.beyond(threshold_ns)
    return Slow(at, threshold_ns, start, end, (latencies.first_ns, latencies.last_ns))


def associate(
    files: Sequence[Readings],
    slow: Slow,
    offsets: Offsets,
    cpus: Mapping[str, Sequence[int]] | None = None,
) -> Associated:
    """Test every counter of some files, or those of the device's CPUs by the name of a file.

    Few counters are tested with more power: of CPUs that are named, the sum of their counters is
    judged first, and single counters only where that has been found.
    """
    of_device = cpus or {}
    tested = [
        _tested(
            file,
            align(file.name, file.span_ns, slow.span_ns, offsets),
            slow,
            of_device.get(file.name),
        )
        for file in files
    ]
    rows = [row for result in tested for row in result.counters]
    singles = [row for row in rows if row.counter != SUM and row.source in of_device]
    first = _corrected([row for row in rows if row not in singles])
    found = {(row.source, row.cpu) for row in first if row.counter == SUM and row.is_associated}
    second = _corrected([row for row in singles if (row.source, row.cpu) in found])
    counters = [row for row in (*first, *second) if row.counter != SUM]
    return Associated(
        quantile=slow.quantile,
        threshold_ns=slow.threshold_ns,
        packets=len(slow.start_ns),
        level=LEVEL,
        test=_TEST + (_SUMS_FIRST if of_device else ""),
        tested=len(first) + len(second),
        files=tuple(result.file for result in tested),
        counters=tuple(sorted(counters, key=_by_p_value)),
        sums=tuple(row for row in first if row.counter == SUM),
        regular=tuple(row for result in tested for row in result.regular),
    )


class _Tested(NamedTuple):
    file: PolledFile
    counters: list[AssociatedCounter]
    regular: list[RegularCounter]


@dataclass(frozen=True)
class _Windows:
    """The polling windows of a file on the captures' clock, with their counts."""

    start_ns: Integers
    end_ns: Integers
    counts: Integers
    names: list[tuple[str, int]]
    """Interrupt and CPU of each counter."""

    @classmethod
    def of(cls, file: Readings, offset_ns: int) -> _Windows:
        times = file.times_ns + offset_ns
        return cls(times[:-1], times[1:], file.increments(), file.names)

    def within(self, span_ns: tuple[int, int], error_ns: int) -> _Windows:
        """Return the windows that lie within the captures whatever the error of the clocks."""
        is_within = (self.start_ns - error_ns >= span_ns[0]) & (
            self.end_ns + error_ns <= span_ns[1]
        )
        return _Windows(
            self.start_ns[is_within], self.end_ns[is_within], self.counts[is_within], self.names
        )

    def only(self, which: Marks) -> _Windows:
        """Return the windows with some of the counters."""
        names = [name for name, is_chosen in zip(self.names, which, strict=True) if is_chosen]
        return _Windows(self.start_ns, self.end_ns, self.counts[:, which], names)

    @property
    def lasted_s(self) -> Values:
        return (self.end_ns - self.start_ns) / 1e9

    def touched(self, start_ns: Integers, end_ns: Integers) -> Marks:
        """Mark the windows that some interval touches."""
        first = np.searchsorted(self.end_ns, start_ns, "right")
        last = np.searchsorted(self.start_ns, end_ns, "right")
        change = np.zeros(len(self.start_ns) + 1, np.int64)
        is_met = last > first
        np.add.at(change, first[is_met], 1)
        np.add.at(change, last[is_met], -1)
        marks: Marks = np.cumsum(change)[:-1] > 0
        return marks


def _tested(
    file: Readings, alignment: Alignment, slow: Slow, cpus: Sequence[int] | None
) -> _Tested:
    error_ns = alignment.error_ns or 0
    if alignment.offset_ns is None or 2 * error_ns > file.period_ns:
        return _search(file, alignment, slow, cpus)
    windows = _Windows.of(file, alignment.offset_ns).within(slow.span_ns, error_ns)
    start, end = slow.start_ns - error_ns, slow.end_ns + error_ns
    marks = windows.touched(start, end)
    inside = np.zeros(len(start), bool)
    if len(windows.start_ns):
        inside = (end >= windows.start_ns[0]) & (start <= windows.end_ns[-1])
    lengths = runs(marks)
    why_not = _too_little(len(slow.start_ns), marks, lengths)
    windows, regular = _chosen(windows, file.name, cpus)
    others = np.zeros((0, len(marks)), bool)
    rows: list[AssociatedCounter] = []
    if why_not is None:
        others = arranged(len(marks), lengths)
        p_values = _p_values(
            windows,
            marks,
            others,
            is_whole=arrangement_count(len(marks), lengths) == len(others),
        )
        rows = [_row(file.name, windows, at, marks, float(p)) for at, p in enumerate(p_values)]
    polled = PolledFile(
        name=file.name,
        file=file.file,
        alignment=alignment,
        period_ns=file.period_ns,
        windows=len(marks),
        slow_windows=int(marks.sum()),
        episodes=len(lengths),
        outside_packets=int(np.count_nonzero(~inside)),
        incomplete_counters=file.incomplete,
        arrangements=len(others),
        not_tested_because=why_not,
    )
    return _Tested(polled, rows, regular)


def _too_little(packets: int, marks: Marks, lengths: list[int]) -> str | None:
    """Return the reason why these windows cannot show anything; None if they can."""
    slow, n = int(marks.sum()), len(marks)
    if packets < _ENOUGH:
        return f"{packets} packets are slow, expected at least {_ENOUGH}: choose a lower --quantile"
    if len(lengths) < _FEWEST_EPISODES:
        return (
            f"got {len(lengths)} episodes of slow packets within {n} polling windows, expected at"
            f" least {_FEWEST_EPISODES}"
        )
    if 2 * slow > n:
        return (
            f"{slow} of {n} polling windows may hold slow packets, expected at most half of them:"
            " choose a higher --quantile, or poll more often"
        )
    if arrangement_count(n, lengths) < 1 / LEVEL:
        return f"{n} polling windows are too few for a test at {LEVEL:.0%}"
    return None


def _chosen(
    windows: _Windows, source: str, cpus: Sequence[int] | None
) -> tuple[_Windows, list[RegularCounter]]:
    """Choose the counters to test; of CPUs that are named, their sums as well."""
    if cpus is None:
        return _without_regular(windows, source)
    is_theirs = np.array([cpu in cpus for _, cpu in windows.names], bool)
    windows, regular = _without_regular(windows.only(is_theirs), source)
    named = sorted({cpu for _, cpu in windows.names})
    is_on = [np.array([cpu == each for _, cpu in windows.names], bool) for each in named]
    sums = [windows.counts[:, which].sum(axis=1) for which in is_on]
    counts = np.column_stack([windows.counts, *sums])
    names = [*windows.names, *((SUM, cpu) for cpu in named)]
    return _Windows(windows.start_ns, windows.end_ns, counts, names), regular


def _without_regular(windows: _Windows, source: str) -> tuple[_Windows, list[RegularCounter]]:
    """Set aside counters that moved in one window at most, or as often in every window."""
    counts = windows.counts
    if not len(counts):
        return windows.only(np.zeros(len(windows.names), bool)), []
    mean = counts.mean(axis=0)
    regular = (counts > 0).all(axis=0) & (counts.var(axis=0) < _REGULAR * mean)
    rates = counts.sum(axis=0) / windows.lasted_s.sum()
    regular_counters = [
        RegularCounter(source=source, counter=name, cpu=cpu, rate_hz=float(rates[at]))
        for at, (name, cpu) in enumerate(windows.names)
        if regular[at]
    ]
    moved = np.count_nonzero(counts, axis=0) >= _FEWEST_EPISODES
    return windows.only(moved & ~regular), regular_counters


def _p_values(windows: _Windows, marks: Marks, others: Marks, *, is_whole: bool) -> Values:
    """Return for each counter the share of arrangements with a rate at least as high."""
    observed = _slow_rates(windows, marks[None, :])[0]
    as_high = (_slow_rates(windows, others) >= observed * (1 - _CLOSE)).sum(axis=0)
    if is_whole:
        return np.asarray(as_high / len(others))
    return np.asarray((as_high + 1) / (len(others) + 1))


def _slow_rates(windows: _Windows, marks: Marks) -> Values:
    weights = marks.astype(float)
    rates: Values = (weights @ windows.counts) / (weights @ windows.lasted_s)[:, None]
    return rates


def _search(
    file: Readings, alignment: Alignment, slow: Slow, cpus: Sequence[int] | None
) -> _Tested:
    """Test counters whose clock is tied to that of the captures loosely, or not at all.

    All offsets are tried within the error; if nothing is known, all at which the counters cover the
    captures. Steps are an eighth of the period. A counter's score is the likelihood of its
    standardised rates, over all of them: what suits many offsets is likelier than what suits one.
    The search is repeated for every arrangement of the episodes, so its luck is part of the p
    value.
    """
    grid = _Grid.of(file, slow, alignment)
    lengths = runs(grid.bins())
    why_not = grid.why_not() or _too_little(len(slow.start_ns), grid.bins(), lengths)
    moving, regular = _chosen(_Windows.of(file, 0), file.name, cpus)
    rows: list[AssociatedCounter] = []
    others = np.zeros((0, len(grid.steps)), bool)
    if why_not is None:
        others = grid.arrangements()
        rows = _searched(moving, grid, others, slow, file.name)
    polled = PolledFile(
        name=file.name,
        file=file.file,
        alignment=alignment,
        period_ns=file.period_ns,
        windows=len(grid.bins()),
        slow_windows=int(grid.bins().sum()),
        episodes=len(lengths),
        outside_packets=0,
        incomplete_counters=file.incomplete,
        arrangements=len(others),
        not_tested_because=why_not,
    )
    return _Tested(polled, rows, regular)


@dataclass(frozen=True)
class _Grid:
    """The time of the captures in steps, eight in each polling window."""

    from_ns: int
    step_ns: int
    steps: Marks
    """Steps that hold slow packets."""
    offsets_ns: Integers
    """Offsets to try for the counters' times."""

    @classmethod
    def of(cls, file: Readings, slow: Slow, alignment: Alignment) -> _Grid:
        begin, end = slow.span_ns
        step_ns = max(1, file.period_ns // _STEPS_A_PERIOD)
        n = (end - begin) // (step_ns * _STEPS_A_PERIOD) * _STEPS_A_PERIOD
        change = np.zeros(n + 1, np.int64)
        first = np.clip((slow.start_ns - begin) // step_ns, 0, n)
        np.add.at(change, first, 1)
        np.add.at(change, np.clip((slow.end_ns - begin) // step_ns + 1, 0, n), -1)
        least, most = end - file.span_ns[1], begin - file.span_ns[0]
        if alignment.offset_ns is not None:
            error_ns = alignment.error_ns or 0
            least, most = alignment.offset_ns - error_ns, alignment.offset_ns + error_ns
        steps: Marks = np.asarray(np.cumsum(change)[:-1] > 0, bool)
        return cls(begin, step_ns, steps, np.arange(least, most + 1, step_ns))

    @property
    def period_ns(self) -> int:
        """Return the length of a polling window."""
        return self.step_ns * _STEPS_A_PERIOD

    def bins(self) -> Marks:
        """Return stretches as long as a polling window that hold slow packets."""
        return np.asarray(self.steps.reshape(-1, _STEPS_A_PERIOD).any(axis=1), bool)

    def why_not(self) -> str | None:
        """Return the reason why there is nothing to search; None if there is something."""
        if not len(self.offsets_ns):
            return "its offset is not known, and it is shorter than the captures: pass --offset"
        if len(self.offsets_ns) * len(self.steps) > _MOST_SEARCHED:
            return "too many offsets are possible: pass --offset, or a smaller --offset-error"
        return None

    def arrangements(self) -> Marks:
        """Return arrangements of the episodes, the observed one first; steps within them stay.

        They move by steps, not by windows, since how well the time between two episodes suits the
        counters is most of what is known of them.
        """
        whole = self._episodes()
        lengths = runs(whole)
        first = np.flatnonzero(np.diff(np.concatenate([[0], whole.astype(np.int8)])) > 0)
        gaps, order = sampled(len(whole), lengths, _SEARCH_ARRANGEMENTS)
        to = starts_of(gaps, np.array(lengths)[order])
        arrangements = np.zeros((_SEARCH_ARRANGEMENTS + 1, len(whole)), bool)
        arrangements[0] = self.steps
        rows = np.arange(1, len(arrangements))
        for place in range(len(lengths)):
            for at in range(max(lengths)):
                moved = at < np.array(lengths)[order[:, place]]
                source = first[order[:, place]] + at
                arrangements[rows[moved], (to[:, place] + at)[moved]] = self.steps[source[moved]]
        return arrangements

    def _episodes(self) -> Marks:
        """Return the steps of whole episodes: slow steps less than a window apart are of one."""
        slow = np.flatnonzero(self.steps)
        whole = self.steps.copy()
        for before, after in pairwise(slow.tolist()):
            if after - before < _STEPS_A_PERIOD:
                whole[before:after] = True
        return whole


def _searched(
    windows: _Windows, grid: _Grid, others: Marks, slow: Slow, source: str
) -> list[AssociatedCounter]:
    likely = np.full((len(others), len(windows.names)), -np.inf)
    best = np.full(len(windows.names), -np.inf)
    where = np.zeros(len(windows.names), np.int64)
    for offset_ns in grid.offsets_ns.tolist():
        scores = _scores(windows, grid, others, offset_ns)
        where[scores[0] > best] = offset_ns
        np.maximum(best, scores[0], out=best)
        np.logaddexp(likely, np.maximum(scores, 0) ** 2 / 2, out=likely)
    as_high = (likely[1:] >= likely[0] - _CLOSE).sum(axis=0)
    p_values = (as_high + 1) / len(others)
    rows = []
    for at, offset_ns in enumerate(where.tolist()):
        if np.isfinite(best[at]):
            moved_windows = _moved(windows, offset_ns).within(slow.span_ns, -grid.period_ns)
            marks = moved_windows.touched(slow.start_ns, slow.end_ns)
            rows.append(_row(source, moved_windows, at, marks, float(p_values[at]), offset_ns))
    return rows


def _moved(windows: _Windows, offset_ns: int) -> _Windows:
    return _Windows(
        windows.start_ns + offset_ns, windows.end_ns + offset_ns, windows.counts, windows.names
    )


def _scores(windows: _Windows, grid: _Grid, others: Marks, offset_ns: int) -> Values:
    """Return for each counter how far slow windows exceed chance, in standard deviations."""
    to_ns = grid.from_ns + len(grid.steps) * grid.step_ns
    # A window that begins before the captures counts, too: what is slow at their ends lies in it.
    moved_windows = _moved(windows, offset_ns).within((grid.from_ns, to_ns), -grid.period_ns)
    n = len(moved_windows.start_ns)
    middle = grid.from_ns + np.arange(len(grid.steps)) * grid.step_ns + grid.step_ns // 2
    window = np.searchsorted(moved_windows.end_ns, middle, "right")
    inside = (window < n) & (middle >= (moved_windows.start_ns[0] if n else to_ns))
    member = np.zeros((len(grid.steps), n), np.float32)
    member[np.flatnonzero(inside), window[inside]] = 1
    marks = others.astype(np.float32) @ member > 0
    rates = moved_windows.counts / moved_windows.lasted_s[:, None]
    spread = rates.std(axis=0)
    count = marks.sum(axis=1)[:, None]
    variance = count * (n - count) / max(1, n - 1)
    above = marks.astype(float) @ (rates - rates.mean(axis=0))
    with np.errstate(divide="ignore", invalid="ignore"):
        scores: Values = above / (spread * np.sqrt(variance))
    return np.asarray(np.where((variance > 0) & (spread > 0), scores, -np.inf))


def _row(
    source: str,
    windows: _Windows,
    at: int,
    marks: Marks,
    p_value: float,
    best_offset_ns: int | None = None,
) -> AssociatedCounter:
    counts, lasted_s = windows.counts[:, at], windows.lasted_s
    slow, rest = int(counts[marks].sum()), int(counts[~marks].sum())
    slow_s, rest_s = float(lasted_s[marks].sum()), float(lasted_s[~marks].sum())
    low, high = (None, None)
    if best_offset_ns is None:
        low, high = _ratio_interval(slow, rest, slow_s, rest_s, _dispersion(counts))
    name, cpu = windows.names[at]
    return AssociatedCounter(
        source=source,
        counter=name,
        cpu=cpu,
        slow_count=slow,
        rest_count=rest,
        slow_rate_hz=slow / slow_s,
        rest_rate_hz=rest / rest_s,
        ratio=(slow / slow_s) / (rest / rest_s) if rest else None,
        ratio_ci_low=low,
        ratio_ci_high=high,
        slow_windows_moved=int(np.count_nonzero(counts[marks])),
        rest_windows_moved=int(np.count_nonzero(counts[~marks])),
        p_value=p_value,
        p_adjusted=1.0,
        is_associated=False,
        best_offset_ns=best_offset_ns,
    )


def _dispersion(counts: Integers) -> float:
    """Return the number of increments that count as one independent event; at least 1."""
    return max(1.0, float(counts.var(ddof=1) / counts.mean()))


def _ratio_interval(
    slow: int, rest: int, slow_s: float, rest_s: float, bunch: float
) -> tuple[float, float | None]:
    """Return the 95 % interval of a ratio of two rates, given the total (Clopper and Pearson).

    Increments come in bunches, so counts are divided by their dispersion.
    """
    half = LEVEL / 2
    some, others = slow / bunch, rest / bunch
    low = betaincinv(some, others + 1, half) if slow else 0.0
    high = betaincinv(some + 1, others, 1 - half) if rest else 1.0
    scale = rest_s / slow_s
    return low / (1 - low) * scale, None if high >= 1 else high / (1 - high) * scale


def _corrected(rows: list[AssociatedCounter]) -> list[AssociatedCounter]:
    """Correct for the number of counters; smallest p value first."""
    from msgspec.structs import replace

    if not rows:
        return []
    adjusted = _adjusted(np.array([row.p_value for row in rows]))
    corrected = [
        replace(row, p_adjusted=p, is_associated=p <= LEVEL)
        for row, p in zip(rows, adjusted, strict=True)
    ]
    return sorted(corrected, key=_by_p_value)


def _by_p_value(row: AssociatedCounter) -> tuple[float, str, str, int]:
    return row.p_value, row.source, row.counter, row.cpu


def _adjusted(p_values: NDArray[np.float64]) -> list[float]:
    """Adjust p values for their number.

    Source: Y. Benjamini, Y. Hochberg, *Journal of the Royal Statistical Society* B 57, 1995.
    """
    largest_first = np.argsort(p_values)[::-1]
    count = len(p_values)
    scaled = p_values[largest_first] * (count / np.arange(count, 0, -1))
    adjusted = np.empty(count)
    adjusted[largest_first] = np.minimum(np.minimum.accumulate(scaled), 1)
    return adjusted.tolist()
