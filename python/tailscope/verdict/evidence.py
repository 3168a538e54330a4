"""The evidence of a run for a service level: the fate of every packet that was sent."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.exceptions import RunCorruptError, RunError, UsageError
from tailscope.store.info import is_emulated, neighbours_of
from tailscope.units import duration_ns
from tailscope.verdict.taken import Taken
from tailscope.verdict.trust import trust_of
from tailscope.words.neighbours import held_text, programs_text, unusable_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from tailscope.engine.analysis import Distribution, Figure
    from tailscope.noise.held import HeldPackets
    from tailscope.store.records.run import RunInfo
    from tailscope.store.run import Run
    from tailscope.verdict.slo import Level, Term

    Unsigned = NDArray[np.uint64]

_FAILED = ("late", "corrupt")


@dataclass(frozen=True)
class Doubt:
    """A reason not to believe a verdict."""

    reason: str
    of_pass: bool = True
    of_fail: bool = True
    """True if a pass is in doubt, and if a fail is."""
    of_variation: bool = True
    """True if a variation of latencies is in doubt as they are."""


@dataclass(frozen=True)
class Drift:
    """A drift that two clocks may have, and that was not taken out."""

    off_ns: float
    """By how much times may be off either way at most, in nanoseconds."""
    reason: str
    """What is known of it, as a clause."""


APART = Doubt(
    "the clocks are apart: latencies are only known above that of the fastest packet;"
    " if you know the offset, give it to `tailscope analyze --clocks offset=TIME`, or else capture"
    " both sides by one clock",
    of_variation=False,
)
"""The doubt about latencies above that of the fastest packet."""

_MOST_DRIFT_PPM = 1_000
"""The most that the engine takes for a drift of two clocks."""


@dataclass(frozen=True)
class PacketSample:
    """The packets of a run: as they are, or with the least that each can have taken."""

    taken: Taken
    """Time that each sent packet took."""
    lost: int
    """Number of these packets that never came back."""
    counts: Mapping[str, int]
    """Numbers of packets: ``lost``, ``dropped``, ``late``, ``reordered``, ``duplicated``,
    ``corrupt``.
    """
    fastest_ns: float | None = None
    """Latency that variation counts from, if it is not that of the fastest packet: for packets as
    they are, the least that the fastest can have taken, and the other way round.
    """


@dataclass(frozen=True)
class RunSample:
    """A run, as far as a service level is concerned."""

    name: str
    rate_pps: float | None
    """Rate at which packets were sent, in packets per second."""
    as_is: PacketSample
    """The upper end: all of a latency is the device's."""
    least: PacketSample | None = None
    """The lower end: each latency less what the instrument's stalls can explain, and for how long
    neighbours may have held the device's CPU; without packets that the instrument lost or could
    not send, or that may be lost because of neighbours, and without lost ones that captures do
    not prove, or that are outside of what both saw; packets alike that are not matched took no
    time. None where that is the same, or it does not tell."""
    spoilt: str = ""
    """Description of what the instrument, or neighbours, may have spoilt."""
    resolution_ns: int = 1
    """Resolution of the timestamps, in nanoseconds."""
    floor: tuple[tuple[float, float], ...] = ()
    """Latency of the instrument with no device in between, outside of its stalls; empty if it is
    not known.
    """
    doubts: tuple[Doubt, ...] = ()
    time_doubts: tuple[Doubt, ...] = ()
    """Doubts about all terms, and about terms of times."""
    drift: Drift | None = None
    """None where the captures have one clock."""
    neighbours: str = ""
    """Description of what neighbours took of the device's CPU; empty if they took nothing, or it is
    not known.
    """
    trust: str = ""
    """Trust in the instrument, in a line; empty if nothing is known of it."""

    def doubts_of(self, term: Term) -> list[Doubt]:
        """Return the doubts about a verdict on a term."""
        doubts = list(self.doubts)
        if term.is_time:
            doubts += (
                doubt for doubt in self.time_doubts if doubt.of_variation or term.kind != "pdv"
            )
            if term.limit < self.resolution_ns:
                doubts.append(Doubt(f"timestamps are as coarse as {self.resolution_ns} ns"))
            doubts += self._below_floor(term)
        return doubts

    def _below_floor(self, term: Term) -> list[Doubt]:
        """Doubt a limit that the instrument alone exceeds: only to meet it says something."""
        wanted = 1.0 if term.quantile is None else term.quantile
        reached = [ns for q, ns in self.floor if q <= wanted]
        if not reached or term.kind == "pdv" or term.is_met_by(reached[-1]):
            return []
        reason = f"the instrument alone takes {reached[-1] / 1000:g} µs there, more than the limit"
        return [Doubt(reason, of_pass=False)]


