"""The fields of a run: each is declared here, once, with all that other modules derive from it.

An entry says what a field is called, how its value is read and written, what it means, what is
allowed and which commands have it as an option. The options of commands, the fields of an
experiment file, the columns of the catalogue, the command that repeats a run and a page of the
reference follow from the entries. To add a field, add its entry and the code that uses it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from msgspec import Struct, field

from tailscope.plan.field import (
    COUNT,
    CPUS,
    DURATION,
    LENGTH,
    NAME,
    OPTIONS,
    RATE,
    SIZE,
    SWITCH,
    TEXT,
    VALUES,
    WORKERS,
    Field,
    fields_of,
)

DUT_NAMES = (
    *("loop", "l2fwd", "l3fwd", "delay", "work"),
    *("testpmd", "ovs", "suricata", "snort"),
    *("mirred", "bridge", "router", "nftables", "xdp"),
    *("wireguard", "ipsec"),
    *("command", "oci"),
)
PLATFORM_NAMES = ("bare", "lxc", "podman", "vm")
WIRE_NAMES = ("memif", "veth", "pci", "vhost")
"""Names that catalogues have a class for; those lie above this, and take time to import."""
KERNELS = ("vanilla", "rt", "nohz")
"""The kernels of the papers: as it comes, PREEMPT_RT, and without ticks on isolated CPUs."""
CO_RUNNERS = ("cpu", "cache", "memory", "io")
"""Kinds of co-runners."""
CAPTURED = "captured"
"""The pattern that is the times of a replayed capture."""
PATTERNS = ("cbr", "poisson", CAPTURED)
PROTOCOLS = ("udp", "tcp", "icmp")
DIRECTIONS = ("one", "both")
FRAMES = (
    "queues",
    "burst_gap_ns",
    "size_mix",
    "protocol",
    "vlan",
    "src_mac",
    "dst_mac",
    "src_ip",
    "dst_ip",
    "src_port",
    "dst_port",
)
"""Fields that say what probes are, beside `burst`, `size_bytes` and `flows`, which captures of
others have as labels."""
LOADS = ("all", "one")
NOISE = ("auto", "events", "stalls")
"""Recorded noise: kernel events where that is possible, kernel events, or only stalls."""
STAGES = ("off", "on", "auto")
"""Recording of the path of packets through the kernel; `auto` where that is possible."""
CLOCKS = ("tsc", "kernel-software", "kernel-hardware", "nic-hardware")
"""Sources of timestamps."""
_CACHES = ("separated", "shared")


_EVERY_RUN = ("run", "search", "watch", "compare duet", "search standard")
_ANALYSIS = ("analyze",)


class AnalysisFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of the analysis of any run."""

    trim_ns: Annotated[
        int,
        Field(
            DURATION,
            "analysis",
            "Drop packets that leave the device up to this long after the first one.",
            on=_ANALYSIS,
        ),
    ] = 0
    window_ns: Annotated[
        int, Field(LENGTH, "analysis", "Longest time that a packet may take.", on=_ANALYSIS)
    ] = 5_000_000_000
    bucket_ns: Annotated[
        int,
        Field(
            LENGTH,
            "analysis",
            "Bucket size of the histograms.",
            on=_ANALYSIS,
            given_as="--bucket-size",
            short="-b",
        ),
    ] = 100
    worst: Annotated[
        int,
        Field(
            COUNT,
            "analysis",
            "Number of worst packets to keep.",
            on=_ANALYSIS,
            least=0,
            is_column=False,
        ),
    ] = 5000


class PairFields(AnalysisFields, frozen=True, kw_only=True):
    """The analysis of two captures, as ``tailscope analyze`` is told."""

    pre: Annotated[
        str,
        Field(
            TEXT,
            "analysis",
            "Capture before the device, as FILE or FILE:INTERFACE; - is standard input.",
            on=(),
        ),
    ]
    post: Annotated[
        str,
        Field(
            TEXT,
            "analysis",
            "Capture behind the device, as FILE or FILE:INTERFACE; - is standard input.",
            on=(),
        ),
    ]
    match_on: Annotated[
        str,
        Field(
            TEXT,
            "analysis",
            "Key that identifies a packet: auto, probe, frame, l3, payload, inner, or "
            "bytes:OFF+LEN,... (with /OFF+LEN,... for the side behind the device).",
            on=_ANALYSIS,
            placeholder="KEY",
        ),
    ] = "auto"
    clocks: Annotated[
        str,
        Field(
            TEXT,
            "analysis",
            "Clocks of the two captures: detect, same, estimate, or offset=TIME (how far the "
            "clock behind the device is ahead).",
            on=("analyze",),
            placeholder="CLOCKS",
        ),
    ] = "detect"


