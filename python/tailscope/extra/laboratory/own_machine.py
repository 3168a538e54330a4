"""Recordings that an agent makes of its own machine during a measurement."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tailscope.engine.analysis import Clock, Recording, load_ticks
from tailscope.exceptions import AnalysisError, CaptureError
from tailscope.experiment.run.clocks import clock_of, counter_pairs
from tailscope.experiment.run.instance import PLATFORM_PART
from tailscope.extra.laboratory.recorded import (
    MachineRecording,
    PowerReadings,
    SourceOfPower,
)
from tailscope.extra.laboratory.sightings import Sightings, probe_times
from tailscope.noise.counters import columns as counter_columns
from tailscope.noise.events import read_events, work_of_device
from tailscope.noise.recorder import NoiseRecorder
from tailscope.noise.table import columns, side_noise
from tailscope.store.parquet import write_parquet
from tailscope.store.records.run import PowerPhase, TimestampedFile
from tailscope.store.tables import PAIRS, SIGHTINGS
from tailscope.testbed.places import Here
from tailscope.testbed.tcpdump import Tap, recording

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from numpy.typing import NDArray

    from tailscope.duts.dut import Dut, Running
    from tailscope.noise.events import Events
    from tailscope.noise.recorder import RecordedNoise
    from tailscope.platforms.platform import OpenPlatform
    from tailscope.store.records.messages import CounterClock, GeneratorResult
    from tailscope.store.records.run import KernelNoise
    from tailscope.store.run import NewColumns
    from tailscope.store.tables import Table
    from tailscope.testbed.folder import Folder, RunFolder
    from tailscope.testbed.power import RecordedPower
    from tailscope.testbed.steady import SteadyClock

    Integers = NDArray[np.int64]

_SIGHTINGS_HZ = 256
_UNIX = Clock(1_000_000_000, 0, 0)
_MONO = "mono"


@dataclass(frozen=True)
class Watched:
    """The device on a machine, with its platform."""

    dut: Dut
    running: Running
    platform: OpenPlatform
    folder: Path | None
    """Folder of the recordings of its polling loops."""
    mark: str
    """Mark of its processes."""


class MachineWatch:
    """A recorder of a machine within a block."""

    def __init__(
        self,
        folder: RunFolder,
        cpus: Sequence[int],
        clock: SteadyClock,
        *,
        noise: str,
        counter_interval_s: float | None = None,
        by_counter: bool = True,
    ) -> None:
        self._folder, self._cpus, self._clock = folder, tuple(dict.fromkeys(cpus)), clock
        self._by_counter, self._since_ns = by_counter, 0
        self._recorder = NoiseRecorder(
            folder,
            self._cpus,
            what=noise,
            counter_interval_s=counter_interval_s,
            trace_clock=None if by_counter else _MONO,
            clock=clock,
        )

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record within a block."""
        with self._recorder:
            self._since_ns = self._clock.now_ns()
            yield

    def finish(self) -> RecordedNoise:
        """Stop at the end of the block, and return the recorded noise."""
        return self._recorder.finish()

    def of_device(
        self,
        noise: RecordedNoise,
        device: Watched,
        working: Sequence[int],
        captured: Path | None,
        power: RecordedPower,
    ) -> MachineRecording:
        """Make the recording of a device's machine."""
        threads = noise.threads_of(device.mark, working)
        own = noise.own_threads(PLATFORM_PART, threads)
        own |= dict.fromkeys(power.processes, "reader of power")
        work = work_of_device(
            has_links=bool(device.platform.side.links),
            in_softirqs=device.dut.in_softirqs,
            in_threads=device.running.in_threads,
        )
        counter = device.running.clock if self._by_counter else None
        seen = _seen_by_loops(device.folder, counter)
        if captured is not None:
            seen = _seen_on_links(captured)
        return self._made(
            "dut",
            noise,
            (counter, device.folder, threads, own),
            seen,
            own_work=work,
            power=power,
        )

    def of_generator(
        self, noise: RecordedNoise, result: GeneratorResult, folder: Path
    ) -> MachineRecording:
        """Make the recording of a load generator's machine."""
        working = [lcore.tid for lcore in result.lcores]
        own = noise.own_threads(PLATFORM_PART, working)
        own = {tid: what for tid, what in own.items() if tid not in working}
        own |= dict.fromkeys((result.monitor_tid, result.recorder_tid), "generator")
        seen = _sent_and_received(Recording.load(folder, clock_of(result.clock)))
        return self._made("loadgen", noise, (result.clock, folder, working, own), seen)

    def _made(
        self,
        source: str,
        noise: RecordedNoise,
        loops: tuple[CounterClock | None, Path | None, Sequence[int], Mapping[int, str]],
        seen: Sightings,
        *,
        own_work: Sequence[str] = (),
        power: RecordedPower | None = None,
    ) -> MachineRecording:
        counter, folder, threads, own = loops
        clock = _UNIX if counter is None else clock_of(counter)
        side = side_noise(
            source,
            self._cpus,
            clock,
            None if counter is None else folder,
            self._events(noise, clock, threads, own),
        )
        made = self._folder.make("recorded")
        tables: dict[str, NewColumns] = {
            "noise": columns([side]),
            "interrupts": counter_columns(noise.samples),
            "sightings": _as_columns(SIGHTINGS, seen.some(self._since_ns)),
            "pairs": _as_columns(PAIRS, counter_pairs(folder, counter)),
        }
        if power is not None:
            tables["readings"] = _reading_columns(power)
        for name, table in tables.items():
            write_parquet(made / f"{name}.parquet", table)
        kernel: KernelNoise = noise.record([side])
        return MachineRecording(
            times_by="unix" if counter is None else "tsc",
            noise=kernel,
            warnings=[*noise.warnings(), *_why_no_events(noise)],
            own_work=list(own_work),
            power=None if power is None else _power(power),
            clock_set_by_ns=self._clock.set_by_ns(),
            files={name: described(made / f"{name}.parquet") for name in tables},
        )

    def _events(
        self,
        noise: RecordedNoise,
        clock: Clock,
        threads: Sequence[int],
        own: Mapping[int, str],
    ) -> list[Events] | None:
        if noise.events is None:
            return None
        return read_events(noise.events, clock, self._cpus, threads, own)


