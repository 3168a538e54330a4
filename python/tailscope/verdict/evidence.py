"""What a run knows of a service level: what became of every packet that was sent."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from tailscope.exceptions import RunCorruptError, RunError, UsageError
from tailscope.store.run import is_emulated

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from tailscope.analysis import Figure, Series
    from tailscope.store.records.run import RunInfo
    from tailscope.store.run import Run
    from tailscope.verdict.slo import Level, Term

    Values = NDArray[np.float64]

__all__ = ["Doubt", "PacketSample", "RunSample", "evidence_of", "read_evidence"]

_FAILED = ("late", "corrupt")


@dataclass(frozen=True)
class Doubt:
    """Why a verdict cannot be believed.

    Attributes
    ----------
    reason : str
    of_pass, of_fail : bool
        Which one.
    """

    reason: str
    of_pass: bool = True
    of_fail: bool = True


@dataclass(frozen=True)
class PacketSample:
    """The packets of a run: as they are, or with the least that each can have taken.

    Attributes
    ----------
    values_ns : ndarray of float64, shape (n,)
        What each packet that was sent took, in the order of sending; infinite where it did not come
        back in time, or changed.
    lost : int
        Of these, packets that never came back.
    counts : Mapping of str to int
        Of packets: ``lost``, ``dropped``, ``late``, ``reordered``, ``duplicated``, ``corrupt``.
    fastest_ns : float or None
        What variation counts from, if it is not the fastest packet: of packets as they are, the
        least that the fastest can have taken, and the other way round.
    """

    values_ns: Values
    lost: int
    counts: Mapping[str, int]
    fastest_ns: float | None = None

    def __post_init__(self) -> None:
        values = self.values_ns
        if np.isnan(values).any():
            raise UsageError("latency: got NaN, expected nanoseconds")
        if len(values) and values.min() < 0:
            raise UsageError(f"latency: got {values.min():g} ns, expected no negative one")


@dataclass(frozen=True)
class RunSample:
    """A run, as far as a service level is concerned.

    Attributes
    ----------
    name : str
    rate_pps : float or None
        At which packets were sent.
    as_is : PacketSample
        The upper end: all of a latency is the device's.
    least : PacketSample or None
        The lower end: each latency less what the instrument stalled meanwhile, without packets that
        it lost or could not send, and without lost ones that captures do not prove. None where that
        is the same, or it does not tell.
    spoilt : str
        What the instrument may have spoilt.
    resolution_ns : int
        Of the timestamps.
    floor : sequence of (quantile, ns)
        What the instrument takes with nothing in between, outside of its stalls; empty where it is
        not known.
    doubts, time_doubts : tuple of Doubt
        Of all terms, and of those that speak of times.
    """

    name: str
    rate_pps: float | None
    as_is: PacketSample
    least: PacketSample | None = None
    spoilt: str = ""
    resolution_ns: int = 1
    floor: tuple[tuple[float, float], ...] = ()
    doubts: tuple[Doubt, ...] = ()
    time_doubts: tuple[Doubt, ...] = ()

    def doubts_of(self, term: Term) -> list[Doubt]:
        """What stands against a verdict on a term."""
        found = list(self.doubts)
        if term.is_time:
            found += self.time_doubts
            if term.limit < self.resolution_ns:
                found.append(Doubt(f"timestamps are as coarse as {self.resolution_ns} ns"))
            found += self._below_floor(term)
        return found

    def _below_floor(self, term: Term) -> list[Doubt]:
        """A limit that the instrument alone exceeds: to meet it says something, to fail nothing."""
        wanted = 1.0 if term.quantile is None else term.quantile
        reached = [ns for q, ns in self.floor if q <= wanted]
        if not reached or term.kind == "pdv" or term.is_met_by(reached[-1]):
            return []
        reason = f"the instrument alone takes {reached[-1] / 1000:g} µs there, more than the limit"
        return [Doubt(reason, of_pass=False)]


def read_evidence(path: Path, level: Level, *, name: str | None = None) -> RunSample:
    """Read what a run directory knows of a service level.

    Parameters
    ----------
    path : Path
        The run directory.
    level : Level
    name : str, optional
        What the run is called; the name of the directory by default.

    Raises
    ------
    RunError
        If it is no run, was not finished, is not what was written, or lacks a figure.
    """
    from tailscope.store.reader import read_run

    run = read_run(path, label=name)
    if any(term.name == "dropped" for term in level.terms):
        _Counts(run.summary, path).needed("dropped_by_dut")
    return evidence_of(path, run)


def evidence_of(path: Path, run: Run) -> RunSample:
    """What a run that was read knows of its packets.

    Parameters
    ----------
    path : Path
        Where its single packets are.
    run : Run

    Raises
    ------
    RunError
        If it is not what was written, or lacks a figure.
    """
    from tailscope.store import layout
    from tailscope.store.reader import read_packets

    summary, info = run.summary, run.info
    if not (path / layout.LATENCY).exists():
        raise RunError(
            f"{path / layout.LATENCY}: missing",
            hint="a verdict counts single packets: keep this file with the run",
        )
    packets = read_packets(path, info)
    counts = _Counts(summary, path)
    if len(packets.latency_ns) != counts.of("count"):
        raise RunCorruptError(
            f"{path}: latency.parquet: expected {counts.of('count')} packets, as count says,"
            f" got {len(packets.latency_ns)}"
        )
    least, spoilt = _least(packets, counts)
    rate = summary.get("pre_rate_pps")
    return RunSample(
        name=run.label,
        rate_pps=float(rate) if isinstance(rate, int | float) and rate > 0 else None,
        as_is=_reading(packets, counts, packets.latency_ns, _least_ns(packets), with_spoilt=True),
        least=least,
        spoilt=spoilt,
        resolution_ns=_resolution_ns(summary),
        floor=_floor(info),
        doubts=_doubts(summary, info),
        time_doubts=_time_doubts(counts, summary, info),
    )


class _Counts:
    """The counts of a summary; a measurement has more than captures."""

    def __init__(self, summary: Mapping[str, Figure], path: Path) -> None:
        self._summary, self._path = summary, path

    def of(self, name: str) -> int:
        """A count; 0 where the run does not have it."""
        return 0 if self._summary.get(name) is None else self.needed(name)

    def unproven(self) -> int:
        """Lost packets that may have come out in another form; older runs do not tell."""
        lost, proven = self.of("lost"), self._summary.get("lost_proven")
        return 0 if proven is None else lost - self.of("lost_proven")

    def needed(self, name: str) -> int:
        found = self._summary.get(name)
        if not isinstance(found, int) or found < 0:
            raise RunError(
                f"{self._path}: summary.json: {name}: expected a count, got {found!r}",
                hint="captures and some devices do not record it; leave that term out",
            )
        return found


def _least_ns(packets: Series) -> NDArray[np.uint64]:
    """The least that each packet can have taken: without what the instrument stalled meanwhile."""
    stall_ns = packets.instrument_stall_ns
    return packets.latency_ns if stall_ns is None else packets.latency_ns - stall_ns


def _least(packets: Series, counts: _Counts) -> tuple[PacketSample | None, str]:
    """The lower end of what packets took, and what the instrument has spoilt."""
    stall_ns = packets.instrument_stall_ns
    spoilt = {
        "samples that overlap its stalls": 0 if stall_ns is None else np.count_nonzero(stall_ns),
        "packets that it lost": counts.of("lost_in_instrument"),
        "packets that it could not send": counts.of("unsent"),
    }
    said = " and ".join(f"{count:,} {what}" for what, count in spoilt.items() if count)
    reasons = [f"the instrument, {said}"] if said else []
    if unproven := counts.unproven():
        reasons.append(
            f"{unproven:,} packets that are not proven to be lost: as many are only known from"
            " behind the device, perhaps in another form"
        )
    if not reasons:
        return None, ""
    least_ns, latency_ns = _least_ns(packets), packets.latency_ns
    return _reading(packets, counts, least_ns, latency_ns, with_spoilt=False), "; ".join(reasons)


def _reading(
    packets: Series,
    counts: _Counts,
    taken_ns: NDArray[np.uint64],
    other_end_ns: NDArray[np.uint64],
    *,
    with_spoilt: bool,
) -> PacketSample:
    dropped = counts.of("dropped_by_dut")
    lost = counts.of("lost") - dropped
    lost += counts.of("unsent") if with_spoilt else -counts.of("lost_in_instrument")
    if not with_spoilt:
        lost = max(0, lost - counts.unproven())
    failed = lost + sum(map(counts.of, _FAILED))
    return PacketSample(
        _in_order(packets.seq, taken_ns, failed),
        lost,
        {
            "lost": lost,
            "dropped": dropped,
            **{name: counts.of(name) for name in ("reordered", "duplicated", "corrupt", "late")},
        },
        float(other_end_ns.min()) if len(other_end_ns) else None,
    )


def _in_order(seq: Any, taken_ns: Any, failed: int) -> Values:
    """Latencies by position, with `failed` infinite ones where packets are missing.

    Which of the missing ones failed is not known where others were left out on purpose. They are
    put at the first gaps, and behind the last packet: all together, as the worst burst would be.
    """
    if not failed:
        return np.asarray(taken_ns, np.float64)
    missing = np.empty(0, np.int64)
    if len(seq):
        first = int(seq.min())
        is_there = np.zeros(int(seq.max()) - first + 1, bool)
        is_there[seq.astype(np.int64) - first] = True
        missing = np.flatnonzero(~is_there)[:failed] + first
    behind = np.full(failed - len(missing), np.iinfo(np.int64).max)
    where = np.concatenate([seq.astype(np.int64), missing, behind])
    values = np.concatenate([taken_ns.astype(np.float64), np.full(failed, np.inf)])
    return values[np.argsort(where, kind="stable")]


def _resolution_ns(summary: Mapping[str, Figure]) -> int:
    """What the times of the captures resolve, rounded up; 1 where it is finer, or not said."""
    from tailscope.units import duration_ns

    found = 1
    if isinstance(step := summary.get("resolution_ns"), int | float):
        found = max(found, ceil(step))
    for side in ("pre", "post"):
        text = summary.get(f"{side}_resolution")
        try:
            found = max(found, duration_ns(str(text), "resolution"))
        except UsageError:
            continue
    return found


def _floor(info: RunInfo) -> tuple[tuple[float, float], ...]:
    quantiles = () if info.floor is None else info.floor.quantiles
    return tuple((each.q, each.alone_ns) for each in quantiles)


def _doubts(summary: Mapping[str, Figure], info: RunInfo) -> tuple[Doubt, ...]:
    found = [Doubt(f"the run is partial: {why}", of_fail=False) for why in info.partial]
    if summary.get("post_cut_offset_bytes") is not None:
        found.append(Doubt("the capture behind the device was cut off"))
    return tuple(found)


def _time_doubts(
    counts: _Counts, summary: Mapping[str, Figure], info: RunInfo
) -> tuple[Doubt, ...]:
    found = []
    if summary.get("latency_relative"):
        found.append(
            Doubt("the clocks are apart: latencies are only known above that of the fastest packet")
        )
    if negative := counts.of("negative"):
        left = (
            "packet arrived before it left" if negative == 1 else "packets arrived before they left"
        )
        found.append(Doubt(f"{negative:,} {left}: the clocks disagree"))
    if is_emulated(info):
        found.append(Doubt("the device was emulated: its times mean nothing"))
    return tuple(found)