class PlanFields(AnalysisFields, frozen=True, kw_only=True):
    """One run, as ``run.json`` keeps it: a device, a wire, traffic, and how long."""

    dut: Annotated[
        str, Field(NAME, "dut", "Device under test: {choices}.", on=_EVERY_RUN, choices=DUT_NAMES)
    ]
    dut_options: Annotated[
        dict[str, str], Field(OPTIONS, "dut", "Options of the device, by name.", on=_EVERY_RUN)
    ] = field(default_factory=dict)
    platform: Annotated[
        str,
        Field(
            NAME,
            "dut",
            "Platform that the device runs on: {choices}.",
            on=_EVERY_RUN,
            choices=PLATFORM_NAMES,
        ),
    ] = "bare"
    platform_options: Annotated[
        dict[str, str], Field(OPTIONS, "dut", "Options of the platform, by name.", on=_EVERY_RUN)
    ] = field(default_factory=dict)
    kernel: Annotated[
        str | None,
        Field(
            NAME,
            "dut",
            "Kernel that the device runs on: {choices}.",
            on=_EVERY_RUN,
            shown_default="any",
            choices=KERNELS,
            is_column=False,
        ),
    ] = None
    boot: Annotated[
        str | None,
        Field(
            TEXT,
            "dut",
            "Kernel boot parameters; {cpus} expands to the CPUs of the DuT.",
            on=_EVERY_RUN,
            placeholder="PARAMETERS",
        ),
    ] = None
    instances: Annotated[
        int, Field(COUNT, "dut", "Number of devices side by side.", least=1, most=64)
    ] = 1
    load: Annotated[
        str,
        Field(
            NAME,
            "dut",
            "Which of several devices get traffic: {choices}.",
            placeholder="WHICH",
            choices=LOADS,
        ),
    ] = "all"
    wire: Annotated[
        str,
        Field(
            NAME,
            "traffic",
            "Wire to the device: memif, veth (privileged), pci or vhost (vm).",
            on=(*_EVERY_RUN, "calibrate"),
            shown_default="the first that fits",
            choices=WIRE_NAMES,
        ),
    ] = "memif"
    wire_options: Annotated[
        dict[str, str],
        Field(OPTIONS, "traffic", "Options of the wire, by name.", on=(*_EVERY_RUN, "calibrate")),
    ] = field(default_factory=dict)
    rate_pps: Annotated[
        int,
        Field(
            RATE,
            "traffic",
            "Packets per second, such as 10k.",
            on=(
                *("run", "calibrate", "calibrate instruments", "compare duet"),
                *("plan", "simulate", "watch"),
            ),
            shown_default="10k",
            least=1,
        ),
    ] = 10_000
    pattern: Annotated[
        str,
        Field(
            NAME,
            "traffic",
            "Spacing of departures, or of bursts: {choices} (of a replayed capture).",
            on=_EVERY_RUN,
            choices=PATTERNS,
        ),
    ] = "cbr"
    burst: Annotated[
        int,
        Field(
            COUNT,
            "traffic",
            "Packets back to back, at the same rate.",
            on=_EVERY_RUN,
            least=1,
            most=512,
            measured_in="packets",
        ),
    ] = 1
    burst_gap_ns: Annotated[
        int,
        Field(
            DURATION,
            "traffic",
            "Time from one packet of a burst to the next.",
            on=_EVERY_RUN,
        ),
    ] = 0
    size_bytes: Annotated[
        int | None,
        Field(
            SIZE,
            "traffic",
            "Size of a frame in bytes, check sequence included; imix, or a mix as SIZE:WEIGHT,...",
            on=tuple(each for each in _EVERY_RUN if each != "search standard"),
            least=64,
            most=1518,
            otherwise="size_mix",
        ),
    ] = 64
    size_mix: Annotated[
        str | None,
        Field(TEXT, "traffic", "Mix of sizes of frames, as SIZE:WEIGHT,...", on=()),
    ] = None
    flows: Annotated[
        int,
        Field(
            COUNT,
            "traffic",
            "Number of flows; they differ by source port.",
            on=_EVERY_RUN,
            least=1,
            most=65535,
        ),
    ] = 1
    queues: Annotated[
        int,
        Field(
            COUNT,
            "traffic",
            "Queues of each port, which flows take in turn; a device polls as many.",
            on=_EVERY_RUN,
            least=1,
            most=16,
        ),
    ] = 1
    protocol: Annotated[
        str,
        Field(
            NAME,
            "traffic",
            "What packets are: {choices} (echo requests).",
            on=_EVERY_RUN,
            choices=PROTOCOLS,
        ),
    ] = "udp"
    vlan: Annotated[
        int | None,
        Field(
            COUNT,
            "traffic",
            "VLAN that frames are tagged with.",
            on=_EVERY_RUN,
            placeholder="ID",
            shown_default="untagged",
            least=1,
            most=4094,
        ),
    ] = None
    src_mac: Annotated[
        str | None,
        Field(
            TEXT,
            "traffic",
            "Source MAC address.",
            on=_EVERY_RUN,
            placeholder="MAC",
            shown_default="the port's own",
        ),
    ] = None
    dst_mac: Annotated[
        str,
        Field(TEXT, "traffic", "Destination MAC address.", on=_EVERY_RUN, placeholder="MAC"),
    ] = "02:00:00:00:00:10"
    src_ip: Annotated[
        str,
        Field(
            VALUES,
            "traffic",
            "Source addresses, as FIRST..LAST or a list; flows take them in turn.",
            on=_EVERY_RUN,
        ),
    ] = "10.0.0.1"
    dst_ip: Annotated[
        str, Field(VALUES, "traffic", "Destination addresses, in the same way.", on=_EVERY_RUN)
    ] = "10.0.1.1"
    src_port: Annotated[
        str,
        Field(
            VALUES,
            "traffic",
            "Source ports, in the same way; identifiers of echo requests.",
            on=_EVERY_RUN,
        ),
    ] = "1024"
    dst_port: Annotated[
        str, Field(VALUES, "traffic", "Destination ports, in the same way.", on=_EVERY_RUN)
    ] = "53"
    replay: Annotated[
        str | None,
        Field(
            TEXT,
            "traffic",
            "Capture whose frames are sent once, at their own times or at --rate.",
            on=("run",),
            placeholder="FILE",
        ),
    ] = None
    direction: Annotated[
        str,
        Field(
            NAME,
            "traffic",
            "Traffic in {choices} directions.",
            on=("run",),
            choices=DIRECTIONS,
        ),
    ] = "one"
    seed: Annotated[
        int, Field(COUNT, "traffic", "Seed of the Poisson process.", on=_EVERY_RUN, least=0)
    ] = 1
    duration_ns: Annotated[
        int,
        Field(
            LENGTH,
            "measurement",
            "Duration of the measurement.",
            on=("run", "calibrate", "calibrate instruments", "noise"),
            short="-d",
            least=1,
        ),
    ] = 10_000_000_000
    warm_up_ns: Annotated[
        int,
        Field(DURATION, "measurement", "Warm-up: traffic before the measurement.", on=_EVERY_RUN),
    ] = 1_000_000_000
    captures: Annotated[
        bool, Field(SWITCH, "measurement", "Keep captures of both sides in the run directory.")
    ] = False
    noise: Annotated[
        str,
        Field(
            NAME,
            "measurement",
            "What to record: auto, events (kernel events, privileged) or stalls.",
            on=("run", "noise", "watch"),
            placeholder="WHAT",
            choices=NOISE,
        ),
    ] = "auto"
    stages: Annotated[
        str,
        Field(
            NAME,
            "measurement",
            "Record stages of packets in the device: {choices} (where possible).",
            on=("run",),
            placeholder="WHICH",
            choices=STAGES,
        ),
    ] = "off"
    counter_interval_ns: Annotated[
        int,
        Field(
            DURATION,
            "measurement",
            "Also sample the interrupt counters at this interval.",
            on=("run", "noise", "watch"),
            shown_default="before and after",
        ),
    ] = 0
    power: Annotated[
        str,
        Field(
            TEXT,
            "measurement",
            "Source of power readings: auto (RAPL if it may be read), none, rapl, ipmi or"
            " 'command:CMD ARGS', which prints watts.",
            placeholder="SOURCE",
        ),
    ] = "auto"
    power_phase_ns: Annotated[
        int,
        Field(
            LENGTH,
            "measurement",
            "Time to idle, and to run the DuT without packets, where power is read.",
        ),
    ] = 1_000_000_000
    cpus: Annotated[
        str | None,
        Field(
            CPUS,
            "host",
            "CPUs to poll on: generator, then DuT; or by role, as generator=2,dut=4-5,"
            "housekeeping=0; dut=any pins no DuT.",
            on=(*_EVERY_RUN, "calibrate", "calibrate instruments", "host tune"),
            short="-c",
            shown_default="by topology",
        ),
    ] = None
    co_runners: Annotated[
        dict[str, int],
        Field(
            WORKERS,
            "host",
            "Co-runners: number of workers of each kind ({choices}).",
            on=_EVERY_RUN,
            choices=CO_RUNNERS,
            least=1,
        ),
    ] = field(default_factory=dict)
    co_runner_cpus: Annotated[
        str | None,
        Field(CPUS, "host", "CPUs that co-runners run on.", on=_EVERY_RUN),
    ] = None
    tune: Annotated[
        bool,
        Field(
            SWITCH,
            "host",
            "Tune the host for the run, as root, and restore it afterwards.",
            on=_EVERY_RUN,
        ),
    ] = False


