"""``run.json``: where a run comes from, and the checksums of its files, itself included."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from tailscope.store.layout import RUN_FORMAT, is_inside
from tailscope.store.records.about import AboutRecord
from tailscope.store.records.base import Count, Record, Section
from tailscope.store.records.clocks import MachineClock
from tailscope.store.records.dataplane import DutCounts, GeneratorCounts
from tailscope.store.records.floor import FloorRecord
from tailscope.store.records.host import HostRecord
from tailscope.store.records.plan import AnalysisPlan, ImportPlan, MeasurementPlan
from tailscope.store.records.stages import StagesRecord

ClockSource: TypeAlias = Literal[
    "capture-file", "imported", "tsc", "kernel-software", "kernel-hardware", "nic-hardware"
]
"""Source of the times."""

KnownFrom: TypeAlias = Literal["events", "stalls", "run delay"]
"""Source of the times at which neighbours held a CPU, or of how long they held it."""


class Input(Section, frozen=True, kw_only=True):
    """A file that was analysed or imported."""

    file: str
    """Its path; `-` for standard input."""
    size_bytes: Count | None
    """Its size; null for standard input."""
    modified_unix_ns: Count | None
    """Time of the last change; null for standard input."""


class ClockRecord(Section, frozen=True, kw_only=True, omit_defaults=True):
    """The clock of the times in a run."""

    source: ClockSource
    """`capture-file`, `imported` (unknown: figures of others), or `tsc`: the time-stamp counter,
    read around sending and receiving; for a laboratory see [testbed.md](../testbed.md)."""
    pre_resolution: str | None = None
    """Coarsest unit of the timestamps before the device; for captures."""
    post_resolution: str | None = None
    """Coarsest unit of the timestamps behind the device; for captures."""
    tsc: Count | None = None
    """A reading of the time-stamp counter."""
    tsc_hz: Count | None = None
    """The counter's rate."""
    unix_ns: Count | None = None
    """The time of that reading."""
    timestamp_type: str | None = None
    """Method by which the timestamper takes times; in a laboratory."""


class Stalls(Section, frozen=True, kw_only=True):
    """Stalls of polling loops."""

    count: Count
    """Number of stalls."""
    stall_ns_total: Count
    """Their total duration."""
    stall_ns_max: Count
    """The longest one."""
    unrecorded: Count
    """Stalls that found no room in the log."""


class StallsOfSides(Section, frozen=True, kw_only=True, omit_defaults=True):
    """Stalls of the instrument, and of the device where it is one of ours."""

    generator: Stalls
    """The generator's stalls."""
    dut: Stalls | None = None
    """The device's stalls, if its loops are ours."""


class SideCounts(Section, frozen=True, kw_only=True):
    """A number for each side."""

    pre: Count
    """Before the device."""
    post: Count
    """Behind the device."""


class TimestampedFile(Section, frozen=True, kw_only=True):
    """A capture of the timestamper."""

    path: str
    """Path on the timestamper."""
    size_bytes: Count
    """Its size."""
    sha256: str
    """Its checksum."""


class CapturedFiles(Section, frozen=True, kw_only=True):
    """The timestamper's captures."""

    pre: TimestampedFile
    """The capture before the device."""
    post: TimestampedFile
    """The capture behind the device."""


class PortClocks(Section, frozen=True, kw_only=True):
    """The clocks of a timestamper's ports, where each has its own.

    Both are read at the same moments throughout the recording, and times behind the device are
    brought to the clock before it.
    """

    pre: str
    """The clock before the device, such as `ptp0`."""
    post: str
    """The clock behind the device."""
    readings: Count
    """Number of readings of both."""
    left_out: Count
    """Readings that took more than twice as long as usual, or failed: they were not used."""
    offset_ns: int
    """Lead of the clock behind the device at the first reading."""
    drift_ppb: float
    """Mean drift of that clock, in parts per 10⁹."""
    pieces: Count
    """Number of straight pieces of the line that was taken out."""
    residual_ns: Count
    """The largest distance of a reading from that line."""
    error_ns: Count
    """The same with what the reading itself may be off by: at no reading was the line further
    from the truth."""


class TimestamperRecord(Section, frozen=True, kw_only=True, omit_defaults=True):
    """The machine that watches both sides of the device in a laboratory."""

    method: str
    """`socket`, `tcpdump` or `stamp`."""
    dropped: SideCounts
    """Packets that it could not record."""
    files: CapturedFiles
    """Files of the packets that it recorded."""
    port_clocks: PortClocks | None = None
    """The clocks of its two ports, where each has its own; missing where both have one, or the
    kernel took times."""


