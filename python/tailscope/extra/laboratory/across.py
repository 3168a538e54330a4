"""What machines of a laboratory recorded, brought to the clock of the captures."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.models.two_clocks import (
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

    import pyarrow as pa
    from numpy.typing import NDArray

    from tailscope.extra.laboratory.agents import Answers
    from tailscope.extra.laboratory.sightings import Sightings
    from tailscope.store.records.clocks import ClockReport, MappedBy, TimesBy
    from tailscope.store.run import NewColumns

    Integers = NDArray[np.int64]

OWN_CLOCK = "own clock"
"""The source of what is known only by a device's own clock."""

_CARD_STEP_NS, _COARSEST_STEP_NS = 16, 1_000
"""Cards count in steps of up to 12.5 ns; captures know microseconds at least."""
_AROUND_NS = 600_000_000_000


class Captured(NamedTuple):
    """Packets in the captures: their numbers and times, before the device and behind it."""

    pre: tuple[Integers, Integers]
    post: tuple[Integers, Integers]


@dataclass(frozen=True)
class Machine:
    """What is known of the clock of a machine."""

    role: str
    times_by: TimesBy
    """What its times are."""
    sightings: Sightings
    """Packets that it saw, by these times."""
    pairs: Bounds | None
    """What to add to these times to get its Unix time; None if they are Unix time."""
    answers: Answers
    """Its answers to questions, by its Unix time."""
    was_set_by_ns: int
    """By how much its Unix time was set meanwhile."""
    reports: tuple[ClockReport, ...]


class MappedClock(NamedTuple):
    """A machine's clock against that of the captures."""

    record: MachineClock
    """What is kept of it."""
    to_captures: ClockMap | None
    """None where it is not known."""
    to_unix: ClockMap | None = None
    """What to add to get the machine's own Unix time; None where it is that."""

    def moved(self, times_ns: Integers) -> Integers:
        """Times of the machine on the clock of the captures; as they are if that is not known."""
        return times_ns if self.to_captures is None else self.to_captures.to_second(times_ns)

    def moved_unix(self, times_ns: Integers) -> Integers:
        """The same of the machine's own Unix time."""
        if self.to_unix is None:
            return self.moved(times_ns)
        return self.moved(times_ns - self.to_unix.added_ns(times_ns))


def map_clock(
    machine: Machine, captured: Captured, timestamper: Answers | None, span_ns: tuple[int, int]
) -> MappedClock:
    """Bring the clock of a machine to that of the captures, by all that is known."""
    found: dict[MappedBy, ClockMap | str] = {
        "packets": _by_packets(machine, captured, span_ns),
        "answers": _by_answers(machine, timestamper, span_ns),
    }
    counts: dict[MappedBy, int] = {
        "packets": len(machine.sightings.seq),
        "answers": len(machine.answers.asked_ns),
    }
    mappings = tuple(_mapping(method, counts[method], each) for method, each in found.items())
    maps = {method: each for method, each in found.items() if isinstance(each, ClockMap)}
    contradiction = _contradiction(maps)
    chosen: MappedBy | None = None
    # Where packets contradict each other, answers may be right, but something is not what it seems.
    if maps and contradiction is None and not _is_contradictory(found["packets"]):
        _, chosen = min((found.worst_error_ns, method) for method, found in maps.items())
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


def read_noise(path: Path) -> pa.Table:
    """Read the ``noise.parquet`` of one machine."""
    import pyarrow as pa

    with TableFile(path.open("rb"), f"{path.parent.name}: {path.name}", NOISE) as file:
        batches = list(file.batches(NOISE.names))
    texts = pa.dictionary(pa.int32(), pa.string())
    schema = pa.schema(
        [(each.name, texts if each.kind == "string" else each.kind) for each in NOISE.columns]
    )
    return pa.Table.from_batches(batches).cast(schema) if batches else schema.empty_table()


