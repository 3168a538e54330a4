"""Recordings of the machines of a laboratory, converted to the clock of the captures."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.engine.columns import Texts, joined, values
from tailscope.extra.laboratory.models.two_clocks import (
    Bounds,
    ClockMap,
    ContradictionError,
    UnboundedError,
    between,
    two_clocks,
)
from tailscope.store.parquet import TableFile
from tailscope.store.records.clocks import ClockMapping, MachineClock
from tailscope.store.tables import NOISE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tailscope.engine.columns import Column
    from tailscope.extra.laboratory.agents import Answers
    from tailscope.extra.laboratory.sightings import Sightings
    from tailscope.store.records.clocks import ClockReport, MappedBy, TimesBy
    from tailscope.store.run import NewColumns

    Integers = NDArray[np.int64]

OWN_CLOCK = "own clock"
"""Source of rows whose times could not be converted from the device's own clock."""

_CARD_STEP_NS, _COARSEST_STEP_NS = 16, 1_000
"""Steps of timestamps: cards count in up to 12.5 ns, captures have microseconds at least."""
_AROUND_NS = 600_000_000_000


class Captured(NamedTuple):
    """Numbers and times of the packets in the captures before and behind the device."""

    pre: tuple[Integers, Integers]
    post: tuple[Integers, Integers]


@dataclass(frozen=True)
class Machine:
    """The evidence about the clock of a machine."""

    role: str
    times_by: TimesBy
    """Clock of the machine's times."""
    sightings: Sightings
    """Packets that the machine saw, by that clock."""
    pairs: Bounds | None
    """Bounds of the machine's Unix time minus that clock; None if the clock is Unix time."""
    answers: Answers
    """Answers to time queries, by the machine's Unix time."""
    was_set_by_ns: int
    """Step by which the machine's Unix time was set meanwhile, in nanoseconds."""
    reports: tuple[ClockReport, ...]


class MappedClock(NamedTuple):
    """The mapping of a machine's clock to that of the captures."""

    record: MachineClock
    """Record of the mapping for ``run.json``."""
    to_captures: ClockMap | None
    """Mapping to the clock of the captures; None if it is unknown."""
    to_unix: ClockMap | None = None
    """Mapping to the machine's own Unix time; None if its clock is that."""

    def moved(self, times_ns: Integers) -> Integers:
        """Convert times to the clock of the captures; without a mapping they stay unchanged."""
        return times_ns if self.to_captures is None else self.to_captures.to_second(times_ns)

    def moved_unix(self, times_ns: Integers) -> Integers:
        """Convert the machine's own Unix times to the clock of the captures."""
        if self.to_unix is None:
            return self.moved(times_ns)
        return self.moved(times_ns - self.to_unix.added_ns(times_ns))


def map_clock(
    machine: Machine, captured: Captured, timestamper: Answers | None, span_ns: tuple[int, int]
) -> MappedClock:
    """Map the clock of a machine to that of the captures by the best evidence."""
    attempts: dict[MappedBy, ClockMap | str] = {
        "packets": _by_packets(machine, captured, span_ns),
        "answers": _by_answers(machine, timestamper, span_ns),
    }
    counts: dict[MappedBy, int] = {
        "packets": len(machine.sightings.seq),
        "answers": len(machine.answers.asked_ns),
    }
    mappings = tuple(_mapping(method, counts[method], tried) for method, tried in attempts.items())
    maps = {method: tried for method, tried in attempts.items() if isinstance(tried, ClockMap)}
    contradiction = _contradiction(maps)
    chosen: MappedBy | None = None
    # If packets contradict each other, answers may be right, but some assumption is wrong.
    if maps and contradiction is None and not _is_contradictory(attempts["packets"]):
        _, chosen = min((clock_map.worst_error_ns, method) for method, clock_map in maps.items())
    record = MachineClock(
        times_by=machine.times_by,
        method=chosen,
        error_ns=None if chosen is None else maps[chosen].worst_error_ns,
        mappings=mappings,
        contradiction=contradiction,
        reports=machine.reports,
    )
    to_unix = None
    if machine.pairs is not None:
        with suppress(ContradictionError, UnboundedError):
            to_unix = _to_unix(machine.pairs)
    return MappedClock(record, None if chosen is None else maps[chosen], to_unix)


def read_noise(path: Path) -> Mapping[str, Column]:
    """Read the ``noise.parquet`` of one machine."""
    with TableFile(path.open("rb"), f"{path.parent.name}: {path.name}", NOISE) as file:
        return file.columns(NOISE.names)


def noise_on_captures(
    tables: Sequence[tuple[Mapping[str, Column], MappedClock]],
) -> NewColumns:
    """Return rows of ``noise.parquet`` of several machines, sorted on the clock of the captures.

    Rows of a machine without a mapping keep its own clock, under another source: no conclusion can
    be drawn from them.
    """
    moved = [_moved(table, clock) for table, clock in tables]
    whole = {name: joined([table[name] for table in moved]) for name in NOISE.names}
    order = np.argsort(values(whole["start_ns"]), kind="stable")
    return {name: column[order] for name, column in whole.items()}


def _moved(table: Mapping[str, Column], clock: MappedClock) -> Mapping[str, Column]:
    start, lasted = (values(table[name]) for name in ("start_ns", "duration_ns"))
    begins, ends = clock.moved(start), clock.moved(start + lasted)
    moved = {**table, "start_ns": begins, "duration_ns": ends - begins}
    if clock.to_captures is None:
        moved["source"] = Texts(np.zeros(len(start), np.uint32), [OWN_CLOCK])
    return moved