def seen_by_links(
    platform: OpenPlatform, dut: Dut, folder: Folder, rate_pps: int
) -> tuple[Path | None, AbstractContextManager[None]]:
    """Record some of the packets that arrive at the links of a device of the kernel.

    The kernel selects them by their numbers before it copies anything.
    """
    place = platform.place
    if dut.uses_dpdk or not platform.side.links or not isinstance(place, Here):
        return None, nullcontext()
    here = Here(folder.make("sightings"), mark=folder.name)
    one_in = 1 << max(0, (rate_pps // _SIGHTINGS_HZ).bit_length())
    # The last two bytes of the number follow 8 of UDP, 4 of the probe's magic, and 6 of the number.
    only = f"udp[18:2] & {min(one_in, 1 << 16) - 1} = 0"
    tap = Tap(platform.side.links[0], place.command)
    return here.folder / "seen.pcap", recording({"seen": tap}, here, only=only)


def described(path: Path) -> TimestampedFile:
    """Return the record of a file for fetching, with its checksum."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return TimestampedFile(path=str(path), size_bytes=path.stat().st_size, sha256=digest)


def knobs_of(cpus: Sequence[int]) -> dict[str, str | None]:
    """Return this machine's settings for some CPUs, by knob."""
    from tailscope.host.audit import audit
    from tailscope.host.machine import Machine

    findings = audit(Machine(), tuple(sorted(set(cpus)))).findings
    return {finding.name: finding.as_is for finding in findings}


def _why_no_events(noise: RecordedNoise) -> list[str]:
    if noise.events is not None or noise.why_not in (None, "not requested"):
        return []
    return [f"kernel events are not recorded: {noise.why_not}"]


def _seen_by_loops(folder: Path | None, counter: CounterClock | None) -> Sightings:
    """Return the packets that our polling loops recorded."""
    if folder is None or counter is None or not (folder / "sighted_seq.npy").exists():
        return Sightings.none()
    seq = np.asarray(load_ticks(folder, "sighted_seq"), np.int64)
    when = clock_of(counter).all_at_ns(np.asarray(load_ticks(folder, "sighted_tsc"), np.int64))
    return Sightings(seq, when, when)


def _seen_on_links(capture: Path) -> Sightings:
    """Return the packets that the kernel stamped on arrival at a link."""
    try:
        seq, when = probe_times(capture)
    except (AnalysisError, CaptureError):
        # Without them the clocks are known less precisely, which is no failure.
        return Sightings.none()
    return Sightings(seq, when, when)


def _sent_and_received(recorded: Recording) -> Sightings:
    """Return the packets that a generator sent and received."""
    arrived = np.asarray(recorded.arrival_seq, np.int64)
    _, first = np.unique(arrived, return_index=True)
    seq = arrived[first]
    clock = recorded.clock
    sent = np.asarray(recorded.departure_tsc, np.int64)[seq]
    came = np.asarray(recorded.arrival_tsc, np.int64)[first]
    return Sightings(seq, clock.all_at_ns(sent), clock.all_at_ns(came))


def _as_columns(table: Table, arrays: Sequence[Integers]) -> dict[str, Integers]:
    return dict(zip(table.names, arrays, strict=True))


def _reading_columns(power: RecordedPower) -> NewColumns:
    return {
        "unix_ns": np.array([reading.unix_ns for reading in power.readings], np.int64),
        "took_ns": np.array([reading.took_ns for reading in power.readings], np.int64),
        "values": [" ".join(map(str, reading.values)) for reading in power.readings],
    }


def _power(power: RecordedPower) -> PowerReadings:
    meter = power.source
    return PowerReadings(
        source=None
        if meter is None
        else SourceOfPower(
            name=meter.name,
            includes=meter.includes,
            domains=list(meter.domains),
            range_uj=list(meter.range_uj),
        ),
        why_not=power.why_not,
        failures=len(power.failures),
        first_failure=power.failures[0] if power.failures else None,
        phases={
            name: PowerPhase(start_ns=start, end_ns=end, stretches=0)
            for name, (start, end) in power.phases.items()
        },
    )
