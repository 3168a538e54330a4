"""The fields of a run: each is declared here, once, with all that other modules derive from it.

An entry says what a field is called, how its value is read and written, what it means, what is
allowed and which commands have it as an option. The options of commands, the fields of an
experiment file, the columns of the catalogue, the command that repeats a run and a page of the
reference follow from the entries. To add a field, add its entry and the code that uses it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

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

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailscope.plan.field import Group, Kind

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
"""The kernels of the papers: as it comes, PREEMPT_RT, and without ticks on isolated CPUs. The
beginning of a release may follow: ``rt-6.12``."""
CO_RUNNERS = ("cpu", "cache", "memory", "io", "l2fwd", "l3fwd", "suricata", "snort")
"""Kinds of co-runners: loads, and functions with traffic of their own."""
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
    "encap",
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


def _grouped(group: Group, on: tuple[str, ...]) -> Callable[..., Field]:
    """Declare fields of a group, which the commands have unless an entry names others."""

    def declared(kind: Kind, about: str, **more: Any) -> Field:
        return Field(kind, group, about, **{"on": on, **more})

    return declared


_analysed = _grouped("analysis", _ANALYSIS)
_dut, _traffic = _grouped("dut", _EVERY_RUN), _grouped("traffic", _EVERY_RUN)
_measurement, _host = _grouped("measurement", _EVERY_RUN), _grouped("host", _EVERY_RUN)


class AnalysisFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of the analysis of any run."""

    trim_ns: Annotated[
        int,
        _analysed(
            DURATION, "Drop packets that leave the device up to this long after the first one."
        ),
    ] = 0
    window_ns: Annotated[int, _analysed(LENGTH, "Longest time that a packet may take.")] = (
        5_000_000_000
    )
    bucket_ns: Annotated[
        int,
        _analysed(LENGTH, "Bucket size of the histograms.", given_as="--bucket-size", short="-b"),
    ] = 100
    worst: Annotated[
        int, _analysed(COUNT, "Number of worst packets to keep.", least=0, is_column=False)
    ] = 5000


class PairFields(AnalysisFields, frozen=True, kw_only=True):
    """The analysis of two captures, as ``tailscope analyze`` is told."""

    pre: Annotated[
        str,
        _analysed(
            TEXT,
            "Capture before the device, as FILE or FILE:INTERFACE; - is standard input.",
            on=(),
        ),
    ]
    post: Annotated[
        str,
        _analysed(
            TEXT,
            "Capture behind the device, as FILE or FILE:INTERFACE; - is standard input.",
            on=(),
        ),
    ]
    match_on: Annotated[
        str,
        _analysed(
            TEXT,
            "Key that identifies a packet: auto, probe, frame, l3, payload, inner, tcp-bytes, or "
            "bytes:OFF+LEN,... (with /OFF+LEN,... for the side behind the device).",
            placeholder="KEY",
        ),
    ] = "auto"
    clocks: Annotated[
        str,
        _analysed(
            TEXT,
            "Clocks of the two captures: detect, same, estimate, or offset=TIME (how far the "
            "clock behind the device is ahead), with ,drift=PPM behind it if that is known.",
            placeholder="CLOCKS",
        ),
    ] = "detect"


