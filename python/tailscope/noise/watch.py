"""Observation of CPUs without packets: the causes that keep them from running, by name."""

from __future__ import annotations

import queue
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tailscope.engine.analysis import Clock
from tailscope.noise.causes import causes_of
from tailscope.noise.events import read_events
from tailscope.noise.recorder import NoiseRecorder
from tailscope.noise.table import side_noise
from tailscope.store.records.watched import WatchedStalls
from tailscope.testbed.cores import confined
from tailscope.testbed.folder import RunFolder
from tailscope.testbed.places import Here
from tailscope.testbed.process import Dataplane
from tailscope.testbed.steady import SteadyClock
from tailscope.testbed.wires import no_side

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tailscope.noise.causes import Cause
    from tailscope.noise.recorder import RecordedNoise
    from tailscope.noise.table import SideNoise
    from tailscope.store.records.messages import LoopProgress, WatchResult
    from tailscope.testbed.cores import Cores

_MOST_WITHOUT_S = 5.0
_SLICE_NS = 100_000_000


@dataclass(frozen=True, kw_only=True)
class WatchPlan:
    """The CPUs to watch, and the options."""

    duration_ns: int
    stall_ns: int
    """Shortest stall: a longer gap between two readings of the counter counts."""
    noise: str
    """One of `tailscope.noise.recorder.NOISE`."""
    counter_interval_ns: int
    """Interval between readings of interrupt counters; 0 reads them only before and after."""
    disturb: tuple[str, ...] = ()
    """Disturbances of the first CPU that are made on purpose."""


@dataclass(frozen=True)
class Cost:
    """The cost of recording, from the same loops with and without it."""

    share_with: float
    share_without: float
    """Share of the time in stalls, in [0, 1], in the median tenth of a second."""
    without_s: float
    """Duration of the part without recording, which follows directly."""


@dataclass(frozen=True)
class Watched:
    """The result of an observation."""

    duration_ns: int
    side: SideNoise
    """Stalls, causes, and disturbances made on purpose."""
    causes: list[Cause]
    """Causes over all CPUs, the largest first."""
    cpu_causes: dict[int, list[Cause]]
    stalls: WatchedStalls
    noise: RecordedNoise
    cost: Cost | None
    """Cost of recording; None if no kernel events were recorded, or Ctrl-C came first."""
    interrupted: bool


def watch(
    plan: WatchPlan, cores: Cores, progress: Callable[[LoopProgress], None] | None = None
) -> Watched:
    """Watch the polling CPUs of `cores`.

    Ctrl-C ends it, and what was seen until then is returned.
    """
    from tailscope.testbed.messages import WATCH

    with confined(cores.housekeeping), RunFolder() as folder:
        record = folder.make("watch")
        options = [f"--record={record}", f"--stall-ns={plan.stall_ns}"]
        if plan.disturb:
            options.append(f"--disturb={','.join(plan.disturb)}")
        loops = Dataplane(
            "watch",
            WATCH,
            no_side().eal,
            options,
            place=Here(folder.path, mark=folder.name),
            lcores=cores.pollers,
            housekeeping=cores.housekeeping,
        )
        clock = SteadyClock()
        with loops:
            loops.wait_ready()
            recorder = NoiseRecorder(
                folder,
                cores.pollers,
                what=plan.noise,
                counter_interval_s=plan.counter_interval_ns / 1e9 or None,
            )
            with recorder:
                began_ns = clock.now_ns()
                interrupted = _wait(loops, plan.duration_ns / 1e9, progress)
                ended_ns = clock.now_ns()
                noise = recorder.finish()
            quiet_ns = clock.now_ns()
            whole = noise.events is not None and not interrupted
            if whole:
                whole = not _wait(loops, min(plan.duration_ns / 1e9, _MOST_WITHOUT_S), None)
            stopped_ns = clock.now_ns()
            loops.stop()
            result = loops.finish()
            if result is None:
                raise loops.failure()
        recorded, quiet = (began_ns, ended_ns), (quiet_ns, stopped_ns)
        return _watched(
            _side(result, noise, cores, record, recorded),
            _side(result, None, cores, record, quiet),
            noise,
            result,
            (recorded, quiet),
            interrupted=interrupted,
            with_cost=whole,
        )


def _wait(
    loops: Dataplane[LoopProgress, WatchResult],
    lasts_s: float,
    progress: Callable[[LoopProgress], None] | None,
) -> bool:
    """Wait for a while; return True if the observation was ended early."""
    from tailscope.store.records.messages import LoopProgress

    until_s = time.monotonic() + lasts_s
    try:
        while (left_s := until_s - time.monotonic()) > 0:
            try:
                event = loops.next_event(left_s)
            except queue.Empty:
                break
            if event is None:
                raise loops.failure()
            if progress is not None and isinstance(event, LoopProgress):
                progress(event)
    except KeyboardInterrupt:
        return True
    return False


def _side(
    result: WatchResult,
    noise: RecordedNoise | None,
    cores: Cores,
    record: Path,
    within_ns: tuple[int, int],
) -> SideNoise:
    from msgspec.structs import asdict

    clock = Clock(**asdict(result.clock))
    events = None
    if noise is not None and noise.events is not None:
        threads = [lcore.tid for lcore in result.lcores]
        events = read_events(noise.events, clock, cores.pollers, threads)
    return side_noise("watch", cores.pollers, clock, record, events, within_ns=within_ns)


def _watched(
    side: SideNoise,
    quiet: SideNoise,
    noise: RecordedNoise,
    result: WatchResult,
    times_ns: tuple[tuple[int, int], tuple[int, int]],
    *,
    interrupted: bool,
    with_cost: bool,
) -> Watched:
    lasted_ns, without_ns = (end - begin for begin, end in times_ns)
    cost = None
    if with_cost:
        cost = Cost(
            _usual_share(side, times_ns[0]), _usual_share(quiet, times_ns[1]), without_ns / 1e9
        )
    unrecorded = sum(lcore.stalls_unrecorded for lcore in result.lcores)
    return Watched(
        lasted_ns,
        side,
        causes_of(side.timelines, lasted_ns),
        {timeline.cpu: causes_of([timeline], lasted_ns) for timeline in side.timelines},
        _stalls(side, lasted_ns, unrecorded),
        noise,
        cost,
        interrupted,
    )


def _usual_share(side: SideNoise, within_ns: tuple[int, int]) -> float:
    """Return the share of time in stalls in the median slice, which ignores occasional work."""
    whole_ns = within_ns[1] - within_ns[0]
    slices = max(1, whole_ns // _SLICE_NS)
    start, lasted = side.stalls_ns()
    inside = np.clip((start - within_ns[0]) * slices // whole_ns, 0, slices - 1)
    total = np.bincount(inside, lasted, slices)
    return float(np.median(total)) / (whole_ns / slices * len(side.timelines))


def _stalls(side: SideNoise, lasted_ns: int, unrecorded: int) -> WatchedStalls:
    durations_ns = side.stalls_ns()[1]
    total_ns = int(durations_ns.sum())
    return WatchedStalls(
        count=len(durations_ns),
        stall_ns_total=total_ns,
        stall_ns_max=int(durations_ns.max(initial=0)),
        unrecorded=unrecorded,
        share=total_ns / (lasted_ns * len(side.timelines)),
    )
