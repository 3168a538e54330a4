"""``tailscope explain`` of captures without anything that was recorded beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tailscope.cli.terminal import say_named
from tailscope.extra.patterns.models.answer import Finding, Refusal
from tailscope.extra.patterns.models.detect import detect, explained
from tailscope.extra.patterns.models.holds import find_holds, long_gaps
from tailscope.extra.patterns.models.queue import find_pace, paced_ns
from tailscope.extra.patterns.models.system import find_system, undelayed_ns
from tailscope.extra.patterns.records import (
    NamedPattern,
    PatternsRecord,
    RefusedPattern,
    StallDistances,
    UnnamedStalls,
)
from tailscope.extra.patterns.source import read_directions, read_series
from tailscope.extra.patterns.words import evidence_text, opening_text, stalls_text, unknown_text
from tailscope.noise.intervals import covered

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tailscope.cli.view import View
    from tailscope.extra.patterns.models.holds import Holds
    from tailscope.extra.patterns.models.series import Series
    from tailscope.extra.patterns.source import Searched
    from tailscope.noise.attribution import Blocked
    from tailscope.store.records.explanation import Explanation
    from tailscope.store.records.run import RunInfo

_QUANTILES = (0.999, 0.99, 0.9, 0.5)
_FEWEST_SLOW = 10
_WIDTH = 16
_KNOWN = 0.5
"""A stall has a cause if so much of it has one."""
_OPEN = 0.2
"""Share of the tail's delay that must be unexplained for stalls without a cause to be told."""


def explain_packets(
    run: Path, info: RunInfo, quantile: float | None
) -> tuple[dict[str, PatternsRecord], Callable[[View], None]]:
    """Say what a run's packets alone tell; returns the records by name, and what prints them.

    Of a path it is what those of each direction tell.
    """
    ways = {way: patterns_of(searched, quantile) for way, searched in read_directions(run).items()}
    found = ways or {"": patterns_of(read_series(run, info), quantile)}

    def show(view: View) -> None:
        for way, each in found.items():
            _show(each, view, way)
        if not ways:
            view.say("")
            view.say(unknown_text())

    return {f"patterns_{way}".rstrip("_"): each for way, each in found.items()}, show


def patterns_of(searched: Searched, quantile: float | None) -> PatternsRecord:
    """Search the packets of a pair for patterns."""
    series = searched.series
    if not len(series.arrival_ns):
        return PatternsRecord(
            packets=searched.packets,
            searched=0,
            first_seq=0,
            last_seq=0,
            quantile=None,
            threshold_ns=None,
            slow=0,
            undelayed_ns=None,
            fastest_ns=None,
            named=(),
            refused=(),
        )
    start, threshold_ns = _slow_from(series, quantile)
    slow = series.latency_ns >= threshold_ns
    detected = detect(series)
    answers = (*detected.answers, *searched.others)
    holds = find_holds(series, detected.system, detected.stalls, slow)
    return PatternsRecord(
        packets=searched.packets,
        searched=len(series.arrival_ns),
        first_seq=searched.first_seq,
        last_seq=searched.last_seq,
        quantile=start,
        threshold_ns=threshold_ns,
        slow=int(np.count_nonzero(slow)),
        undelayed_ns=detected.undelayed_ns,
        fastest_ns=int(series.latency_ns.min()),
        named=tuple(
            NamedPattern(
                pattern=answer.pattern,
                slow_share=None if answer.delayed is None else float(answer.delayed[slow].mean()),
                figures=dict(answer.figures),
            )
            for answer in answers
            if isinstance(answer, Finding)
        ),
        refused=tuple(
            RefusedPattern(pattern=answer.pattern, reason=answer.reason)
            for answer in answers
            if isinstance(answer, Refusal)
        ),
        unnamed_stalls=None if holds is None else _record(holds),
    )


def _record(holds: Holds) -> UnnamedStalls:
    apart = holds.distances
    figures = {
        **holds._asdict(),
        "distances": None if apart is None else StallDistances(**apart._asdict()),
    }
    return UnnamedStalls(**figures)


def stalls_beyond(series: Series, duration_ns: int) -> UnnamedStalls | None:
    """Sum up the stalls that make the tail of a series, of those that last for longer.

    Those that a pattern explains, such as batches of the device, are left out.
    """
    known = explained(series)
    stalls = known.stalls & (known.system.longest_gap_ns > duration_ns)
    _, threshold_ns = _slow_from(series, None)
    holds = find_holds(series, known.system, stalls, series.latency_ns >= threshold_ns)
    return None if holds is None else _record(holds)


def unnamed_stalls(run: Path, info: RunInfo, tail: Explanation, blocked: Blocked) -> str | None:
    """Say how often and for how long a device stalled without an event; None if it hardly did."""
    if tail.parts_ns["unexplained"] < _OPEN * tail.excess_ns:
        return None
    searched = read_series(run, info)
    series = searched.series
    if not len(series.arrival_ns):
        return None
    base_ns = undelayed_ns(series)
    system = find_system(series, np.broadcast_to(base_ns, len(series.latency_ns)))
    start_ns, end_ns = system.start_ns + searched.start_ns, system.end_ns + searched.start_ns
    known_ns = covered(start_ns, end_ns, blocked.start_ns, blocked.end_ns)
    stalls = long_gaps(system, paced_ns(series, find_pace(series, system)))
    stalls &= _KNOWN * system.longest_gap_ns > known_ns
    holds = find_holds(series, system, stalls, series.latency_ns > tail.threshold_ns)
    return None if holds is None else stalls_text(holds)


def _slow_from(series: Series, quantile: float | None) -> tuple[float, int]:
    """Return the quantile from which packets are slow, and the latency there."""
    count = len(series.latency_ns)
    enough = (each for each in _QUANTILES if count * (1 - each) >= _FEWEST_SLOW)
    start = next(enough, _QUANTILES[-1]) if quantile is None else quantile
    at = min(int(np.ceil(start * count)), count - 1)
    return start, int(np.partition(series.latency_ns, at)[at])


def _show(found: PatternsRecord, view: View, way: str) -> None:
    """Print what is named, with its evidence, then what is not, and why."""
    if way:
        view.say("")
    view.say(f"{way}: {opening_text(found)}" if way else opening_text(found))
    for named in found.named:
        say_named(named.pattern, view.text(evidence_text(named)), width=_WIDTH)
    if found.refused:
        if found.named:
            view.say("")
        view.say("Not named:" if found.named else "No pattern is clear:")
        for refused in found.refused:
            say_named(refused.pattern, view.text(refused.reason), width=_WIDTH)
    if found.unnamed_stalls is not None:
        view.say("")
        view.say(stalls_text(found.unnamed_stalls))
