"""Calibration of an instrument: its floor, a known delay, and stalls at known times."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tailscope.engine.analysis import load_ticks
from tailscope.exceptions import EvidenceError
from tailscope.experiment.plan import RunPlan
from tailscope.experiment.run.execute import execute_whole
from tailscope.experiment.search.truth import Queue, StallRecovery, find_injected, find_queues
from tailscope.store.floor import FLOOR_GRID, believed_up_to
from tailscope.store.records.floor import FloorQuantile, FloorRecord, InjectedStalls, KnownDelay
from tailscope.units import QUANTILES, duration_text
from tailscope.words.neighbours import held_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tailscope.engine.analysis import Analysis
    from tailscope.experiment.run.measured import Measured
    from tailscope.store.records.messages import GeneratorProgress
    from tailscope.testbed.cores import Cores

    Progress = Callable[[str, GeneratorProgress], None]

DELAY_NS = 20_000
_MOST_ERROR = 0.5
STALLS = {"stall-period": "20ms", "stall-jitter": "1ms", "stall-duration": "5us,50us,500us,5ms"}


def calibrate(
    wire: str,
    wire_options: Mapping[str, str],
    cores: Cores,
    *,
    rate_pps: int,
    duration_ns: int,
    progress: Progress | None = None,
) -> FloorRecord:
    """Measure the floor of this machine and wire, and how far it can be believed.

    Four runs: the generator joined with itself; the device `delay` that holds nothing; the same
    holding every packet for 20 µs; and with stalls of 5 µs to 5 ms, 20 ms apart.
    """
    base = _loop(wire, wire_options, rate_pps=rate_pps, duration_ns=duration_ns)
    half = replace(base, dut="delay", duration_ns=max(1, duration_ns // 2))

    def run(
        what: str, plan: RunPlan, inspect: Callable[[Measured], None] | None = None
    ) -> Measured:
        tell = None if progress is None else (lambda event: progress(what, event))
        return execute_whole(plan, cores, progress=tell, inspect=inspect)

    loop = run("floor", base).analysis
    through = run("delay of 0 ns", half)
    held = run("delay of 20 µs", replace(half, dut_options={"law": f"fixed:{DELAY_NS}ns"}))
    delay = known_delay(through, held)
    truth: list[InjectedStalls] = []
    run("stalls", replace(half, dut_options=STALLS), lambda found: truth.append(_truth(found)))
    quantiles = _quantiles(loop)
    figures = {
        f"{kept}_{name}": loop.summary[f"{figure}_{name}"]
        for kept, figure in (
            ("latency_ns", "latency_ns"),
            ("departure_error_ns", "untainted_departure_error_ns"),
        )
        for name in ("p50", "p999", "max")
    }
    return FloorRecord(
        instrument=base.device.instrument,
        rate_pps=rate_pps,
        duration_ns=duration_ns,
        measured_unix_ns=time.time_ns(),
        samples=int(loop.summary["count"] or 0),
        **figures,  # type: ignore[arg-type]
        quantiles=quantiles,
        believed_up_to=believed_up_to(quantiles),
        delay=delay,
        stalls=truth[0],
    )


def short_floor(wire: str, *, rate_pps: int, duration_ns: int) -> tuple[FloorQuantile, ...]:
    """Measure the floor alone, to look at rather than to keep."""
    plan = _loop(wire, {}, rate_pps=rate_pps, duration_ns=duration_ns)
    plan = replace(plan, warm_up_ns=duration_ns // 4)
    return _quantiles(execute_whole(plan, plan.cores()).analysis)


def _loop(
    wire: str, wire_options: Mapping[str, str], *, rate_pps: int, duration_ns: int
) -> RunPlan:
    """Plan a run of the generator joined with itself."""
    return RunPlan(
        dut="loop",
        wire=wire,
        wire_options=dict(wire_options),
        rate_pps=rate_pps,
        duration_ns=duration_ns,
        warm_up_ns=min(duration_ns, 1_000_000_000),
    )


def _quantiles(loop: Analysis) -> tuple[FloorQuantile, ...]:
    return tuple(
        FloorQuantile(**quantile._asdict(), least_ns=loop.summary[f"least_latency_ns_{name}"])  # type: ignore[arg-type]
        for quantile, name in zip(loop.quantiles(FLOOR_GRID), QUANTILES, strict=True)
    )


def known_delay(through: Measured, held: Measured) -> KnownDelay:
    """Compare runs through a device that holds no packet, and one that holds each for 20 µs."""
    found_ns = _median(held.analysis) - _median(through.analysis)
    if abs(found_ns - DELAY_NS) > _MOST_ERROR * DELAY_NS:
        busy = held_text(held.info) or held_text(through.info)
        raise EvidenceError(
            f"calibration: got {duration_text(found_ns)} for a known delay of"
            f" {duration_text(DELAY_NS)}{f'; {busy}' if busy else ''}",
            code="known-delay",
            hint="nothing was written, and a floor that was kept before stays: calibrate again when"
            " the machine is quiet",
        )
    return KnownDelay(expected_ns=DELAY_NS, found_ns=found_ns)


def _median(analysis: Analysis) -> int:
    return int(analysis.summary["latency_ns_p50"] or 0)


def check_stalls(measured: Measured) -> tuple[StallRecovery, Queue]:
    """Compare what both sides wrote down with the stalls that the device `delay` injected."""
    folder = measured.dut_folder
    assert folder is not None, "a device that stalls has written down when"
    assert measured.recording is not None, "the generator has recorded"
    truth = [load_ticks(folder, f"injected_{name}_tsc") for name in ("start", "duration")]
    log = [load_ticks(folder, f"stall_{name}_tsc") for name in ("start", "duration")]
    found = find_injected(*truth, *log, tsc_hz=measured.recording.clock.tsc_hz)
    return found, find_queues(measured.recording, *truth)


def _truth(measured: Measured) -> InjectedStalls:
    import numpy as np

    found, queue = check_stalls(measured)
    errors = found.duration_error_ns
    p50, p99 = (
        map(int, np.quantile(errors, [0.5, 0.99], method="inverted_cdf"))
        if len(errors)
        else (None, None)
    )
    return InjectedStalls(
        injected=found.injected,
        found=found.found,
        interrupted=found.interrupted,
        duration_error_ns_p50=p50,
        duration_error_ns_p99=p99,
        queues_expected=queue.expected,
        queues_seen=queue.seen,
    )
