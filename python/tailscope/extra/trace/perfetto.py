"""A run as one timeline, as ui.perfetto.dev opens it.

- **worst packets**, each with the parts of its latency. Parts are sums, so they lie one behind the
  other in their packet; when something happened is seen on the CPUs. Arrows lead from the worst of
  them to what blocked a CPU meanwhile;
- **worst packets in the kernel**, or **in the device**: the stages of their way, when they were
  and as long as they were;
- **packets**: how many were in the device, and how long each took;
- **device** and **generator**: what kept each of their CPUs from its work, by cause; the stalls
  that the polling loop saw itself; and those that were injected.

The format is Perfetto's own, TracePacket and TrackEvent in protobuf; times are Unix time.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import defaultdict
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import count
from typing import IO, TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.engine.columns import values
from tailscope.noise.attribution import DUT, INSTRUMENT, QUEUE, SERVICE, UNEXPLAINED
from tailscope.noise.intervals import union
from tailscope.noise.stages import divide, read_stages
from tailscope.store import layout
from tailscope.store.files import MOST_NOISE_BYTES, is_there, read_file
from tailscope.store.parquet import TableFile
from tailscope.store.reader import open_packets, read_run, verified_file
from tailscope.store.tables import NOISE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from numpy.typing import NDArray
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent

    from tailscope.engine.analysis import Worst
    from tailscope.noise.stages import Stages
    from tailscope.store.packets import Packets
    from tailscope.store.run import Run

    Integers = NDArray[np.int64]

_MOST = 200_000
"""Intervals or packets; of a run with more, about as many around the worst packets. A Perfetto
trace of that size has about 30 MB and takes seconds."""
_AROUND_NS = 5_000_000
_WITH_ARROWS = 100
_STAGES = (QUEUE, DUT, INSTRUMENT, UNEXPLAINED, SERVICE)
"""The parts of a latency, in the order in which they are drawn."""
_SIDES = {
    "dut": "device",
    "instrument": "generator",
    "loadgen": "load generator",
    "watch": "watched CPUs",
}
_TIMES = ("start_ns", "duration_ns")
_SEQUENCE = 1
_KINDS = {"cause": "kept from work", "stall": "stalls", "injected": "injected stalls"}


@dataclass(frozen=True)
class Traced:
    """The extent to which a trace covers a run."""

    intervals: int
    all_intervals: int
    """All intervals in which something kept CPUs from their work."""
    packets: int
    all_packets: int
    worst: int
    """The number of worst packets."""
    around: int
    """The number of these, the slowest, that are drawn with what was around them."""
    is_explained: bool
    """True if these are drawn with the parts of their latency."""


def write_trace(path: Path, file: IO[bytes]) -> Traced:
    """Write a run as a trace."""
    if is_there(path, layout.WATCHED):
        return _write_watched(path, file)
    run = read_run(path)
    with open_packets(path, run.info) as packets, _noise_of(path, run) as noise:
        rows = 0 if noise is None else len(noise)
        worst = around = len(run.worst.pre_ns)
        shown = None
        if (every := max(len(packets), rows)) > _MOST:
            seconds = float(run.summary["pre_duration_s"] or 0) * _MOST / every
            around, shown = _around(run.worst, int(seconds * 1e9))
        came, took = _packets_in(packets, shown)
        blocked = {} if noise is None else _noise_in(noise, shown and shown.meet)
        trace = _Trace(file, int(came[0]) if len(came) else 0)
        _add_worst(trace, run)
        _add_stages(trace, run.worst, read_stages(path, run.info))
        _add_packets(trace, came, took)
        _add_noise(trace, blocked, run.worst)
        is_explained = bool(run.worst_explained)
        return Traced(_count(blocked), rows, len(came), len(packets), worst, around, is_explained)


def _write_watched(path: Path, file: IO[bytes]) -> Traced:
    """Write what kept CPUs from running that were only watched: the longest, if they are many."""
    content = read_file(path, layout.NOISE, most_bytes=MOST_NOISE_BYTES)
    with TableFile(content, str(path / layout.NOISE), NOISE) as noise:
        pieces = [values(rows["duration_ns"]) for rows in noise.batches(["duration_ns"])]
        least_ns = int(np.sort(np.concatenate([[0], *pieces]))[-_MOST:][0])
        blocked = _noise_in(noise, lambda start, end: end - start >= least_ns)
        rows = len(noise)
    first_ns = min((int(each.start_ns[0]) for each in blocked.values()), default=0)
    _add_noise(_Trace(file, first_ns), blocked, None)
    return Traced(_count(blocked), rows, 0, 0, 0, 0, is_explained=False)


def _count(blocked: Mapping[tuple[str, int, str], _Slices]) -> int:
    return sum(len(each.names) for each in blocked.values())


class _Stretches(NamedTuple):
    """Disjoint stretches of time, in order."""

    start_ns: Integers
    end_ns: Integers

    def meet(self, start_ns: Integers, end_ns: Integers) -> NDArray[np.bool_]:
        """Tell which intervals reach into one of the stretches."""
        began = np.searchsorted(self.start_ns, end_ns, "left")
        ended = np.searchsorted(self.end_ns, start_ns, "right")
        found: NDArray[np.bool_] = began > ended
        return found


def _around(worst: Worst, most_ns: int) -> tuple[int, _Stretches]:
    """Return how many of the worst packets are shown with what is around them, and when that is.

    As many as take no more than `most_ns`, but at least one.
    """
    start, end = worst.pre_ns.astype(np.int64), worst.post_ns.astype(np.int64)

    def around(count: int) -> _Stretches:
        return _Stretches(*union(start[:count] - _AROUND_NS, end[:count] + _AROUND_NS))

    def lasts_ns(count: int) -> int:
        stretches = around(count)
        return int((stretches.end_ns - stretches.start_ns).sum())

    count = bisect_right(range(len(start) + 1), most_ns, key=lasts_ns) - 1
    count = max(count, min(1, len(start)))
    return count, around(count)


class _Slices(NamedTuple):
    """The content of a track: intervals with their names and details."""

    start_ns: Integers
    end_ns: Integers
    names: Sequence[str]
    details: Sequence[str]


class _Trace:
    """A file that is written an event at a time."""

    def __init__(self, file: IO[bytes], first_ns: int) -> None:
        from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (
            BUILTIN_CLOCK_BOOTTIME,
            BUILTIN_CLOCK_REALTIME,
            TracePacket,
            TrackEvent,
        )
        from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

        self._builder = StreamingTraceProtoBuilder(file)
        self._packet, self._event = TracePacket, TrackEvent
        self._numbers = count(1)
        packet = self._packet(timestamp=first_ns, trusted_packet_sequence_id=_SEQUENCE)
        packet.sequence_flags = packet.SEQ_INCREMENTAL_STATE_CLEARED
        for clock in (BUILTIN_CLOCK_BOOTTIME, BUILTIN_CLOCK_REALTIME):
            packet.clock_snapshot.clocks.add(clock_id=clock, timestamp=first_ns)
        self._builder.write_packet(packet)

    def track(self, name: str, parent: int | None = None, *, unit: str | None = None) -> int:
        """Add a track, or a group of tracks, behind those that there are; a counter has a unit."""
        packet = self._packet(trusted_packet_sequence_id=_SEQUENCE)
        track = packet.track_descriptor
        track.uuid = track.sibling_order_rank = next(self._numbers)
        track.name = name
        if parent is not None:
            track.parent_uuid = parent
        track.child_ordering = track.EXPLICIT
        if unit is not None:
            track.counter.unit_name = unit
        self._builder.write_packet(packet)
        return int(track.uuid)

    def begin(
        self,
        track: int,
        at_ns: int,
        name: str,
        known: Mapping[str, str | int],
        arrows: Iterable[int] = (),
    ) -> None:
        """Begin a slice; `known` is what else is known of it."""
        event = self._event(type=self._event.TYPE_SLICE_BEGIN, track_uuid=track, name=name)
        event.flow_ids.extend(arrows)
        for key, value in known.items():
            note = event.debug_annotations.add(name=key)
            if isinstance(value, str):
                note.string_value = value
            else:
                note.int_value = value
        self._write(at_ns, event)

    def end(self, track: int, at_ns: int) -> None:
        """End the slice that began last on a track."""
        self._write(at_ns, self._event(type=self._event.TYPE_SLICE_END, track_uuid=track))

    def count(self, track: int, at_ns: Integers, values: Integers) -> None:
        """Add values of a counter."""
        kind = self._event.TYPE_COUNTER
        for at, value in zip(at_ns.tolist(), values.tolist(), strict=True):
            self._write(at, self._event(type=kind, track_uuid=track, counter_value=value))

    def _write(self, at_ns: int, event: TrackEvent) -> None:
        packet = self._packet(
            timestamp=at_ns, trusted_packet_sequence_id=_SEQUENCE, track_event=event
        )
        self._builder.write_packet(packet)


def _add_worst(trace: _Trace, run: Run) -> None:
    """Draw each of the worst packets, and the parts of its latency."""
    worst, parts = run.worst, run.worst_explained
    if not len(worst.pre_ns):
        return
    group = trace.track("worst packets")
    ranks = np.argsort(worst.pre_ns, kind="stable")
    lanes = _lanes(worst.pre_ns[ranks].tolist(), worst.post_ns[ranks].tolist())
    tracks = [trace.track("packets", group) for _ in range(max(lanes) + 1)]
    for rank, lane in zip(ranks.tolist(), lanes, strict=True):
        seq, at_ns = int(worst.pre_seq[rank]), int(worst.pre_ns[rank])
        known: dict[str, str | int] = {
            "seq": seq,
            "rank": rank + 1,
            "latency_ns": int(worst.latency_ns[rank]),
            **{name: str(parts[name][rank]) for name in ("cause", "queue_cause") if name in parts},
        }
        arrows = [rank + 1] if rank < _WITH_ARROWS else []
        trace.begin(tracks[lane], at_ns, f"packet {seq}", known, arrows)
        for stage in _STAGES:
            lasts_ns = int(parts[f"{stage}_ns"][rank]) if f"{stage}_ns" in parts else 0
            if lasts_ns:
                trace.begin(tracks[lane], at_ns, stage, {})
                at_ns += lasts_ns
                trace.end(tracks[lane], at_ns)
        trace.end(tracks[lane], int(worst.post_ns[rank]))


def _add_stages(trace: _Trace, worst: Worst, stages: Stages | None) -> None:
    """Draw the way of the worst packets through the device, of those for which it is known."""
    if stages is None:
        return
    seq, pre_ns, latency_ns = (
        each.astype(np.int64) for each in (worst.pre_seq, worst.pre_ns, worst.latency_ns)
    )
    divided = divide(stages, seq, pre_ns, latency_ns)
    known = np.flatnonzero(divided.is_whole)
    known = known[np.argsort(pre_ns[known], kind="stable")]
    if not len(known):
        return
    group = trace.track(f"worst packets in the {stages.way.where}")
    starts = pre_ns[known].tolist()
    lanes = _lanes(starts, (pre_ns + latency_ns)[known].tolist())
    tracks = [trace.track("packets", group) for _ in range(max(lanes) + 1)]
    for at, start_ns, lane in zip(known.tolist(), starts, lanes, strict=True):
        at_ns = start_ns
        for stage, lasts_ns in zip(stages.way.stages, divided.stages_ns[at].tolist(), strict=True):
            trace.begin(tracks[lane], at_ns, stage, {"seq": int(seq[at]), "rank": at + 1})
            at_ns += lasts_ns
            trace.end(tracks[lane], at_ns)


def _add_packets(trace: _Trace, came_ns: Integers, took_ns: Integers) -> None:
    """Draw how many packets were in the device, and how long each took."""
    group = trace.track("packets")
    at_ns = np.concatenate([came_ns, came_ns + took_ns])
    change = np.repeat([1, -1], len(came_ns))
    order = np.argsort(at_ns, kind="stable")
    inside = trace.track("in the device", group, unit="packets")
    trace.count(inside, at_ns[order], np.cumsum(change[order]))
    trace.count(trace.track("latency", group, unit="ns"), came_ns, took_ns)


def _add_noise(
    trace: _Trace, noise: Mapping[tuple[str, int, str], _Slices], worst: Worst | None
) -> None:
    """Draw what kept each CPU from its work."""
    for source, side in _SIDES.items():
        cpus = sorted({cpu for owner, cpu, _ in noise if owner == source})
        if not cpus:
            continue
        group = trace.track(side)
        for cpu in cpus:
            for kind, name in _KINDS.items():
                slices = noise.get((source, cpu, kind))
                if slices is None:
                    continue
                arrows = _arrows(slices, worst) if kind == "cause" and worst is not None else {}
                _add_slices(trace, f"CPU {cpu}: {name}", group, slices, arrows)


def _add_slices(
    trace: _Trace, name: str, group: int, slices: _Slices, arrows: Mapping[int, Sequence[int]]
) -> None:
    starts, ends = slices.start_ns.tolist(), slices.end_ns.tolist()
    lanes = _lanes(starts, ends)
    tracks = [trace.track(name, group) for _ in range(max(lanes) + 1)]
    for at, (start_ns, end_ns, lane) in enumerate(zip(starts, ends, lanes, strict=True)):
        known = {"detail": slices.details[at]} if slices.details[at] else {}
        trace.begin(tracks[lane], start_ns, slices.names[at], known, arrows.get(at, ()))
        trace.end(tracks[lane], end_ns)


def _arrows(slices: _Slices, worst: Worst) -> dict[int, list[int]]:
    """Return the ranks of the worst packets that were there at each of some intervals."""
    found: dict[int, list[int]] = defaultdict(list)
    came = worst.pre_ns[:_WITH_ARROWS].astype(np.int64)
    left = worst.post_ns[:_WITH_ARROWS].astype(np.int64)
    first = np.searchsorted(slices.end_ns, came, "right").tolist()
    last = np.searchsorted(slices.start_ns, left, "left").tolist()
    for rank, met in enumerate(map(range, first, last), 1):
        for at in met:
            found[at].append(rank)
    return found


def _lanes(starts: Sequence[int], ends: Sequence[int]) -> list[int]:
    """Assign each interval, in order of their start, a lane in which no other overlaps it."""
    free: list[tuple[int, int]] = []
    found = []
    for start, end in zip(starts, ends, strict=True):
        lane = heapq.heappop(free)[1] if free and free[0][0] <= start else len(free)
        heapq.heappush(free, (end, lane))
        found.append(lane)
    return found


def _noise_of(path: Path, run: Run) -> AbstractContextManager[TableFile | None]:
    if layout.NOISE not in run.info.files:
        return nullcontext()
    name = str(path / layout.NOISE)
    return TableFile(verified_file(path, run.info, layout.NOISE), name, NOISE)


def _packets_in(packets: Packets, shown: _Stretches | None) -> tuple[Integers, Integers]:
    """Return when packets came, and how long they took: only of those there in some stretches."""
    found = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    for pre_ns, latency_ns in packets.batches("pre_ns", "latency_ns"):
        came, took = pre_ns.astype(np.int64), latency_ns.astype(np.int64)
        kept = slice(None) if shown is None else shown.meet(came, came + took)
        found.append((came[kept], took[kept]))
    came, took = map(np.concatenate, zip(*found, strict=True))
    return came, took


def _noise_in(
    noise: TableFile, shown: Callable[[Integers, Integers], NDArray[np.bool_]] | None
) -> dict[tuple[str, int, str], _Slices]:
    """Return what kept CPUs from work, by side, CPU and kind; `shown` has which, by times."""
    pieces: dict[tuple[str, int, str], list[_Slices]] = defaultdict(list)
    for rows in noise.batches(["source", "cpu", "kind", "cause", "detail", *_TIMES]):
        start, lasted = (values(rows[name]) for name in _TIMES)
        kept = np.arange(len(start))
        if shown is not None:
            kept = np.flatnonzero(shown(start, start + lasted))
        source, kind, cause, detail = (
            values(rows[name])[kept] for name in ("source", "kind", "cause", "detail")
        )
        cpus, start, end = values(rows["cpu"])[kept], start[kept], (start + lasted)[kept]
        for key in set(zip(source.tolist(), cpus.tolist(), kind.tolist(), strict=True)):
            own = (source == key[0]) & (cpus == key[1]) & (kind == key[2])
            pieces[key].append(
                _Slices(start[own], end[own], cause[own].tolist(), detail[own].tolist())
            )
    return {
        key: _Slices(
            np.concatenate([each.start_ns for each in found]),
            np.concatenate([each.end_ns for each in found]),
            [name for each in found for name in each.names],
            [detail for each in found for detail in each.details],
        )
        for key, found in pieces.items()
    }
