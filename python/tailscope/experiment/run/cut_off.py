"""Measurements that end before their generator can say what it counted: what its arrays tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import asdict, replace

from tailscope.engine.analysis import Clock, Recording, load_ticks
from tailscope.store.records.messages import DirectionCounts, GeneratedTraffic, GeneratorResult
from tailscope.store.records.run import Stalls

if TYPE_CHECKING:
    from pathlib import Path

    from tailscope.store.records.messages import ReadyEvent
    from tailscope.store.records.recorded import RecordedRun

_BACK = "back"


def recorded_packets(folder: Path) -> int:
    """Count the departures that a generator has recorded; 0 if it did not begin."""
    is_there = (folder / "departure_tsc.npy").exists()
    return len(load_ticks(folder, "departure_tsc")) if is_there else 0


def result_of(ready: ReadyEvent, folder: Path) -> GeneratorResult:
    """Make the result of a generator that gave none, of what it has recorded."""
    clock = Clock(**asdict(ready.clock))
    back = folder / _BACK
    return GeneratorResult(
        program="gen",
        complete=False,
        hugepages=False,
        started_tsc=ready.clock.tsc,
        duration_ns=0,
        lcores=[],
        ports=[],
        clock=ready.clock,
        partial=[],
        record=[str(path.relative_to(folder)) for path in folder.glob("**/*.npy")],
        monitor_tid=0,
        gen=GeneratedTraffic(
            **asdict(_counts(folder, clock)), back=_counts(back, clock) if back.exists() else None
        ),
    )


def counted(run: RecordedRun, folder: Path, recording: Recording) -> RecordedRun:
    """Add what the arrays tell to what was known when a measurement began."""
    instrument = run.info.instrument
    assert instrument is not None, "it was measured"
    if instrument.generator.lcores:
        # Its generator, or its arrays alone, ended early: the rest is known.
        return run
    counts = _counts(folder, recording.clock)
    hz = recording.clock.tsc_hz
    lasted_ns = [int(ticks) * 1_000_000_000 // hz for ticks in recording.stall_duration_tsc]
    stalls = Stalls(
        count=len(lasted_ns),
        stall_ns_total=sum(lasted_ns),
        stall_ns_max=max(lasted_ns, default=0),
        unrecorded=0,
    )
    instrument = replace(
        instrument,
        unsent=counts.unsent,
        generator=replace(instrument.generator, gen=GeneratedTraffic(**asdict(counts))),
        stalls=replace(instrument.stalls, generator=stalls),
    )
    return replace(run, info=replace(run.info, instrument=instrument), came=counts.matched)


def _counts(folder: Path, clock: Clock) -> DirectionCounts:
    recording = Recording.load(folder, clock, cut_off=True)
    sent, arrived = len(recording.departure_tsc), len(recording.arrival_seq)
    # Packets that arrived again are found when they are matched.
    return DirectionCounts(
        sent=sent,
        matched=min(sent, arrived),
        unsent=len(load_ticks(folder, "unsent_tsc")),
        duplicated=max(0, arrived - sent),
        corrupt=len(recording.corrupt_seq),
        foreign=0,
        ambiguous=0,
        unrecorded=0,
        warm_up_sent=0,
        warm_up_received=0,
    )