def read_evidence(
    path: Path, level: Level, *, name: str | None = None, with_neighbours: bool = False
) -> RunSample:
    """Read what a run directory knows of a service level."""
    from tailscope.store.reader import read_run

    run = read_run(path, label=name)
    if any(term.name == "dropped" for term in level.terms):
        _Counts(run.summary, path).needed("dropped_by_dut")
    return evidence_of(path, run, with_neighbours=with_neighbours)


def evidence_of(path: Path, run: Run, *, with_neighbours: bool = False) -> RunSample:
    """Return the evidence of a run that was read."""
    from tailscope.store import layout

    summary, info = run.summary, run.info
    if layout.LATENCY in (info.left_out or ()):
        raise RunError(
            f"{path / layout.LATENCY}: single packets were left out of this run",
            code="packets-left-out",
            hint="a verdict counts them: capture both sides, and use `tailscope analyze`",
        )
    if not (path / layout.LATENCY).exists():
        raise RunError(
            f"{path / layout.LATENCY}: missing",
            code="packets-missing",
            hint="a verdict counts single packets: keep this file with the run",
        )
    held = None if with_neighbours else _held(path, info)
    packets, counts = _read(path, info, held), _Counts(summary, path)
    if packets.as_is.count != counts.of("count"):
        raise RunCorruptError(
            f"{path}: latency.parquet: expected {counts.of('count')} packets, as count says,"
            f" got {packets.as_is.count}",
            code="packets-count",
        )
    least, spoilt = _least(packets, counts)
    rate = summary.get("pre_rate_pps")
    return RunSample(
        name=run.label,
        rate_pps=float(rate) if isinstance(rate, int | float) and rate > 0 else None,
        as_is=_reading(packets, counts, with_spoilt=True),
        least=least,
        spoilt=spoilt,
        resolution_ns=_resolution_ns(summary),
        floor=_floor(info),
        doubts=_doubts(summary, info),
        time_doubts=_time_doubts(counts, summary, info),
        drift=_drift(summary),
        neighbours=_neighbours(info, is_judged=with_neighbours),
        trust=trust_of(summary, info).text,
    )


class _Counts:
    """The counts of a summary; a measurement has more than captures."""

    def __init__(self, summary: Mapping[str, Figure], path: Path) -> None:
        self._summary, self._path = summary, path

    def of(self, name: str) -> int:
        """Return a count; 0 if the run does not have it."""
        return 0 if self._summary.get(name) is None else self.needed(name)

    def untimed(self) -> int:
        """Packets that were seen on both sides, and have no latency."""
        return self.of("untimed") + self.of("resegmented")

    def unproven(self) -> int:
        """Lost packets that may have come out in another form; older runs do not tell."""
        lost, proven = self.of("lost"), self._summary.get("lost_proven")
        return 0 if proven is None else lost - self.of("lost_proven")

    def needed(self, name: str) -> int:
        count = self._summary.get(name)
        if not isinstance(count, int) or count < 0:
            raise RunError(
                f"{self._path}: summary.json: {name}: expected a count, got {count!r}",
                code="count-not-recorded",
                hint="captures and some devices do not record it; leave that term out",
            )
        return count


@dataclass(frozen=True)
class _Packets:
    """The times that the packets of a run took, at both ends."""

    path: Path
    """Path of the run."""
    info: RunInfo
    held: HeldPackets | None
    """Times at which neighbours held the device's CPU; None if they held nothing, or the run is
    judged as it is.
    """
    as_is: Distribution
    least: Distribution
    """Latencies, and the least that they can have been without what others can explain."""
    stalled: int
    held_up: int
    """Packets that the instrument's stalls may have delayed, and that may have waited for
    neighbours.
    """
    first_seq: int

    def batches(self, *, with_spoilt: bool) -> Iterator[tuple[Unsigned, Unsigned]]:
        """Yield the numbers of packets with the times that they took."""
        for batch in _batches(self.path, self.info, self.held):
            yield batch.seq, batch.latency_ns if with_spoilt else batch.least_ns


class _Batch(NamedTuple):
    """Packets, what they took, and how much of it others can explain at most."""

    seq: Unsigned
    latency_ns: Unsigned
    stall_ns: Unsigned | None
    held_ns: Unsigned | None

    @property
    def least_ns(self) -> Unsigned:
        """The least that the device can have taken."""
        left = self.latency_ns
        for other in (self.stall_ns, self.held_ns):
            left = left if other is None else left - np.minimum(left, other)
        return left