class SentTraffic(Section, frozen=True, kw_only=True, omit_defaults=True):
    """Traffic that the generator was asked for, and how it sent it; as in `summary.json`."""

    asked_gap_ns_mean: float | None = None
    """As in `summary.json`; null of a single packet of a capture."""
    asked_burst_gap_ns: Count | None = None
    """As in `summary.json`; null without bursts, as the next five."""
    burst_gap_ns_min: Count | None = None
    """As in `summary.json`."""
    burst_gap_ns_mean: float | None = None
    """As in `summary.json`."""
    burst_gap_ns_max: Count | None = None
    """As in `summary.json`."""
    asked_burst_period_ns_mean: float | None = None
    """As in `summary.json`."""
    burst_period_ns_mean: float | None = None
    """As in `summary.json`."""
    asked_frame_bytes_mean: float | None = None
    """As in `summary.json`; null where a capture was sent."""
    frame_bytes_mean: float | None = None
    """As in `summary.json`."""


class Instrument(Section, frozen=True, kw_only=True, omit_defaults=True):
    """The instrument of a measurement."""

    unsent: Count
    """As in `summary.json`."""
    unsent_generator: Count | None = None
    """As in `summary.json`; not in a laboratory."""
    lost_in_dut: Count
    """As in `summary.json`."""
    lost_in_instrument: Count
    """As in `summary.json`."""
    lost_where_unknown: Count
    """As in `summary.json`."""
    dropped_by_dut: Count | None
    """As in `summary.json`."""
    stalls: StallsOfSides
    """Stalls of both sides."""
    cpus: dict[str, str]
    """The CPUs that polled: those of the `generator`, and of the `DuT`."""
    raised_priority: bool
    """True if the generator ran at a higher priority than other programs."""
    generator: GeneratorCounts
    """The generator's own result ([dataplane.md](../dataplane.md))."""
    timestamper: TimestamperRecord | None = None
    """The timestamper of a laboratory; only there."""
    direction: Literal["forth", "back"] | None = None
    """Of a run in two directions, the one that this is: `forth` from the generator's first port to
    its second, `back` the other way."""
    traffic: SentTraffic | None = None
    """Traffic asked for, and traffic sent; null in a laboratory."""

    @property
    def lost_elsewhere(self) -> int:
        """Packets lost elsewhere than in the instrument, and not dropped on purpose."""
        return self.lost_in_dut + self.lost_where_unknown - (self.dropped_by_dut or 0)


class KernelEvents(Section, frozen=True, kw_only=True):
    """Kernel events that were recorded."""

    clock: str
    """The trace's clock."""
    clock_error_ns: Count
    """Uncertainty of that clock; 0 for the packets' own counter."""
    lost: dict[str, Count]
    """Events lost on each CPU."""
    senders_lost: Count
    """Lost events that say who interrupts whom."""
    untold_switches: dict[str, Count]
    """For each CPU, task switches that the kernel did not report although it lost nothing; some
    kernels leave out a few in a thousand."""
    missing: tuple[str, ...]
    """Events that this kernel does not have, or whose tracer is in use by others."""


class KernelNoise(Section, frozen=True, kw_only=True):
    """A recording of the events that keep CPUs from their work."""

    events: KernelEvents | None
    """Kernel events; null where none were recorded."""
    events_missing_because: str | None
    """Reason why no kernel events were recorded."""
    interrupts: dict[str, dict[str, Count]]
    """Increments of `/proc/interrupts` and `/proc/softirqs` during the measurement, by name and
    CPU."""
    counter_samples: Count
    """Number of times that these counters were read."""
    steal_ns: dict[str, Count]
    """Time that a hypervisor took from each CPU, as far as `/proc/stat` knows."""


class OwnWork(Section, frozen=True, kw_only=True):
    """Prefixes of causes that are a side's own work, not noise."""

    instrument: tuple[str, ...]
    """Those of the instrument."""
    dut: tuple[str, ...]
    """Those of the device."""


class NeighbourProgram(Section, frozen=True, kw_only=True):
    """A neighbour: a program that tailscope neither started nor was told of."""

    name: str
    """Its name."""
    run_ns: Count
    """Time that it ran on the CPUs of the device."""


class NeighboursRecord(Section, frozen=True, kw_only=True):
    """Neighbours of the device: other programs on its CPUs."""

    known_from: KnownFrom | None
    """`events`: the kernel's; `stalls`: those of the device's loops, as long as its threads waited
    for their CPU; `run delay`: how long these waited, without when. Null if nothing is known."""
    unknown_because: str | None
    """Reason why nothing is known."""
    held_ns: Count
    """Upper bound on the time that neighbours held the device's CPUs."""
    watched_ns: Count
    """Time that they were watched."""
    programs: tuple[NeighbourProgram, ...]
    """Those that ran on these CPUs, the longest first, at most five."""
    sampling_ns: Count
    """Time that reading all this from `/proc` took."""
    unusable: tuple[str, ...] = ()
    """Quantiles of the latency, such as `p50`, that may be the neighbours': the least that they can
    have been without is more than a tenth below their interval; `loss` if more than a tenth of it
    may be theirs."""

    @property
    def is_exact(self) -> bool:
        """Return whether it is known when neighbours held a CPU, and not only for how long."""
        return self.known_from in ("events", "stalls")