def _described(name: str, about: str, **changes: object) -> Field:
    """A field of `PlanFields` as somebody describes it: any value, unless `changes` say more."""
    plain: dict[str, object] = {"on": (), "choices": None, "is_column": True}
    return replace(fields_of(PlanFields)[name], help=about, **{**plain, **changes})  # type: ignore[arg-type]


class AboutFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Description of a measurement by the user of captures or tables.

    What was not said is None, which means unknown.
    """

    dut: Annotated[
        str | None, _described("dut", "Device under test: l2fwd, mirred, suricata, or any name.")
    ] = None
    dut_options: Annotated[
        dict[str, str], _described("dut_options", "Options of the device, by name.")
    ] = field(default_factory=dict)
    platform: Annotated[
        str | None,
        _described("platform", "Platform that the device ran on: bare, lxc, vm, or any name."),
    ] = None
    kernel: Annotated[
        str | None,
        _described(
            "kernel", "Kernel that the device ran on: {choices}.", choices=KERNELS, is_column=False
        ),
    ] = None
    kernel_release: Annotated[
        str | None,
        Field(
            TEXT,
            "dut",
            "Release of that kernel, as `uname -r` prints it.",
            on=(),
            is_column=False,
        ),
    ] = None
    boot: Annotated[
        str | None,
        _described("boot", "Boot parameters of that kernel (its `/proc/cmdline`)."),
    ] = None
    wire: Annotated[
        str | None,
        _described("wire", "Wire to the device: pci (network cards), memif, vhost or veth."),
    ] = None
    rate_pps: Annotated[
        int | None, _described("rate_pps", "Packets per second that were to be sent, such as 10k.")
    ] = None
    pattern: Annotated[
        str | None, _described("pattern", "Spacing of departures: {choices}.", choices=PATTERNS)
    ] = None
    burst: Annotated[int | None, _described("burst", "Packets back to back, at the same rate.")] = (
        None
    )
    size_bytes: Annotated[
        int | None,
        _described(
            "size_bytes",
            "Size of a frame, check sequence included.",
            kind=COUNT,
            otherwise=None,
            placeholder="BYTES",
        ),
    ] = None
    flows: Annotated[
        int | None, _described("flows", "Number of flows; they differ by source port.")
    ] = None
    repeat: Annotated[
        int | None, Field(COUNT, "measurement", "Number of the repetition.", on=(), least=0)
    ] = None
    clock: Annotated[
        str | None,
        Field(
            NAME,
            "measurement",
            "What took the timestamps: {choices}.",
            on=(),
            choices=CLOCKS,
            is_column=False,
        ),
    ] = None
    cpu_model: Annotated[
        str | None,
        Field(
            TEXT, "host", "Model of the processor of the device's machine.", on=(), is_column=False
        ),
    ] = None
    cpu_count: Annotated[
        int | None,
        Field(COUNT, "host", "Number of CPUs of that machine.", on=(), least=1, is_column=False),
    ] = None
    cards: Annotated[str | None, Field(TEXT, "host", "Network cards of the device.", on=())] = None
    cache: Annotated[
        str | None,
        Field(
            NAME,
            "host",
            "Whether other CPUs share the device's last-level cache: {choices}.",
            on=(),
            choices=_CACHES,
        ),
    ] = None
    labels: Annotated[
        dict[str, str], Field(OPTIONS, "measurement", "Anything else, by any name.", on=())
    ] = field(default_factory=dict)


def fields_on(command: str) -> dict[str, Field]:
    """The fields that a command has as options, by the names that people give them."""
    every = (*fields_of(PlanFields).values(), *fields_of(PairFields).values())
    return {each.name: each for each in every if command in each.on}