def _batches(path: Path, info: RunInfo, held: HeldPackets | None) -> Iterator[_Batch]:
    from tailscope.store.reader import open_packets

    bounds = None if held is None else held.bounds()
    with open_packets(path, info) as packets:
        for seq, pre_ns, latency_ns, stall_ns in packets.batches(
            "seq", "pre_ns", "latency_ns", "instrument_stall_ns"
        ):
            held_ns = None if bounds is None else bounds.of(pre_ns, latency_ns)
            yield _Batch(seq, latency_ns, stall_ns, held_ns)


def _held(path: Path, info: RunInfo) -> HeldPackets | None:
    """Return the times at which neighbours held the device's CPU, if that is known."""
    from tailscope.noise.held import held_packets
    from tailscope.noise.neighbours import read_held
    from tailscope.store import layout
    from tailscope.store.reader import open_packets, verified

    record = neighbours_of(info)
    if record is None or not record.held_ns or layout.NEIGHBOURS not in info.files:
        return None
    content = verified(path, info, layout.NEIGHBOURS)
    with open_packets(path, info) as packets:
        held = read_held(content, str(path / layout.NEIGHBOURS))
        return held_packets(held, packets, is_exact=record.is_exact)


def _read(path: Path, info: RunInfo, held: HeldPackets | None) -> _Packets:
    from tailscope.engine.analysis import Distribution

    as_is, least = Distribution(), Distribution()
    stalled, held_up, first_seq = 0, 0, None
    for batch in _batches(path, info, held):
        first_seq = int(batch.seq[0]) if first_seq is None else first_seq
        as_is.record(batch.latency_ns)
        least.record(batch.least_ns)
        stalled += 0 if batch.stall_ns is None else int(np.count_nonzero(batch.stall_ns))
        held_up += 0 if batch.held_ns is None else int(np.count_nonzero(batch.held_ns))
    return _Packets(path, info, held, as_is, least, stalled, held_up, first_seq or 0)


def _least(packets: _Packets, counts: _Counts) -> tuple[PacketSample | None, str]:
    """Return the least that packets took, and what others than the device have spoilt."""
    spoilt = {
        "samples that its stalls may have delayed": packets.stalled,
        "packets that it lost": counts.of("lost_in_instrument"),
        "packets that it could not send": counts.of("unsent"),
    }
    spoilt_text = " and ".join(f"{count:,} {what}" for what, count in spoilt.items() if count)
    reasons = [f"the instrument, {spoilt_text}"] if spoilt_text else []
    if packets.held_up or (packets.held is not None and _lost_by_neighbours(packets, counts)):
        reasons.append(
            f"{programs_text(packets.info)}, for which {packets.held_up:,} packets may have waited"
        )
    if unproven := counts.unproven():
        reasons.append(
            f"{unproven:,} packets that are not proven to be lost: as many are only known from"
            " behind the device, perhaps in another form"
        )
    if alike := counts.of("ambiguous"):
        reasons.append(
            f"{alike:,} packets that look alike and are not matched, so that any of them may have"
            " been lost or taken any time"
        )
    if outside := counts.of("outside"):
        reasons.append(
            f"{outside:,} packets that are outside of what both captures saw: they were lost if the"
            " capture behind the device was running then"
        )
    if untimed := counts.of("untimed"):
        reasons.append(
            f"{untimed:,} packets that were seen while one of the clocks was in doubt, so that any"
            " of them may have taken any time"
        )
    if divided := counts.of("resegmented"):
        reasons.append(
            f"{divided:,} packets that came out divided or merged, so that any of them may have"
            " taken any time; `--match-on tcp-bytes` times the bytes of TCP"
        )
    if not reasons:
        return None, ""
    return _reading(packets, counts, with_spoilt=False), "; ".join(reasons)


def _lost_by_neighbours(packets: _Packets, counts: _Counts) -> int:
    """Return the largest number of packets that the device can have lost because of neighbours."""
    lost = counts.of("lost") - counts.of("dropped_by_dut") - counts.of("lost_in_instrument")
    return 0 if packets.held is None else max(0, min(lost, packets.held.most_lost))