class NoiseRecord(KernelNoise, frozen=True, kw_only=True):
    """Noise recorded during a measurement."""

    own_work: OwnWork
    """Prefixes of causes that are a side's own work, not noise."""
    neighbours: NeighboursRecord | None = None
    """Other programs on the device's CPUs; null without a device, and in a
    laboratory."""
    stages: StagesRecord | None = None
    """Recording of the path of packets through the device; null if there is none."""
    stages_missing_because: str | None = None
    """Reason why there is none, if it was asked for where possible."""
    elsewhere_ns: dict[str, Count] | None = None
    """Time that a device that is a program of others ran on each CPU that is not one of its own, if
    it did so for longer than on these: what kept it from its work is not known then. Null
    otherwise."""


class MachineInfo(Section, frozen=True, kw_only=True, omit_defaults=True):
    """A machine of a laboratory, beyond its fingerprint."""

    clock: MachineClock
    """Its clock, and how it was brought to that of the captures."""
    knobs: dict[str, str | None]
    """Its settings: each knob of [host.md](../host.md); null where one cannot be read."""
    noise: KernelNoise | None = None
    """Noise on the polling CPUs of the load generator. Of the device, that is `noise`
    of the run."""


class PowerPhase(Section, frozen=True, kw_only=True):
    """A phase of a measurement of power."""

    start_ns: Count
    """Its beginning, on the clock of the packets."""
    end_ns: Count
    """Its end."""
    stretches: Count
    """Stretches of different power within it."""


class PowerRecord(Section, frozen=True, kw_only=True, omit_defaults=True):
    """Readings of power; without a source there are only the first two fields."""

    source: str | None
    """The source, as `--power` names it; null without one."""
    missing_because: str | None = None
    """Reason why there is no source."""
    includes: str | None = None
    """Coverage of the readings: domains of RAPL, the whole server, or what the command measures."""
    readings: Count | None = None
    """Number of readings."""
    readings_failed: Count | None = None
    """Number of readings that failed."""
    reading_ns_p50: Count | None = None
    """Median duration of a reading."""
    reading_ns_max: Count | None = None
    """Longest duration of a reading."""
    phases: dict[str, PowerPhase] | None = None
    """The phases by name."""
    figures: dict[str, float | str | None] | None = None
    """The figures of power in `summary.json`."""
    reasons: dict[str, str] | None = None
    """Reasons why figures are null, by their names."""

    def __post_init__(self) -> None:
        if (self.source is None) != (self.figures is None):
            raise ValueError("figures: expected with a source of power, and only with one")


class Written(Section, frozen=True, kw_only=True):
    """A setting of the host that was written for the run."""

    knob: str
    """The knob."""
    path: str
    """The file."""
    original: str | None
    """Its content before; null where there was none, or it could not be read."""
    wanted: str
    """The content that was written."""
    refused: str | None
    """Reason why the kernel refused it; null if it did not."""


class DutRecord(Section, frozen=True, kw_only=True):
    """The device under test."""

    name: str
    """Its name."""
    instance: Count | None
    """Its number, if several run side by side; null otherwise."""
    version: str | None
    """Its version, as it reports it."""
    configuration: str | tuple[object, ...]
    """The commands and files of its set-up."""
    result: DutCounts | None
    """Its own counts, as it reports them; null where it reports none."""
    rules_sha256: str | None = None
    """SHA-256 of the rules by which it filters, of several files one behind the other in order of
    their names; null without rules."""


class PlatformRecord(Section, frozen=True, kw_only=True, omit_defaults=True):
    """The platform of the device."""

    name: str
    """Its name."""
    container: str | None = None
    """Name of the container."""
    version: str | None = None
    """Version of LXC or QEMU."""
    configuration: str | None = None
    """LXC's configuration of the container."""
    cgroup_version: Count | None = None
    """Version of the control groups that assign CPUs to containers: 1 or 2."""
    accelerator: str | None = None
    """Accelerator of the guest."""
    representative: bool | None = None
    """True if times mean anything; false in an emulated guest; null where nothing speaks against
    it."""
    kernel: str | None = None
    """The guest's kernel."""
    parameters: str | None = None
    """The guest's boot parameters."""
    isolated_cpus: str | None = None
    """CPUs that the guest's scheduler leaves alone."""
    nohz_full_cpus: str | None = None
    """CPUs of the guest without timer ticks."""
    realtime: bool | None = None
    """True if the guest's kernel is a real-time one."""


