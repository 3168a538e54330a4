"""``summary.json``: every figure of a run, declared once.

The type of the file, the columns of the catalogue and the page of the reference are all made of
`GROUPS`. In names ``pX`` stands for each of `QUANTILES`; a name that begins with ``pre_`` has a
twin that begins with ``post_``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict

from tailscope.store.layout import SUMMARY_FORMAT
from tailscope.store.records.base import Count, Record, Signed
from tailscope.units import QUANTILES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tailscope.engine.analysis import Figure

Kind = Literal["count", "signed", "real", "truth", "text", "texts"]
_PLAIN = {
    "count": Count,
    "signed": Signed,
    "real": float,
    "truth": bool,
    "text": str,
    "texts": tuple[str, ...],
}


class FigureLine(NamedTuple):
    """Figures that are alike."""

    names: tuple[str, ...]
    """Names, as patterns."""
    kind: Kind
    about: str
    everywhere: bool = True
    """True if each run has them."""
    is_column: bool = True
    """True if the catalogue has a column for each."""


class FigureGroup(NamedTuple):
    """Figures that are about the same thing."""

    title: str
    lines: tuple[FigureLine, ...]


def _packets(name: str, about: str) -> FigureLine:
    return FigureLine((name,), "count", about)


def _taintable(name: str, about: str) -> tuple[FigureLine, ...]:
    return (
        FigureLine((f"{name}_mean",), "real", f"{about}: mean", everywhere=False),
        FigureLine((f"{name}_pX",), "signed", f"{about}: supported quantiles", everywhere=False),
        FigureLine((f"{name}_max",), "signed", f"{about}: maximum", everywhere=False),
    )


def _least(name: str) -> tuple[FigureLine, ...]:
    """Lower ends of the latency figures, which are their upper ends."""
    return (
        FigureLine(
            (f"{name}_min",), "count", "The least that any packet can have taken.", everywhere=False
        ),
        FigureLine(
            (f"{name}_mean",),
            "real",
            "The least that the mean can have been: of latencies without all stalls of the "
            "instrument meanwhile.",
            everywhere=False,
        ),
        FigureLine(
            (f"{name}_pX",),
            "count",
            "The least that quantiles can have been; what the device took lies between this and "
            "`latency_ns_pX`.",
            everywhere=False,
        ),
        FigureLine(
            (f"{name}_pX_ci_low", f"{name}_pX_ci_high"),
            "count",
            "Its confidence interval. That of what the device took begins at the lower end of this "
            "one, and ends at the upper end of that of `latency_ns_pX`.",
            everywhere=False,
        ),
        FigureLine(
            (f"{name}_max",), "count", "The least that the maximum can have been.", everywhere=False
        ),
    )


def _power(names: tuple[str, ...], about: str) -> tuple[FigureLine, ...]:
    ends = tuple(f"{name}{end}" for name in names for end in ("_ci_low", "_ci_high"))
    return (
        FigureLine(names, "real", about, everywhere=False),
        FigureLine(
            ends,
            "real",
            "Ends of their 95 % intervals; `null` where the figure is.",
            everywhere=False,
            is_column=False,
        ),
    )


GROUPS = (
    FigureGroup(
        "Packets",
        (
            _packets(
                "count",
                "Matches: unique packets seen behind the device within the window. The n of every "
                "latency figure.",
            ),
            _packets(
                "sent",
                "Packets before the device, within the trimmed interval, that are to be found "
                "behind it: `count + lost + late + negative + outside + corrupt + "
                "resegmented + untimed`.",
            ),
            _packets(
                "lost",
                "Sent packets that the capture behind the device would hold, and does not.",
            ),
            FigureLine(
                ("lost_proven",),
                "count",
                "Of `lost` those that the captures prove. The others may be the same as packets "
                "that are only known from behind the device, in another form, or be of flows that "
                "never appear behind it, which may leave by another port.",
                everywhere=False,
            ),
            FigureLine(("loss_ratio",), "real", "`lost / (sent - outside)`."),
            _packets(
                "late",
                "Sent packets that were seen behind the device after the window, but before a "
                "second one had passed.",
            ),
            _packets(
                "outside",
                "Sent packets of which the captures prove nothing: the one behind the device had "
                "not begun, had ended, or dropped as many itself.",
            ),
            _packets(
                "corrupt",
                "Sent packets that came out damaged: in captures those that differ in a few bytes, "
                "as their own checksums show.",
            ),
            FigureLine(
                ("resegmented",),
                "count",
                "Sent packets that came out divided or merged (segmentation offload, fragments): "
                "each byte was seen behind the device in packets that are like none before it. "
                "They have no latency.",
                everywhere=False,
            ),
            FigureLine(
                ("untimed",),
                "count",
                "Sent packets that were seen on both sides while a log said that one of the clocks "
                "was in doubt, or said nothing of it (`--clock-log`). They have no latency.",
                everywhere=False,
            ),
            _packets(
                "ambiguous",
                "Packets before the device that share their key with another one less than a "
                "window away, where order does not prove what became of them: they are not "
                "matched.",
            ),
            _packets(
                "repeated",
                "Further copies of one packet in the capture before the device, as a mirror port "
                "makes them.",
            ),
            _packets(
                "reverse",
                "Packets before the device that travel the other way: they were seen behind it "
                "first.",
            ),
            _packets(
                "local",
                "Control traffic of the link before the device (ARP, neighbour discovery, spanning "
                "tree) that did not come out behind it.",
            ),
            _packets("duplicated", "Further copies of matched packets behind the device."),
            _packets(
                "negative",
                "Sent packets that were only seen behind the device before they were sent: the "
                "clocks disagree.",
            ),
            FigureLine(
                ("reordered",),
                "count",
                "Matches that were overtaken by a packet sent later (RFC 4737).",
            ),
            FigureLine(("reordered_ratio",), "real", "`reordered / count`."),
            FigureLine(
                ("transfer_rate",),
                "real",
                "Packets behind the device / packets before it, each within its own trimmed "
                "interval.",
            ),
            _packets("pre_packets", "Packets in the capture."),
            _packets("pre_trimmed", "Packets left out by `--trim`."),
            _packets("pre_unkeyed", "Packets without a key."),
            _packets("post_ambiguous", "Packets behind the device that belong to ambiguous ones."),
            _packets(
                "post_negative",
                "Packets behind the device that lie before their packet in front of it.",
            ),
            _packets("post_reverse", "Packets behind the device that travel the other way."),
            _packets(
                "post_late",
                "Packets behind the device that arrived after the window of their packet.",
            ),
            _packets(
                "post_outside",
                "Packets behind the device that no packet before it explains, while the capture "
                "before it had not begun, had ended, or dropped as many itself.",
            ),
            FigureLine(
                ("post_resegmented",),
                "count",
                "Packets behind the device that are parts of packets before it, or were merged of "
                "them.",
                everywhere=False,
            ),
            FigureLine(
                ("post_untimed",),
                "count",
                "Packets behind the device that belong to untimed ones, and came after them.",
                everywhere=False,
            ),
            FigureLine(
                ("post_corrupt",),
                "count",
                "Packets behind the device that are damaged ones before it.",
                everywhere=False,
            ),
            _packets(
                "post_unknown",
                "Packets behind the device that no packet before it explains.",
            ),
        ),
    ),
    FigureGroup(
        "TCP streams, if matched by their bytes",
        (
            FigureLine(
                ("tcp_connections_paired", "tcp_connections_ambiguous"),
                "count",
                "Connections before the device that are known behind it, and those that may be one "
                "of several there.",
                everywhere=False,
                is_column=False,
            ),
            FigureLine(
                ("tcp_stretches",),
                "count",
                "Parts of streams that are the same behind the device, which changes what lies "
                "around them.",
                everywhere=False,
                is_column=False,
            ),
            FigureLine(
                ("tcp_bytes", "tcp_bytes_matched"),
                "count",
                "Bytes of streams that come out, before the device, and those of them in packets "
                "of which all bytes were seen behind it, or the last one of streams in parts.",
                everywhere=False,
                is_column=False,
            ),
            FigureLine(
                ("pre_tcp_connections",),
                "count",
                "Connections in the capture.",
                everywhere=False,
                is_column=False,
            ),
            FigureLine(
                ("pre_tcp_retransmitted", "pre_tcp_without_data", "pre_not_tcp"),
                "count",
                "Packets without new bytes of a stream: segments whose bytes had all been seen, "
                "segments without data, packets of other protocols.",
                everywhere=False,
                is_column=False,
            ),
        ),
    ),
    FigureGroup(
        "Latency",
        (
            FigureLine(("latency_ns_min",), "count", "Minimum of all matches."),
            FigureLine(("latency_ns_mean",), "real", "Mean of all matches."),
            FigureLine(
                ("latency_ns_pX",),
                "count",
                "Quantiles 0.5, 0.9, 0.99, … 0.999999: the smallest value with at least that share "
                "of the matches at or below it.",
            ),
            FigureLine(
                ("latency_ns_pX_ci_low", "latency_ns_pX_ci_high"),
                "count",
                "Its confidence interval, an exact pair of order statistics, wider by the "
                "resolution of the times on either side. If the samples give no upper end, that "
                "is `null`, and the lower one is a one-sided bound.",
            ),
            FigureLine(("latency_ns_pX_beyond",), "count", "Samples of higher rank."),
            FigureLine(
                ("latency_ns_pX_supported",), "truth", "Whether at least 10 samples lie beyond."
            ),
            FigureLine(("latency_ns_max",), "count", "Maximum of all matches."),
            FigureLine(
                ("ci_level",), "real", "Confidence of the intervals, 0.95.", is_column=False
            ),
        ),
    ),
    FigureGroup(
        "Variation",
        (
            FigureLine(
                ("pdv_ns_pX",),
                "count",
                "Quantile of the latency less the smallest latency (RFC 5481); `null` if it is not "
                "supported.",
            ),
            FigureLine(
                ("ipdv_ns_min", "ipdv_ns_max"),
                "signed",
                "Largest decrease and increase of latency between two packets that were sent one "
                "after the other and both matched (RFC 5481).",
            ),
            FigureLine(("ipdv_abs_ns_mean",), "real", "Mean of its absolute value."),
            FigureLine(
                ("ipdv_abs_ns_pX",),
                "count",
                "Quantiles of its absolute value; `null` if they are not supported.",
            ),
        ),
    ),
    FigureGroup(
        "Each side, within the interval that begins after its own trim",
        (
            FigureLine(
                ("pre_rate_pps",),
                "real",
                "Packets per second from the first to the last packet of the interval.",
            ),
            FigureLine(
                ("pre_second_mean_pps",),
                "real",
                "Mean of the packets per second over the seconds, counted from the first packet, "
                "that had any. This is the papers' figure; the last second, seldom whole, counts "
                "like the others.",
            ),
            FigureLine(("pre_duration_s",), "real", "Time from the first to the last packet."),
            FigureLine(
                ("pre_gap_ns_min", "pre_gap_ns_max"),
                "count",
                "Shortest and longest time between a packet and the one before it.",
            ),
            FigureLine(("pre_gap_ns_mean",), "real", "Mean of that time."),
            FigureLine(
                ("pre_gap_ns_pX",),
                "count",
                "Quantiles of that time; `null` if they are not supported.",
            ),
            FigureLine(
                ("pre_disordered",),
                "count",
                "Packets that were earlier than one in front of them, and were put in order.",
            ),
            FigureLine(("pre_file",), "text", "Path of the capture, or `standard input`."),
            FigureLine(("pre_format",), "text", "`pcap`, `pcapng`, `erf`, `snoop` or `mscap`."),
            FigureLine(("pre_resolution",), "text", "The coarsest unit of its timestamps."),
            FigureLine(
                ("pre_stamps",),
                "text",
                "Who wrote the times behind its frames, with `--stamps trailer`; `null` if times "
                "are those of the capture.",
                everywhere=False,
            ),
            FigureLine(
                ("pre_stamps_offset_ns",),
                "signed",
                "How much later the clock of the capture is than those times: the median of the "
                "least differences over time.",
                everywhere=False,
            ),
            FigureLine(
                ("pre_stamps_drift_ppm",),
                "real",
                "How much faster it runs, in parts per million; `null` of a short capture.",
                everywhere=False,
            ),
            FigureLine(
                ("pre_stamps_largest_ns",),
                "signed",
                "The largest difference of the two times of a packet.",
                everywhere=False,
            ),
            FigureLine(
                ("pre_stamps_without",),
                "count",
                "Packets without a time behind them, which are left out.",
                everywhere=False,
            ),
            FigureLine(
                ("pre_dropped",),
                "count",
                "Packets that the capture says it dropped itself; `null` if it does not say.",
                everywhere=False,
            ),
            FigureLine(
                ("pre_cut_offset_bytes",),
                "count",
                "Where the capture was cut off, counted after decompression; `null` if it was not.",
                is_column=False,
            ),
        ),
    ),
    FigureGroup(
        "Provenance",
        (
            FigureLine(("match_on",), "text", "The key that was used; never `auto`."),
            FigureLine(
                ("key_limit_bytes",),
                "count",
                "Bytes of each packet from its network header on that both captures hold, and keys "
                "go by; `null` if they hold enough.",
                everywhere=False,
            ),
            FigureLine(("window_ns", "trim_ns"), "count", "As given.", is_column=False),
            FigureLine(
                ("clock",), "text", "Where the times come from, such as `capture-file` or `tsc`."
            ),
            FigureLine(
                ("resolution_ns",),
                "real",
                "From one time to the next that can be told apart: the grid that the times of the "
                "captures lie on, or the unit of the file if that is coarser; of a run, the tick "
                "of its counter if that is longer than 1 ns.",
                everywhere=False,
            ),
            FigureLine(
                ("span_start_s",),
                "real",
                "When both captures had begun, in s after the first packet before the device.",
                everywhere=False,
            ),
            FigureLine(
                ("span_s",),
                "real",
                "How long both captures looked from then on, in s.",
                everywhere=False,
            ),
            FigureLine(
                ("clock_offset_ns",),
                "signed",
                "By how much the clock behind the device was taken to be ahead; `null` if it was "
                "not.",
                everywhere=False,
            ),
            FigureLine(
                ("clock_offset_ns_low",),
                "signed",
                "The least offset at the first packet that an estimate allows; `null` if no packet "
                "travels the other way: then nothing bounds it from below.",
                everywhere=False,
            ),
            FigureLine(
                ("clock_offset_ns_high",),
                "signed",
                "The highest offset at the first packet that an estimate allows: with a higher "
                "one, a packet would have arrived before it was sent.",
                everywhere=False,
            ),
            FigureLine(
                ("clock_drift_ppm",),
                "real",
                "By how much that clock was taken to run faster, in parts per million.",
                everywhere=False,
            ),
            FigureLine(
                ("clock_drift_ppm_error",),
                "real",
                "By how much an estimate of that may be wrong either way, if the fastest packets "
                "take as long at any time; 0 if it is known, `null` if too few packets tell.",
                everywhere=False,
            ),
            FigureLine(
                ("clock_drift_suspected_ns",),
                "signed",
                "How much longer the fastest packets take at the end, if they become steadily "
                "slower, or less if faster, and nobody said whether the clocks are one: by so much "
                "latencies may be off. `null` where it is no more than chance.",
                everywhere=False,
            ),
            FigureLine(
                ("latency_relative",),
                "truth",
                "Whether latencies are above that of the fastest packet, because the offset of the "
                "clocks is not known.",
                everywhere=False,
            ),
            FigureLine(
                ("order_doubtful",),
                "truth",
                "Whether packets that were seen behind the device alone make it likely that the "
                "captures are in the wrong order, or that the one before the device missed some.",
                everywhere=False,
            ),
            FigureLine(
                ("clock_slips",),
                "count",
                "How often all latencies changed and returned at once while a capture goes back in "
                "time, as those of a clock do that is set.",
                everywhere=False,
            ),
            FigureLine(
                ("floor_ns",),
                "count",
                "Always `null`: [`run.json`](#runjson) has the floor of a measurement, and "
                "captures do not tell theirs.",
                is_column=False,
            ),
            FigureLine(("warnings",), "texts", "What a reader of the figures must know."),
        ),
    ),
    FigureGroup(
        "Of a measurement",
        (
            FigureLine(
                ("lost_in_dut", "lost_in_instrument", "lost_where_unknown"),
                "count",
                "The parts of `lost`: what the device's own counters show, what the instrument's "
                "do, and the rest.",
                everywhere=False,
            ),
            FigureLine(
                ("dropped_by_dut",),
                "count",
                "Packets of `lost_in_dut` that the device says it dropped on purpose; `null` if it "
                "does not say.",
                everywhere=False,
            ),
            FigureLine(
                ("unsent",),
                "count",
                "Packets that could not be handed to the wire within 10 ms of their time.",
                everywhere=False,
            ),
            FigureLine(
                ("unsent_generator",),
                "count",
                "Packets of `unsent` that the generator itself held back: it stalled for more than "
                "half of those 10 ms, or the wire refused nothing meanwhile.",
                everywhere=False,
            ),
            FigureLine(
                ("tainted",),
                "count",
                "Matches whose latency the instrument's own stalls could change in its first four "
                "digits.",
                everywhere=False,
            ),
            FigureLine(
                ("stalls", "stall_ns_total", "stall_ns_max"),
                "count",
                "The instrument's own stalls: number, total duration, longest; those of the "
                "generator, and times that tailscope itself took from the device's CPUs.",
                everywhere=False,
            ),
            FigureLine(
                ("asked_gap_ns_mean",),
                "real",
                "Mean time between two packets that was asked for, or that a capture has which was "
                "sent at its own times; `pre_gap_ns_*` is what came of it.",
                everywhere=False,
            ),
            FigureLine(
                ("asked_burst_gap_ns",),
                "count",
                "Time from one packet of a burst to the next that was asked for.",
                everywhere=False,
            ),
            FigureLine(
                ("burst_gap_ns_min", "burst_gap_ns_max"),
                "count",
                "The shortest and the longest such time of packets that left. Packets that were "
                "due together are handed to the wire at the same time.",
                everywhere=False,
            ),
            FigureLine(("burst_gap_ns_mean",), "real", "Mean of that time.", everywhere=False),
            FigureLine(
                ("asked_burst_period_ns_mean", "burst_period_ns_mean"),
                "real",
                "Mean time from the beginning of a burst to that of the next: asked for, and of "
                "bursts that left.",
                everywhere=False,
            ),
            FigureLine(
                ("asked_frame_bytes_mean", "frame_bytes_mean"),
                "real",
                "Mean size of frames, check sequence included: asked for, and of frames that left.",
                everywhere=False,
            ),
            *_least("least_latency_ns"),
            *_taintable("intended_latency_ns", "Latency from the intended departure"),
            *_taintable("departure_error_ns", "Actual less intended departure"),
            *_taintable(
                "untainted_departure_error_ns",
                "The same without packets that stalls of the generator held back, or those ahead",
            ),
        ),
    ),
    FigureGroup(
        "Of power, where there is a source",
        (
            FigureLine(("power_includes",), "text", "What all of these cover.", everywhere=False),
            *_power(
                ("power_w_idle", "power_w_running", "power_w_processing"),
                "Mean power of each phase, in watts.",
            ),
            *_power(
                ("energy_j_per_packet", "energy_j_per_million_packets"),
                "Energy while processing, per packet sent meanwhile, in joules.",
            ),
            *_power(
                ("energy_j_per_packet_above_idle", "energy_j_per_million_packets_above_idle"),
                "The same for the energy that exceeds the power of `idle`.",
            ),
        ),
    ),
)
"""The figures by what they are about."""


def figure_lines() -> Iterator[tuple[str, FigureLine]]:
    """Each figure by its whole name, with the line that declares it."""
    for group in GROUPS:
        for line in group.lines:
            for name in line.names:
                yield from ((each, line) for each in _whole(name))


def _whole(name: str) -> Iterator[str]:
    twins = [name]
    if name.startswith("pre_"):
        twins.append(f"post_{name.removeprefix('pre_')}")
    for twin in twins:
        if "pX" in twin:
            yield from (twin.replace("pX", quantile) for quantile in QUANTILES)
        else:
            yield twin


def _field(name: str, line: FigureLine) -> tuple[str, object] | tuple[str, object, object]:
    kind = _PLAIN[line.kind]
    if line.kind == "texts":
        return name, kind
    return (name, kind | None) if line.everywhere else (name, kind | None | UnsetType, UNSET)


Summary = msgspec.defstruct(
    "Summary",
    [("format", Literal[4], SUMMARY_FORMAT), *(_field(*each) for each in figure_lines())],
    bases=(Record,),
    namespace={
        "ABOUT": {
            "format": "Version of this file.",
            **{name: line.about for name, line in figure_lines()},
        }
    },
    module=__name__,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
)
"""All figures of a run."""


def figures_of(summary: Struct) -> dict[str, Figure]:
    """The figures of a run by their flat names, without those that it does not have."""
    return {
        name: value
        for name, value in asdict(summary).items()
        if value is not UNSET and name not in ("format", "warnings")
    }


def warnings_of(summary: Struct) -> tuple[str, ...]:
    """Warnings about the figures, as sentences."""
    found: tuple[str, ...] = asdict(summary)["warnings"]
    return found