def _reading(packets: _Packets, counts: _Counts, *, with_spoilt: bool) -> PacketSample:
    dropped, alike = counts.of("dropped_by_dut"), counts.of("ambiguous")
    unknown = alike + counts.of("outside")
    lost = counts.of("lost") - dropped
    lost += counts.of("unsent") if with_spoilt else -counts.of("lost_in_instrument")
    if with_spoilt:
        lost += unknown
    else:
        lost = max(0, lost - counts.unproven() - _lost_by_neighbours(packets, counts))
    ends = (packets.as_is, packets.least) if with_spoilt else (packets.least, packets.as_is)
    untimed = counts.untimed() if with_spoilt else 0
    taken = Taken(
        ends[0],
        lost + untimed + sum(map(counts.of, _FAILED)),
        partial(packets.batches, with_spoilt=with_spoilt),
        packets.first_seq,
        instant=0 if with_spoilt else alike + counts.untimed(),
    )
    counted = {name: counts.of(name) for name in ("reordered", "duplicated", "corrupt", "late")}
    if with_spoilt and unknown:
        counted["late"] += unknown
        counted["duplicated"] += counts.of("post_ambiguous") + counts.of("outside")
        # One that overtook may have been any of them.
        counted["reordered"] = unknown + counts.of("count")
    if untimed:
        counted["late"] += untimed
        counted["reordered"] += untimed
    return PacketSample(
        taken,
        lost,
        {"lost": lost, "dropped": dropped, **counted},
        _fastest_ns(ends[1], alike + untimed if with_spoilt else 0),
    )


def _fastest_ns(came: Distribution, instant: int) -> float | None:
    if instant:
        return 0.0
    return float(came.at_ranks([1])[0]) if came.count else None


def _resolution_ns(summary: Mapping[str, Figure]) -> int:
    """Return the resolution of the captures' times, rounded up; 1 if it is finer, or not known."""
    resolution_ns = 1
    if isinstance(step := summary.get("resolution_ns"), int | float):
        resolution_ns = max(resolution_ns, ceil(step))
    for side in ("pre", "post"):
        text = summary.get(f"{side}_resolution")
        try:
            resolution_ns = max(resolution_ns, duration_ns(str(text), "resolution"))
        except UsageError:
            continue
    return resolution_ns


def _floor(info: RunInfo) -> tuple[tuple[float, float], ...]:
    quantiles = () if info.floor is None else info.floor.quantiles
    return tuple((quantile.q, quantile.least_ns) for quantile in quantiles)


def _neighbours(info: RunInfo, *, is_judged: bool) -> str:
    """Describe what neighbours took, if it may matter to a verdict."""
    if not is_judged:
        return unusable_text(info)
    text = held_text(info)
    return f"{text[0].upper()}{text[1:]}; the device is judged with them" if text else ""


def _doubts(summary: Mapping[str, Figure], info: RunInfo) -> tuple[Doubt, ...]:
    doubts = [Doubt(f"the run is partial: {why}", of_fail=False) for why in info.partial]
    if summary.get("post_cut_offset_bytes") is not None:
        doubts.append(Doubt("the capture behind the device was cut off"))
    if summary.get("order_doubtful"):
        doubts.append(
            Doubt(
                "packets were seen behind the device alone: the captures may be swapped, or the one"
                " before the device missed some"
            )
        )
    return tuple(doubts)


def _drift(summary: Mapping[str, Figure]) -> Drift | None:
    """Return how far clocks can have drifted beyond what was taken out."""
    if suspected_ns := summary.get("clock_drift_suspected_ns"):
        return Drift(
            abs(float(suspected_ns)),
            "the fastest packets become steadily slower or faster, as if the captures had two"
            " clocks that drift",
        )
    if summary.get("clock_offset_ns") is None:
        return None
    error_ppm, span_s = summary.get("clock_drift_ppm_error"), summary.get("span_s")
    if error_ppm is None:
        error_ppm = _MOST_DRIFT_PPM
        reason = (
            f"too few packets tell whether the clocks drift, so they may by {error_ppm:,} ppm; if"
            " you know it, say --clocks offset=TIME,drift=PPM"
        )
    else:
        reason = f"the clocks may drift by {error_ppm:g} ppm more or less than was taken out"
    lasts_s = float(summary["pre_duration_s"] or 0 if span_s is None else span_s)
    return Drift(1_000 * lasts_s * float(error_ppm), reason)


def _time_doubts(
    counts: _Counts, summary: Mapping[str, Figure], info: RunInfo
) -> tuple[Doubt, ...]:
    doubts = []
    if summary.get("latency_relative"):
        doubts.append(APART)
    if counts.of("clock_slips"):
        doubts.append(Doubt("a clock seems to have slipped: all latencies change at once"))
    if negative := counts.of("negative"):
        left = (
            "packet arrived before it left" if negative == 1 else "packets arrived before they left"
        )
        doubts.append(Doubt(f"{negative:,} {left}: the clocks disagree"))
    if is_emulated(info):
        doubts.append(Doubt("the device was emulated: its times mean nothing"))
    return tuple(doubts)