class CoRunnerRecord(Section, frozen=True, kw_only=True, omit_defaults=True):
    """A co-runner: a load beside the device."""

    name: str
    """Name of the function; `stress-ng` for the loads."""
    platform: PlatformRecord
    """Its platform."""
    sent: Count | None = None
    """Packets that were sent through the function; null for loads."""
    received: Count | None = None
    """Those of them that came back."""


class FileEntry(Section, frozen=True, kw_only=True):
    """A file of the run as it was written."""

    size_bytes: Count
    """Its size."""
    sha256: str
    """Its checksum."""


class RunMark(Struct):
    """The mark of a run directory: its format and whether it is complete, in any format."""

    complete: bool
    format: int = 1


class RunInfo(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A run: its plan, files, machine and instrument."""

    format: Literal[3] = RUN_FORMAT
    """Version of the layout. While a run is being written, the file has only this field and the
    next one."""
    complete: Literal[True] = True
    """True if all files are there."""
    written_unix_ns: Count
    """Time at which the run was finished."""
    tailscope_version: str
    """The version of tailscope that wrote it."""
    python_version: str | None = None
    """The version of Python that ran it."""
    plan: AnalysisPlan | ImportPlan | MeasurementPlan
    """All that was asked for, defaults included; `command` tells an analysis from a measurement and
    from an import."""
    host: HostRecord
    """The machine; in a laboratory, and of captures and imports, the one that analysed."""
    about: AboutRecord | None = None
    """Description of captures or of imported files by their user; not for a measurement."""
    inputs: dict[str, Input]
    """The captures that were analysed (`pre`, `post`), or the files that were imported; empty for a
    measurement."""
    clock: ClockRecord
    """The clock of all times."""
    floor: FloorRecord | None
    """Floor that `tailscope calibrate` measured on a machine like this one; null without one."""
    partial: tuple[str, ...]
    """Reasons why the result is partial: sentences, none if it is whole."""
    warnings: tuple[str, ...]
    """Warnings, as sentences."""
    instrument: Instrument | None = None
    """Instrument of the measurement; not for captures."""
    noise: NoiseRecord | None = None
    """Recorded noise; in a laboratory, of the device's machine. Not for captures."""
    power: PowerRecord | None = None
    """Readings of power; in a laboratory, on the device's machine. Not for captures."""
    knobs: dict[str, str | None] | None = None
    """Settings of the host: each knob of [host.md](../host.md); null where one cannot be read. In a
    laboratory, the device's machine."""
    tuning: tuple[Written, ...] | None = None
    """Settings that `--tune` changed or the kernel refused; in a laboratory, those of the device's
    machine. Not for captures."""
    dut: DutRecord | None = None
    """The device; not for captures, nor for `loop`."""
    platform: PlatformRecord | None = None
    """Platform of the device; not for captures, nor for `loop`."""
    co_runners: tuple[CoRunnerRecord, ...] | None = None
    """Loads beside the device; null without any, and in a laboratory."""
    hosts: dict[str, HostRecord] | None = None
    """Machine of each role; in a laboratory."""
    machines: dict[str, MachineInfo] | None = None
    """Further properties of the machine of each role; in a laboratory."""
    files: dict[str, FileEntry]
    """Every other file with a checksum: it must be there, unchanged."""
    left_out: tuple[str, ...] | None = None
    """Files that were left out: not published, or removed from an older run of a watch."""
    lines_sha256: str | None = None
    """Checksum of all lines above this one, which is the last field: `head -n -2 run.json |
    sha256sum` computes it."""

    def __post_init__(self) -> None:
        for name in self.files:
            if not is_inside(name):
                raise ValueError(f"files: expected names within the run, got {name!r}")
        if isinstance(self.plan, MeasurementPlan) != (self.instrument is not None):
            raise ValueError("instrument: expected for a measurement, and only for one")
        if isinstance(self.plan, MeasurementPlan) and self.about is not None:
            raise ValueError("about: expected for captures and imports only")

    @property
    def device_clock(self) -> MachineClock | None:
        """The clock of a laboratory's device; None where that is the packets' own."""
        machine = (self.machines or {}).get("dut")
        return None if machine is None else machine.clock

    @property
    def clock_error_ns(self) -> int:
        """Return how far recordings of the device may be off the packets; 0 on one machine.

        There kernel events are timed by the counter that times packets, or the error is said.
        """
        clock = self.device_clock
        if clock is None or clock.error_ns is None:
            return 0
        events = None if self.noise is None else self.noise.events
        return clock.error_ns + (0 if events is None else events.clock_error_ns)

    @property
    def measured(self) -> MeasurementPlan:
        """The plan of a measurement."""
        assert isinstance(self.plan, MeasurementPlan), "captures have no such plan"
        return self.plan