def _by_packets(machine: Machine, captured: Captured, span_ns: tuple[int, int]) -> ClockMap | str:
    bounds = _packet_bounds(machine, captured)
    if bounds is None:
        return "no packet that it saw is in the captures"
    try:
        return two_clocks(bounds, span_ns=span_ns)
    except (ContradictionError, UnboundedError) as error:
        return f"{_CONTRADICTS}{error}" if isinstance(error, ContradictionError) else str(error)


_CONTRADICTS = "it contradicts the captures: "


def _is_contradictory(attempt: ClockMap | str) -> bool:
    return isinstance(attempt, str) and attempt.startswith(_CONTRADICTS)


def _packet_bounds(machine: Machine, captured: Captured) -> Bounds | None:
    """Return bounds by causality: a packet is captured before the device saw it, and after."""
    before, behind = (_seen_in(machine.sightings, capture) for capture in captured)
    if not len(before[0].seq) or not len(behind[0].seq):
        return None
    step_ns = float(max(_step_ns(before[1]), _step_ns(behind[1])))
    if machine.role == "loadgen":
        # A packet leaves before the first capture, and returns after the second.
        high = Bounds.at_most(before[0].first_ns, before[1])
        low = Bounds.at_least(behind[0].last_ns, behind[1])
    else:
        low = Bounds.at_least(before[0].first_ns, before[1])
        high = Bounds.at_most(behind[0].last_ns, behind[1])
    return low.with_others(high).loosened(step_ns)


def _seen_in(
    sightings: Sightings, capture: tuple[Integers, Integers]
) -> tuple[Sightings, Integers]:
    """Return the packets that a machine saw and a capture has, and their first capture times."""
    seq, times = capture
    seen = np.isin(seq, sightings.seq)
    numbers, first = np.unique(seq[seen], return_index=True)
    return sightings.of(numbers), times[seen][first]


def _step_ns(times_ns: Integers) -> int:
    """Return the resolution of times: their greatest common divisor, or the step of a card."""
    return min(max(int(np.gcd.reduce(times_ns)), _CARD_STEP_NS), _COARSEST_STEP_NS)


def _by_answers(
    machine: Machine, timestamper: Answers | None, span_ns: tuple[int, int]
) -> ClockMap | str:
    if timestamper is None:
        return "captures are timed by a clock that the timestamper does not tell the time by"
    if machine.times_by == "tsc" and machine.pairs is None:
        return "nothing ties its counter to Unix time"
    if machine.was_set_by_ns:
        return f"Unix time was set by {machine.was_set_by_ns / 1e9:+.3f} s meanwhile"
    try:
        own, other = _to_asking(machine.answers), _to_asking(timestamper)
        steps = [] if machine.pairs is None else [_to_unix(machine.pairs)]
    except UnboundedError as error:
        return str(error)
    except ContradictionError as error:
        return f"answers contradict each other: {error}"
    return between([*steps, own], other, span_ns=span_ns)


def _to_asking(answers: Answers) -> ClockMap:
    """Map the clock of the answering machine to that of the asking one, with a margin."""
    heard = answers.heard_ns
    span_ns = (min(heard, default=0) - _AROUND_NS, max(heard, default=0) + _AROUND_NS)
    bounds = Bounds.of_answers(
        answers.asked_ns, answers.heard_ns, answers.said_ns, answers.answered_ns
    )
    return two_clocks(bounds, span_ns=span_ns)


def _to_unix(pairs: Bounds) -> ClockMap:
    first, last = int(pairs.at_ns.min(initial=0)), int(pairs.at_ns.max(initial=0))
    span_ns = (first - _AROUND_NS, last + _AROUND_NS)
    return two_clocks(pairs, span_ns=span_ns)


def _mapping(method: MappedBy, count: int, attempt: ClockMap | str) -> ClockMapping:
    if isinstance(attempt, str):
        return ClockMapping(method=method, bounds=count, missing_because=attempt)
    first, _ = attempt.within_ns
    return ClockMapping(
        method=method,
        bounds=count,
        offset_ns=int(attempt.added_ns([first])[0]),
        drift_ppb=round(attempt.drift * 1e9, 3),
        drift_error_ppb=None
        if attempt.drift_error is None
        else round(attempt.drift_error * 1e9, 3),
        error_ns=attempt.worst_error_ns,
        pieces=attempt.pieces,
    )


def _contradiction(maps: Mapping[MappedBy, ClockMap]) -> str | None:
    """Return a description of the moment at which two methods exclude each other, if any."""
    for (first_method, first), (second_method, second) in pairwise(maps.items()):
        since = max(first.within_ns[0], second.within_ns[0])
        until = min(first.within_ns[1], second.within_ns[1])
        if since > until:
            continue
        moments = np.linspace(0, until - since, 9).astype(np.int64) + since
        ranges = first.range_ns(moments), second.range_ns(moments)
        low = np.maximum(ranges[0][0], ranges[1][0])
        high = np.minimum(ranges[0][1], ranges[1][1])
        if (low > high).any():
            at = int((low - high).argmax())
            spans = [
                f"{low[at]:,.0f} to {high[at]:,.0f} ns by {name}"
                for name, (low, high) in zip((first_method, second_method), ranges, strict=True)
            ]
            return f"at {moments[at] / 1e9:.6f} s the difference is {', '.join(spans)}"
    return None