class PlanFields(AnalysisFields, frozen=True, kw_only=True):
    """One run, as ``run.json`` keeps it: a device, a wire, traffic, and how long."""

    dut: Annotated[str, _dut(NAME, "Device under test: {choices}.", choices=DUT_NAMES)]
    dut_options: Annotated[dict[str, str], _dut(OPTIONS, "Options of the device, by name.")] = (
        field(default_factory=dict)
    )
    platform: Annotated[
        str, _dut(NAME, "Platform that the device runs on: {choices}.", choices=PLATFORM_NAMES)
    ] = "bare"
    platform_options: Annotated[
        dict[str, str], _dut(OPTIONS, "Options of the platform, by name.")
    ] = field(default_factory=dict)
    kernel: Annotated[
        str | None,
        _dut(
            NAME,
            "Kernel that the device runs on: {choices}; or with the beginning of its release, such"
            " as rt-6.12.",
            shown_default="any",
            choices=KERNELS,
            more_may_follow=True,
            is_column=False,
        ),
    ] = None
    boot: Annotated[
        str | None,
        _dut(
            TEXT,
            "Kernel boot parameters; {cpus} expands to the CPUs of the DuT.",
            placeholder="PARAMETERS",
        ),
    ] = None
    instances: Annotated[
        int, _dut(COUNT, "Number of devices side by side.", on=("run",), least=1, most=64)
    ] = 1
    load: Annotated[
        str,
        _dut(
            NAME,
            "Which of several devices get traffic: {choices}.",
            on=("run",),
            placeholder="WHICH",
            choices=LOADS,
        ),
    ] = "all"
    wire: Annotated[
        str,
        _traffic(
            NAME,
            "Wire to the device: memif, veth (privileged), pci or vhost (vm).",
            on=(*_EVERY_RUN, "calibrate"),
            shown_default="the first that fits",
            choices=WIRE_NAMES,
        ),
    ] = "memif"
    wire_options: Annotated[
        dict[str, str],
        _traffic(OPTIONS, "Options of the wire, by name.", on=(*_EVERY_RUN, "calibrate")),
    ] = field(default_factory=dict)
    rate_pps: Annotated[
        int,
        _traffic(
            RATE,
            "Packets per second, such as 10k.",
            on=(
                *("run", "calibrate", "calibrate --instruments", "compare duet"),
                *("plan", "simulate", "watch"),
            ),
            shown_default="10k",
            least=1,
        ),
    ] = 10_000
    pattern: Annotated[
        str,
        _traffic(
            NAME,
            "Spacing of departures, or of bursts: {choices} (of a replayed capture).",
            choices=PATTERNS,
        ),
    ] = "cbr"
    burst: Annotated[
        int,
        _traffic(
            COUNT,
            "Packets back to back, at the same rate.",
            least=1,
            most=512,
            measured_in="packets",
        ),
    ] = 1
    burst_gap_ns: Annotated[
        int, _traffic(DURATION, "Time from one packet of a burst to the next.")
    ] = 0
    size_bytes: Annotated[
        int | None,
        _traffic(
            SIZE,
            "Size of a frame in bytes, check sequence included; imix, or a mix as SIZE:WEIGHT,...",
            on=tuple(each for each in _EVERY_RUN if each != "search standard"),
            least=64,
            most=1518,
            otherwise="size_mix",
        ),
    ] = 64
    size_mix: Annotated[
        str | None, _traffic(TEXT, "Mix of sizes of frames, as SIZE:WEIGHT,...", on=())
    ] = None
    flows: Annotated[
        int, _traffic(COUNT, "Number of flows; they differ by source port.", least=1, most=65535)
    ] = 1
    queues: Annotated[
        int,
        _traffic(
            COUNT,
            "Queues of each port, which flows take in turn; a device polls as many.",
            least=1,
            most=16,
        ),
    ] = 1
    protocol: Annotated[
        str, _traffic(NAME, "What packets are: {choices} (echo requests).", choices=PROTOCOLS)
    ] = "udp"
    vlan: Annotated[
        int | None,
        _traffic(
            COUNT,
            "VLAN that frames are tagged with.",
            placeholder="ID",
            shown_default="untagged",
            least=1,
            most=4094,
        ),
    ] = None
    encap: Annotated[
        str | None,
        _traffic(
            TEXT,
            "Tunnel through which the first port sends: gtpu:teid=N, vxlan:vni=N, geneve:vni=N,"
            " gre, mpls:label=N, srv6:segments=IP/IP or ipip; with src=IP and dst=IP.",
            placeholder="KIND:NAME=VALUE,...",
            shown_default="no tunnel",
        ),
    ] = None
    src_mac: Annotated[
        str | None,
        _traffic(TEXT, "Source MAC address.", placeholder="MAC", shown_default="the port's own"),
    ] = None
    dst_mac: Annotated[str, _traffic(TEXT, "Destination MAC address.", placeholder="MAC")] = (
        "02:00:00:00:00:10"
    )
    src_ip: Annotated[
        str,
        _traffic(VALUES, "Source addresses, as FIRST..LAST or a list; flows take them in turn."),
    ] = "10.0.0.1"
    dst_ip: Annotated[str, _traffic(VALUES, "Destination addresses, in the same way.")] = "10.0.1.1"
    src_port: Annotated[
        str, _traffic(VALUES, "Source ports, in the same way; identifiers of echo requests.")
    ] = "1024"
    dst_port: Annotated[str, _traffic(VALUES, "Destination ports, in the same way.")] = "53"
    replay: Annotated[
        str | None,
        _traffic(
            TEXT,
            "Capture whose frames are sent once, at their own times or at --rate.",
            on=("run",),
            placeholder="FILE",
        ),
    ] = None
    direction: Annotated[
        str, _traffic(NAME, "Traffic in {choices} directions.", on=("run",), choices=DIRECTIONS)
    ] = "one"
    seed: Annotated[int, _traffic(COUNT, "Seed of the Poisson process.", least=0)] = 1
    duration_ns: Annotated[
        int,
        _measurement(
            LENGTH,
            "Duration of the measurement.",
            on=("run", "calibrate", "calibrate --instruments", "noise"),
            short="-d",
            least=1,
        ),
    ] = 10_000_000_000
    warm_up_ns: Annotated[
        int, _measurement(DURATION, "Warm-up: traffic before the measurement.")
    ] = 1_000_000_000
    captures: Annotated[
        bool, _measurement(SWITCH, "Keep captures of both sides in the run directory.", on=("run",))
    ] = False
    noise: Annotated[
        str,
        _measurement(
            NAME,
            "What to record: auto, events (kernel events, privileged) or stalls.",
            on=("run", "noise", "watch"),
            placeholder="WHAT",
            choices=NOISE,
        ),
    ] = "auto"
    stages: Annotated[
        str,
        _measurement(
            NAME,
            "Record stages of packets in the device: {choices} (where possible).",
            on=("run",),
            placeholder="WHICH",
            choices=STAGES,
        ),
    ] = "off"
    counter_interval_ns: Annotated[
        int,
        _measurement(
            DURATION,
            "Also sample the interrupt counters at this interval.",
            on=("run", "noise", "watch"),
            shown_default="before and after",
        ),
    ] = 0
    power: Annotated[
        str,
        _measurement(
            TEXT,
            "Source of power readings: auto (RAPL if it may be read), none, rapl, ipmi or"
            " 'command:CMD ARGS', which prints watts.",
            on=("run",),
            placeholder="SOURCE",
        ),
    ] = "auto"
    power_phase_ns: Annotated[
        int,
        _measurement(
            LENGTH,
            "Time to idle, and to run the DuT without packets, where power is read.",
            on=("run",),
        ),
    ] = 1_000_000_000
    cpus: Annotated[
        str | None,
        _host(
            CPUS,
            "CPUs to poll on: generator, then DuT; or by role, as generator=2,dut=4-5,"
            "housekeeping=0; dut=any pins no DuT.",
            on=(*_EVERY_RUN, "calibrate", "calibrate --instruments", "host tune"),
            short="-c",
            shown_default="by topology",
        ),
    ] = None
    co_runners: Annotated[
        dict[str, int],
        _host(
            WORKERS,
            "Co-runners: number of workers or functions of each kind ({choices}).",
            choices=CO_RUNNERS,
            least=1,
        ),
    ] = field(default_factory=dict)
    co_runner_cpus: Annotated[str | None, _host(CPUS, "CPUs that co-runners run on.")] = None
    co_runner_platform: Annotated[
        str, _host(NAME, "Platform that co-runners run on: {choices}.", choices=PLATFORM_NAMES)
    ] = "bare"
    tune: Annotated[
        bool, _host(SWITCH, "Tune the host for the run, as root, and restore it afterwards.")
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
            TEXT, "dut", "Release of that kernel, as `uname -r` prints it.", on=(), is_column=False
        ),
    ] = None
    boot: Annotated[
        str | None, _described("boot", "Boot parameters of that kernel (its `/proc/cmdline`).")
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
