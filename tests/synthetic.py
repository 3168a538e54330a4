"""Runs of known latencies, written as measurements are."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import convert, structs

from tailscope.engine.analysis import Clock, Recording, analyze_recording
from tailscope.experiment.plan import RunPlan
from tailscope.experiment.run.usable import with_unusable
from tailscope.store.directory import RunWriter
from tailscope.store.machine import this_host
from tailscope.store.provenance import MeasurementRecord, measurement_info
from tailscope.store.records.base import as_content
from tailscope.store.records.dataplane import GeneratorCounts
from tailscope.store.records.explanation import ExplainedCause, Explanation
from tailscope.store.records.floor import FloorRecord, InjectedStalls, KnownDelay
from tailscope.store.records.messages import GeneratedTraffic
from tailscope.store.records.run import (
    ClockRecord,
    Instrument,
    KernelEvents,
    NoiseRecord,
    OwnWork,
    PlatformRecord,
    RunInfo,
    Stalls,
    StallsOfSides,
)

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from tailscope.noise.neighbours import Held

PACKETS = 20_000
"""Enough for p99.9, not for p99.99."""

_CLOCK = Clock(tsc_hz=1_000_000_000, tsc=0, unix_ns=1_700_000_000_000_000_000)
OPTIMISED = (
    "rcu_nocbs=1 rcu_nocb_poll irqaffinity=0 idle=poll tsc=reliable mce=ignore_ce audit=0 quiet"
)
_HOST = {
    "cpu_model": "a processor",
    "cpu_count": 4,
    "last_level_caches": "0-3",
    "kernel_command_line": "quiet",
    "kernel_flavour": "vanilla",
}


def latencies(
    seed: int, *, base_ns: int = 2_000, tail_ns: int = 20_000, share: float = 0.005
) -> NDArray[np.int64]:
    """Noise above a base, and in a share of the packets a tail, even up to twice its mean."""
    chance = np.random.default_rng(seed)
    found = base_ns + chance.integers(0, base_ns // 10, PACKETS)
    late = chance.random(PACKETS) < share
    return np.where(late, found + chance.integers(0, 2 * tail_ns, PACKETS), found)


def write_run(
    path: Path,
    latency_ns: NDArray[np.int64],
    *,
    lost: int = 0,
    dropped: int = 0,
    unsent: int = 0,
    stalled: NDArray[np.bool_] | None = None,
    stall_ns: int = 100,
    arrivals_ns: NDArray[np.int64] | None = None,
    host: dict[str, Any] | None = None,
    platform: dict[str, Any] | None = None,
    causes: dict[str, float] | None = None,
    neighbours: Held | None = None,
    info: dict[str, Any] | None = None,
    platform_name: str = "bare",
    **fields: Any,
) -> Path:
    """Write a run: packets at a constant rate, the last `lost` of which do not come back.

    Parameters
    ----------
    path : Path
    latency_ns : ndarray
        Of every packet.
    lost, dropped, unsent : int
    stalled : ndarray of bool, optional
        Packets during which the generator stalls.
    stall_ns : int
        For how long, at most: until the next of these stalls.
    arrivals_ns : ndarray, optional
        When packets come back, after the first one was sent, in place of `latency_ns`.
    platform_name : str
    host, platform, info : dict, optional
        What differs from a plain machine.
    causes : dict of str to float, optional
        What the tail is explained by.
    neighbours : Held, optional
        When other programs held the device's CPU, after the first packet was sent.
    fields
        Of the plan.
    """
    wire = "vhost" if platform_name == "vm" else "memif"
    usual = {"dut": "l2fwd", "wire": wire, "duration_ns": 1_000_000_000}
    plan = RunPlan(**{**usual, "platform": platform_name, **fields})
    gap_ns = 1_000_000_000 // plan.rate_pps
    sent = 1_000_000 + np.arange(len(latency_ns), dtype=np.int64) * gap_ns
    back = sent + latency_ns if arrivals_ns is None else 1_000_000 + arrivals_ns
    kept = np.arange(len(sent) - lost)
    order = kept[np.argsort(back[kept], kind="stable")]
    which = np.zeros(0, np.int64) if stalled is None else np.flatnonzero(stalled)
    columns = (sent, sent, order, back[order], np.zeros(0, int), sent[which] + 1)
    recording = Recording(
        _CLOCK,
        *(column.astype(np.uint64) for column in columns),
        np.full(len(which), stall_ns, np.uint64),
    )
    with RunWriter(path, draw=lambda _: "") as writer:
        analysis = analyze_recording(recording, sink=writer.sink)
        if causes is not None:
            writer.explain_by(lambda _latency, _worst: (_explained(causes), {}))
        record = _about(plan, lost, dropped, unsent, platform, events=causes is not None)
        if neighbours is not None:
            assert record.noise is not None
            noise = structs.replace(record.noise, neighbours=neighbours.record)
            record = replace(record, noise=noise)
            columns = neighbours.intervals.columns()
            first_ns = _CLOCK.unix_ns + 1_000_000
            times = {name: columns[name] + first_ns for name in ("start_ns", "end_ns")}
            writer.add_neighbours({**columns, **times})
        about = as_content(measurement_info(plan.record(), this_host(), record))
        changes = {"host": {**_HOST, **(host or {})}, **(info or {})}
        whole = convert({**about, **changes}, RunInfo)
        writer.close_packets()
        whole = with_unusable(whole, writer.path, analysis)
        writer.finish(analysis, info=whole, bucket_ns=100)
    return path


def _about(
    plan: RunPlan,
    lost: int,
    dropped: int,
    unsent: int,
    platform: dict[str, Any] | None,
    *,
    events: bool,
) -> MeasurementRecord:
    kernel_events = KernelEvents(
        clock="x86-tsc",
        clock_error_ns=0,
        lost={},
        senders_lost=0,
        untold_switches={},
        missing=(),
    )
    return MeasurementRecord(
        clock=ClockRecord(source="tsc"),
        floor=None,
        partial=(),
        warnings=(),
        instrument=instrument(unsent, lost, dropped),
        noise=NoiseRecord(
            events=kernel_events if events else None,
            events_missing_because=None,
            interrupts={},
            counter_samples=0,
            steal_ns={},
            own_work=OwnWork(instrument=(), dut=()),
        ),
        power=None,
        knobs={},
        dut=None,
        platform=convert({"name": plan.platform, **(platform or {})}, PlatformRecord),
    )


def floor_of(p50_ns: int, p999_ns: int, believed_up_to: float | None) -> dict[str, Any]:
    """The floor of an instrument."""
    record = FloorRecord(
        instrument="memif",
        rate_pps=10_000,
        duration_ns=1_000_000_000,
        measured_unix_ns=1,
        samples=10_000,
        latency_ns_p50=p50_ns,
        latency_ns_p999=p999_ns,
        latency_ns_max=p999_ns,
        quantiles=(),
        believed_up_to=believed_up_to,
        departure_error_ns_p50=0,
        departure_error_ns_p999=0,
        departure_error_ns_max=0,
        delay=KnownDelay(expected_ns=20_000, found_ns=20_000),
        stalls=InjectedStalls(
            injected=1,
            found=1,
            interrupted=0,
            duration_error_ns_p50=0,
            duration_error_ns_p99=0,
            queues_expected=1,
            queues_seen=1,
        ),
    )
    return as_content(record)


def info_of(**sections: Any) -> RunInfo:
    """``run.json`` of a measurement, with these sections instead of the usual ones."""
    plan = RunPlan(dut="l2fwd")
    record = _about(plan, 0, 0, 0, None, events=False)
    usual = as_content(measurement_info(plan.record(), this_host(), record))
    return convert({**usual, "host": {}, **sections}, RunInfo)


def instrument(unsent: int = 0, lost: int = 0, dropped: int = 0) -> Instrument:
    """What an instrument says of itself that has stalled once."""
    return Instrument(
        unsent=unsent,
        unsent_generator=0,
        lost_in_dut=dropped,
        lost_in_instrument=0,
        lost_where_unknown=lost - dropped,
        dropped_by_dut=dropped,
        stalls=StallsOfSides(
            generator=Stalls(count=1, stall_ns_total=100, stall_ns_max=100, unrecorded=0)
        ),
        cpus={"generator": "0", "DuT": "1"},
        raised_priority=True,
        generator=GeneratorCounts(
            complete=True,
            hugepages=False,
            started_tsc=0,
            duration_ns=0,
            lcores=[],
            ports=[],
            gen=GeneratedTraffic(
                sent=0,
                matched=0,
                unsent=unsent,
                duplicated=0,
                corrupt=0,
                foreign=0,
                ambiguous=0,
                unrecorded=0,
                warm_up_sent=0,
                warm_up_received=0,
            ),
        ),
    )


def _explained(causes: dict[str, float]) -> Explanation:
    listed = tuple(
        ExplainedCause(part="dut", cause=cause, packets=1, total_ns=1, share=share, largest_ns=1)
        for cause, share in causes.items()
    )
    return Explanation(
        quantile=0.999,
        threshold_ns=1,
        service_ns=1,
        packets=1,
        latency_ns=0,
        excess_ns=0,
        parts_ns={"dut": 0},
        causes=listed,
    )


def write_campaign(path: Path, cells: list[dict[str, Any]], **content: Any) -> Path:
    """Write ``campaign.json`` over runs that are there."""
    whole = [{"name": "a", "state": "done", "reason": None, "runs": [], **cell} for cell in cells]
    (path / "campaign.json").write_text(json.dumps({"format": 1, "cells": whole, **content}))
    return path


def captured_runs(folder: Path, count: int) -> list[Path]:
    """Runs of simulated captures, of which nobody said where they are from."""
    from tailscope.cli import main

    runs = [folder / f"run-{seed}" for seed in range(1, count + 1)]
    for seed, run in enumerate(runs, 1):
        captures = folder / f"captures-{seed}"
        assert main(["simulate", str(captures), "--seed", str(seed), "--packets", "2000"]) == 0
        pair = [str(path) for side in ("pre", "post") for path in captures.glob(f"*-{side}-*")]
        assert main(["analyze", *pair, "--out", str(run)]) == 0
    return runs