def noise_on_captures(tables: Sequence[tuple[pa.Table, MappedClock]]) -> NewColumns:
    """Rows of ``noise.parquet`` of several machines, in order of time by the clock of the captures.

    What happened on a machine whose clock is not known is left by that clock, under another source:
    nothing can be concluded from it.
    """
    import pyarrow as pa

    moved = pa.concat_tables([_moved(table, clock) for table, clock in tables])
    whole = moved.unify_dictionaries().combine_chunks().sort_by("start_ns")
    return {name: whole[name].combine_chunks() for name in whole.column_names}


def _moved(table: pa.Table, clock: MappedClock) -> pa.Table:
    import pyarrow as pa

    start, lasted = (table[name].to_numpy() for name in ("start_ns", "duration_ns"))
    begins, ends = clock.moved(start), clock.moved(start + lasted)
    for name, column in {"start_ns": begins, "duration_ns": ends - begins}.items():
        table = table.set_column(table.column_names.index(name), name, pa.array(column))
    if clock.to_captures is None:
        own = pa.array([OWN_CLOCK] * len(table), pa.string()).dictionary_encode()
        table = table.set_column(table.column_names.index("source"), "source", own)
    return table


def _by_packets(machine: Machine, captured: Captured, span_ns: tuple[int, int]) -> ClockMap | str:
    bounds = _packet_bounds(machine, captured)
    if bounds is None:
        return "no packet that it saw is in the captures"
    try:
        return two_clocks(bounds, span_ns=span_ns)
    except (ContradictionError, UnboundedError) as error:
        return f"{_CONTRADICTS}{error}" if isinstance(error, ContradictionError) else str(error)


_CONTRADICTS = "it contradicts the captures: "


def _is_contradictory(found: ClockMap | str) -> bool:
    return isinstance(found, str) and found.startswith(_CONTRADICTS)


def _packet_bounds(machine: Machine, captured: Captured) -> Bounds | None:
    """A packet came to the timestamper before the device saw it, and behind that once more."""
    before, behind = (_seen_in(machine.sightings, each) for each in captured)
    if not len(before[0].seq) or not len(behind[0].seq):
        return None
    step_ns = float(max(_step_ns(before[1]), _step_ns(behind[1])))
    if machine.role == "loadgen":
        # It left before it came to the timestamper, and came back after it had been there again.
        high = Bounds.at_most(before[0].first_ns, before[1])
        low = Bounds.at_least(behind[0].last_ns, behind[1])
    else:
        low = Bounds.at_least(before[0].first_ns, before[1])
        high = Bounds.at_most(behind[0].last_ns, behind[1])
    return low.with_others(high).loosened(step_ns)


def _seen_in(
    sightings: Sightings, capture: tuple[Integers, Integers]
) -> tuple[Sightings, Integers]:
    """Packets that a machine saw and a capture holds, and when they were captured first."""
    seq, times = capture
    kept = np.isin(seq, sightings.seq)
    numbers, first = np.unique(seq[kept], return_index=True)
    return sightings.of(numbers), times[kept][first]


def _step_ns(times_ns: Integers) -> int:
    """How coarsely times were taken: what all of them are multiples of, or the step of a card."""
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
    """From the clock of who answered to that of who asked, also some time before and after."""
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


def _mapping(method: MappedBy, count: int, found: ClockMap | str) -> ClockMapping:
    if isinstance(found, str):
        return ClockMapping(method=method, bounds=count, missing_because=found)
    first, _ = found.within_ns
    return ClockMapping(
        method=method,
        bounds=count,
        offset_ns=int(found.added_ns([first])[0]),
        drift_ppb=round(found.drift * 1e9, 3),
        drift_error_ppb=None if found.drift_error is None else round(found.drift_error * 1e9, 3),
        error_ns=found.worst_error_ns,
        pieces=found.pieces,
    )


def _contradiction(maps: Mapping[MappedBy, ClockMap]) -> str | None:
    """Say where two methods exclude each other."""
    for (one, first), (other, second) in pairwise(maps.items()):
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
                for name, (low, high) in zip((one, other), ranges, strict=True)
            ]
            return f"at {moments[at] / 1e9:.6f} s the difference is {', '.join(spans)}"
    return None
