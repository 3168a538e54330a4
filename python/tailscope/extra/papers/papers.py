"""The five papers with all their tables and figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailscope.extra.papers.part import Paper, Part

if TYPE_CHECKING:
    from collections.abc import Mapping

_BOOTS = "the kernels, booted; hardware timestamps"
_CARDS = "the cards, with hardware timestamps beside them"
_NOTHING_MEASURED = "a drawing or list, nothing measured"
_BURSTS = tuple(f"{burst}-by-{batch}" for batch in (32, 4) for burst in (2, 4, 8, 16, 32, 64))
_VERSIONS = ("4.19", "5.10", "6.1")
_RELEASES = tuple(f"{name}-{release}" for name in ("vanilla", "nohz") for release in _VERSIONS)
_RUN_NOMS = "tailscope run experiments/noms2020.yaml"
_RUN_LIMBO = "tailscope run experiments/limbo2022.yaml"
_RUN_CONTAINERS = "tailscope run experiments/containers2024.yaml"


def _only(cells: Mapping[str, tuple[str, ...]]) -> str:
    return " ".join(f"--only {variable}={','.join(values)}" for variable, values in cells.items())


def _table_2(software: str, mode: str) -> Part:
    cells = {"software": (software,), "mode": (mode,), "traffic": ("CBR",)}
    return Part(
        f"Table II, {software} {mode}",
        "percentiles at 10 to 120 kpackets/s",
        f"{_RUN_NOMS} {_only(cells)}",
        "the paper's cards; a VM is attached by a VF" if mode == "VM" else _BOOTS,
        "noms2020",
        cells,
    )


NOMS2020 = Paper(
    "noms2020",
    "5G QoS: Impact of Security Functions on Latency",
    "noms2020.md",
    (
        Part(
            "Table I and Figure 1",
            "Snort-fwd in a VM as it comes",
            f"{_RUN_NOMS} --only mode=untuned",
            "KVM; or the authors' captures: analyze",
            "noms2020",
            {"mode": ("untuned",)},
        ),
        Part("Figure 2", "the architecture", "tailscope host audit --cpus 1"),
        Part("Figure 3", "the set-up", needs=_NOTHING_MEASURED),
        *(
            _table_2(software, mode)
            for software in ("DPDK-l2fwd", "Snort-fwd", "Snort-filter")
            for mode in ("HW", "VM")
        ),
        Part(
            "Figure 4",
            "5000 worst packets of DPDK-l2fwd at 10 kpackets/s, and their clocks",
            "tailscope model aliasing RUN --figure figure4.svg",
            "any run of the cells of Table II, or the authors' captures",
            "noms2020",
            {"software": ("DPDK-l2fwd",), "rate": ("10k",), "traffic": ("CBR",)},
        ),
        Part(
            "Figure 5",
            "bursts against batches",
            f"{_RUN_NOMS} --only traffic={','.join(_BURSTS)}",
            "a packet module with batches; without one, python -m experiments.batch_effect",
            "noms2020",
            {"software": ("Snort-filter",), "traffic": _BURSTS},
        ),
        Part(
            "Table III",
            "power, idle, available and transmitting, with power saving and without",
            "tailscope run experiments/energy.yaml",
            "a meter or IPMI: RAPL has the processor alone",
            "energy",
        ),
        Part(
            "Figure 6", "sources of delay", "tailscope run --stages auto", "a device of the kernel"
        ),
        Part(
            "Table IV",
            "CPU time of a packet, and the highest rate",
            "tailscope model overload FORWARDER FUNCTION BURSTS",
            "runs of the profile snort of noms2020.yaml, or of the cells of Table II",
            "noms2020",
            {"rate": ("10k",), "traffic": ("CBR", "bursts")},
        ),
        Part(
            "Table V",
            "rates and durations of interrupts",
            "tailscope noise --cpus 1 --duration 60s",
            "root; of captures, model aliasing",
        ),
        Part(
            "Section IX",
            "other classes of service on the same system, as future work",
            f"{_RUN_NOMS} --profile side-by-side",
            "root and LXC; KVM, or guests' times mean nothing",
            "noms2020",
            {"beside": ("nobody", "load-in-LXC", "load-in-VM", "l2fwd-in-LXC", "l2fwd-in-VM")},
        ),
    ),
)

COMMAG2020 = Paper(
    "commag2020",
    "5G URLLC: A Case Study on Low-Latency Intrusion Prevention",
    "commag2020.md",
    (
        Part(
            "Figure 1",
            "Snort as it comes",
            f"{_RUN_NOMS} --only mode=untuned",
            "KVM; or the authors' captures: analyze",
            "noms2020",
            {"mode": ("untuned",)},
        ),
        Part("Figure 2", "the architecture", "tailscope host audit --cpus 1"),
        Part(
            "Figure 3",
            "percentiles of three functions, HW and VM",
            f"{_RUN_NOMS} --only traffic=CBR --only mode=HW,VM",
            _BOOTS,
            "noms2020",
            {"mode": ("HW", "VM"), "traffic": ("CBR",)},
        ),
        Part(
            "Figure 4",
            "two clocks",
            "tailscope model aliasing RUN --figure figure4.svg",
            "any run, or the authors' captures",
            "noms2020",
            {"software": ("DPDK-l2fwd",), "mode": ("HW",), "rate": ("10k",), "traffic": ("CBR",)},
        ),
    ),
)

_ON_MACHINE, _SURICATA = {"mode": ("HW",)}, {"software": ("Suricata-fwd",)}

LIMBO2022 = Paper(
    "limbo2022",
    "How Low Can You Go? A Limbo Dance for Low-Latency Network Functions",
    "limbo2022.md",
    (
        Part(
            "Figure 1",
            "Suricata on a machine as it comes",
            f"{_RUN_LIMBO} --only mode=untuned",
            "hardware timestamps",
            "limbo2022",
            {"mode": ("untuned",)},
        ),
        Part("Figure 2", "the software", "tailscope host audit --cpus 1"),
        Part("Table 1", "boot parameters", "tailscope host export --cpus 1 --format cmdline"),
        Part("Figure 3", "accuracy and precision", "tailscope calibrate"),
        Part("Figure 4", "the set-up", needs=_NOTHING_MEASURED),
        *(
            Part(
                name,
                shows,
                f"{_RUN_LIMBO} {_only(cells)}",
                _BOOTS,
                "limbo2022",
                cells,
            )
            for name, shows, cells in (
                (
                    "Figures 5 and 6",
                    "l2fwd on three kernels",
                    {**_ON_MACHINE, "software": ("DPDK-l2fwd",), "rate": ("10k",)},
                ),
                ("Figure 7", "Suricata without rules", {**_ON_MACHINE, **_SURICATA}),
                (
                    "Figure 8",
                    "its worst packets",
                    {**_ON_MACHINE, **_SURICATA, "kernel": ("vanilla", "rt"), "rate": ("250k",)},
                ),
                (
                    "Figure 9",
                    "Suricata with rules",
                    {**_ON_MACHINE, "software": ("Suricata-filter",)},
                ),
            )
        ),
        Part(
            "Recommendation III",
            "releases of one kernel",
            f"{_RUN_LIMBO} --profile releases",
            "the releases, booted; hardware timestamps",
            "limbo2022",
            {"kernel": _RELEASES},
        ),
        Part(
            "Figure 10",
            "four cards",
            "tailscope run experiments/limbo2022-cards.yaml",
            _CARDS,
            "limbo2022-cards",
        ),
        Part(
            "Figures 11 and 12",
            "l2fwd in a VM on three kernels",
            f"{_RUN_LIMBO} --only mode=VM",
            "KVM, and the kernels, booted on the host, too",
            "limbo2022",
            {"mode": ("VM",)},
        ),
    ),
)

_L2FWD = {"software": ("l2fwd",)}
_TUNED = ("yes", "container")


def _containers(name: str, shows: str, needs: str, cells: dict[str, tuple[str, ...]]) -> Part:
    return Part(name, shows, f"{_RUN_CONTAINERS} {_only(cells)}", needs, "containers2024", cells)


CONTAINERS2024 = Paper(
    "containers2024",
    "Performance Evaluation of Containers for Low-Latency Packet Processing",
    "containers2024.md",
    (
        Part("Table 1", "acronyms", needs=_NOTHING_MEASURED),
        Part("Figure 1", "containers and VMs", needs=_NOTHING_MEASURED),
        Part("Figure 2", "tails of latencies, rain and rivers", needs="data that are no latencies"),
        Part("Table 2", "boot parameters", "tailscope host export --cpus 1 --format cmdline"),
        Part("Figure 3", "the set-up", needs=_NOTHING_MEASURED),
        Part(
            "Table 3, Figures 4 and 5",
            "the machines",
            "tailscope report RUN",
            "host.inventory in run.json; hwloc for its lstopo",
        ),
        _containers(
            "Figures 6 and 10",
            "5000 worst packets of containers",
            "two machines with other caches",
            {**_L2FWD, "technology": ("container",), "rate": ("1M",)},
        ),
        _containers(
            "Figure 7",
            "percentiles at twelve rates",
            "two machines with other caches; kernels, booted",
            {**_L2FWD, "technology": ("container",)},
        ),
        Part(
            "Figure 8",
            "worst packets and interrupts over time",
            "tailscope run --dut l2fwd --platform lxc --rate 1M --counter-interval 100ms",
            "root, LXC; the figure is in its report. Of captures: explain --interrupts, without it",
        ),
        _containers(
            "Figure 9",
            "three kernels",
            "kernels, booted",
            {**_L2FWD, "technology": ("container",), "rate": ("1M",)},
        ),
        _containers(
            "Figure 11",
            "VMs and containers",
            "KVM; kernels, booted on the host, too",
            {**_L2FWD, "technology": ("container", "VM")},
        ),
        _containers(
            "Figure 12",
            "bare metal and containers",
            "kernels, booted",
            {**_L2FWD, "technology": ("container", "bare")},
        ),
        _containers(
            "Figure 13",
            "l3fwd and l2fwd at 600 kpackets/s, on one CPU and on two",
            "kernels, booted",
            {
                "software": ("l2fwd", "l2fwd-2", "l3fwd", "l3fwd-2"),
                "technology": ("container",),
                "rate": ("600k",),
            },
        ),
        _containers(
            "Figure 14",
            "the kernel and user space",
            "kernels, booted",
            {"software": ("l2fwd", "tc-mirred"), "technology": ("container",), "rate": ("1M",)},
        ),
        Part(
            "Figures 15 to 18, Tables 4 and 5",
            "a model of the tail",
            "tailscope model tail RUN",
            "the authors' tables, or runs",
        ),
        _containers(
            "Table 6",
            "tails of vanilla as it comes and of rt, optimised",
            "kernels, booted; KVM",
            {"kernel": ("vanilla", "rt"), "rate": ("1M",)},
        ),
        Part(
            "Table 7",
            "recommendations",
            "tailscope recommend RUN RUN",
            "security and resources are the paper's ranks, not measured",
        ),
    ),
)

MICROSECOND2017 = Paper(
    "microsecond2017",
    "How to Measure the Killer Microsecond",
    "microsecond2017.md",
    (
        Part(
            "Table 1",
            "the tools",
            "tailscope calibrate --instruments all",
            "root; not TRex, nor Spirent",
        ),
        Part("Figure 1", "the set-up", needs=_NOTHING_MEASURED),
        Part(
            "Figure 2",
            "a known truth, seen by each tool",
            "tailscope calibrate --instruments all",
            "root; the device delay instead of a switch",
        ),
        Part(
            "Figure 3",
            "one forwarder under four configurations",
            "tailscope run experiments/microsecond2017.yaml",
            "two sockets, cards, and two boots",
            "microsecond2017",
        ),
    ),
)

PAPERS = (NOMS2020, COMMAG2020, LIMBO2022, CONTAINERS2024, MICROSECOND2017)
"""All papers."""
