"""What is in the files of runs, campaigns and searches: the one table of it.

Pages and tests read it: ``python -m docs.reference`` writes ``docs/reference/files.md`` from it,
and tests compare it with files that were just written. In names `*` stands for anything, `pX` for
any quantile of `GRID`, and a name that begins with ``pre_`` for its twin ``post_``, too. Of JSON,
names within names are divided by dots, and a list is like what is in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tailscope.store import layout

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CAMPAIGN", "NOISE_FOLDER", "RUN", "SEARCH", "SUMMARY", "Column", "RunFile"]


class Column(NamedTuple):
    """A column of a table.

    Attributes
    ----------
    kind : str
        As Arrow calls it; of CSV, as Python reads it.
    about : str
    """

    kind: str
    about: str


class RunFile(NamedTuple):
    """A file of a directory.

    Attributes
    ----------
    name : str
    about : str
    columns : Mapping of str to Column
        Of a table.
    fields : Mapping of str to str
        Of JSON: what each one says.
    """

    name: str
    about: str
    columns: Mapping[str, Column] = {}
    fields: Mapping[str, str] = {}


_KEPT = {
    "kept.summary_sha256": "of the `summary.json` that it was drawn from, as `run.json` has it. "
    "Where the run holds another one, the conclusion is left out with a warning",
    "kept.content_sha256": "of all but `kept`: what was changed since is left out likewise",
    "kept.command": "what was called, a list of words",
    "kept.tailscope_version, kept.written_unix_ns": "of the tool that kept it, and when",
}


def _within(name: str, fields: Mapping[str, str]) -> dict[str, str]:
    """Fields of an object, by their names from outside of it."""
    return {
        ", ".join(f"{name}.{each}" for each in names.split(", ")): about
        for names, about in fields.items()
    }


SUMMARY: Mapping[str, Mapping[str, str]] = {
    "Packets": {
        "count": "matches: unique packets seen behind the device within the window. The n of every "
        "latency figure",
        "sent": "packets before the device, within the trimmed interval, whose key is unique "
        "within the window; `count + lost + late + corrupt`",
        "lost": "sent packets that were not seen behind the device within two windows, or only too "
        "early",
        "loss_ratio": "`lost / sent`",
        "late": "sent packets seen behind the device only after the window, before a second one "
        "had passed",
        "corrupt": "sent packets that only came back changed; 0 for captures, which cannot tell",
        "ambiguous": "packets before the device that share their key with another one less than a "
        "window away: not matched",
        "duplicated": "further copies of matched packets behind the device",
        "negative": "packets behind the device at or before the time of their packet before it: "
        "the clocks disagree",
        "reordered": "matches that a packet sent later had overtaken (RFC 4737)",
        "reordered_ratio": "`reordered / count`",
        "transfer_rate": "packets behind the device / packets before it, each within its own "
        "trimmed interval",
        "pre_packets": "packets in the capture",
        "pre_trimmed": "packets left out by `--trim`",
        "pre_unkeyed": "packets that have no key",
        "post_ambiguous": "packets behind the device that belong to ambiguous ones",
        "post_late": "packets behind the device that came after the window of their packet",
        "post_unknown": "packets behind the device that no packet before it explains",
    },
    "Latency": {
        "latency_ns_min, latency_ns_mean, latency_ns_max": "of all matches",
        "latency_ns_pX": "quantiles 0.5, 0.9, 0.99, … 0.999999: the smallest value with at least "
        "that share of the matches at or below it",
        "latency_ns_pX_ci_low, latency_ns_pX_ci_high": "its interval, an exact pair of order "
        "statistics; where the samples give no upper end, that is `null` and the lower one is a "
        "one-sided bound",
        "latency_ns_pX_beyond": "samples of higher rank",
        "latency_ns_pX_supported": "whether at least 10 samples lie beyond",
        "ci_level": "confidence of the intervals, 0.95",
    },
    "Variation": {
        "pdv_ns_pX": "quantile of the latency less the smallest latency (RFC 5481); `null` where "
        "not supported",
        "ipdv_ns_min, ipdv_ns_max": "largest decrease and increase of latency between two packets "
        "sent in a row and both matched (RFC 5481), signed",
        "ipdv_abs_ns_mean, ipdv_abs_ns_pX": "mean and quantiles of its absolute value; quantiles "
        "`null` where not supported",
    },
    "Each side, within the interval that begins after its own trim": {
        "pre_rate_pps": "packets per second from the first to the last packet of the interval",
        "pre_second_mean_pps": "mean of the packets per second over the seconds, counted from the "
        "first packet, that had any: the papers' figure, in which the last second, seldom whole, "
        "counts like the others",
        "pre_duration_s": "from the first to the last packet",
        "pre_gap_ns_min, pre_gap_ns_mean, pre_gap_ns_max, pre_gap_ns_pX": "time between a packet "
        "and the one before it; quantiles `null` where not supported",
        "pre_disordered": "packets that were earlier than one in front of them, and were put in "
        "order",
        "pre_file": "the capture's path, or `standard input`",
        "pre_format": "`pcap` or `pcapng`",
        "pre_resolution": "the coarsest unit of its timestamps",
        "pre_cut_offset_bytes": "where it was cut off, counted after decompression; `null` if it "
        "was not",
    },
    "Provenance": {
        "match_on": "the key that was used; never `auto`",
        "window_ns, trim_ns": "as given",
        "clock": "where the times come from: `capture-file`, `tsc`",
        "floor_ns": "what the instrument measures with nothing in between: `null`, captures do not "
        "tell",
        "warnings": "sentences a reader of the figures must know",
    },
    "Of a measurement": {
        "lost_in_dut, lost_in_instrument": "the parts of `lost`",
        "dropped_by_dut": "of `lost_in_dut`, what the device says it dropped on purpose; `null` "
        "where it does not say",
        "unsent": "packets that could not be handed to the wire within 10 ms of their time",
        "partial": "why the result is a partial one: sentences, none if it is whole",
        "tainted": "matches during which the instrument stalled",
        "stalls, stall_ns_total, stall_ns_max": "the instrument's own stalls: how many, all "
        "together, the longest",
        "untainted_latency_ns_*": "latency without tainted samples: mean, supported quantiles, max",
        "intended_latency_ns_*": "latency from the intended departure: mean, supported quantiles, "
        "max",
        "departure_error_ns_*": "actual less intended departure: mean, supported quantiles, max",
        "untainted_departure_error_ns_*": "the same without packets that a stall of the generator "
        "held back",
    },
    "Of power, where there is a source": {
        "power_includes": "what all of these cover",
        "power_w_idle, power_w_running, power_w_processing": "mean power of each phase, in watts",
        "energy_j_per_packet, energy_j_per_million_packets": "energy while processing, by packets "
        "sent meanwhile, in joules",
        "energy_j_per_packet_above_idle, energy_j_per_million_packets_above_idle": "the same of "
        "what exceeds the power of `idle`",
        "power_w_*_ci_low, power_w_*_ci_high, energy_j_*_ci_low, energy_j_*_ci_high": "their 95 % "
        "intervals; `null` where the figure is",
    },
}
"""The figures of ``summary.json`` and of ``--json``, by what they are about."""

_HOST = {
    "cpu_model, cpu_microcode, cpu_count": "the processor, and how many CPUs the machine has",
    "last_level_caches": "the CPUs that share one: lists, `;` between",
    "machine, kernel, kernel_command_line": "as `uname` and `/proc/cmdline` have them",
    "kernel_flavour, kernel_release, kernel_preemption": "`vanilla`, `rt` or "
    "`nohz`; its release; how it preempts",
    "kernel_nohz_full, kernel_isolated": "CPUs without ticks while one task runs, and "
    "CPUs that the scheduler leaves alone",
    "kernel_hz, kernel_tick": "ticks in a second; `periodic`, `idle` (stopped on idle "
    "CPUs) or `full`",
}

_RECORDED = {
    "events": "null where no kernel events were recorded",
    "events.clock, events.clock_error_ns": "the trace's clock, and by how much it may be off: 0 "
    "for the packets' own counter",
    "events.lost.*, events.senders_lost": "events lost on each CPU, and of who interrupts whom",
    "events.untold_switches.*": "task switches that the kernel did not tell though it lost "
    "nothing; some leave out a few in a thousand",
    "events.missing": "events that this kernel does not have, or whose tracer others use",
    "events_missing_because": "why there are none",
    "interrupts.*": "what `/proc/interrupts` and `/proc/softirqs` counted meanwhile, by name and "
    "CPU",
    "counter_samples": "how often those were read",
    "steal_ns.*": "what a hypervisor took of each CPU, as far as `/proc/stat` knows",
}

_STALLS = {
    "count": "how many",
    "total_ns": "all together",
    "longest_ns": "the longest",
    "unrecorded": "those for which there was no room",
}

_RUN_FIELDS = {
    "format": "version of the layout; a reader refuses any other",
    "complete": "whether all files are there; while a run is written there is nothing but these "
    "two",
    "written_unix_ns": "when it was finished",
    "tailscope_version, python_version": "what wrote it",
    "plan.*": "all that was asked for, defaults included: below",
    **_within("host", _HOST),
    "inputs": "of captures; empty for a measurement",
    "inputs.*.file, inputs.*.size_bytes, inputs.*.modified_unix_ns": "of both captures (`pre`, "
    "`post`)",
    "clock.source": "`capture-file`, or `tsc`: the time-stamp counter, read around sending and "
    "receiving; in a laboratory as [testbed.md](../testbed.md) has it",
    "clock.pre_resolution, clock.post_resolution": "of captures: the coarsest unit",
    "clock.tsc, clock.tsc_hz, clock.unix_ns": "a reading of the counter, its rate, and the time "
    "of that reading",
    "floor": "what `tailscope calibrate` measured on a machine like this one; null where nobody "
    "has",
    "floor.*": "its figures, when and by what they were measured",
    "partial": "why the result is a partial one: sentences, none if it is whole",
    "warnings": "sentences a reader must know",
    "instrument.unsent, instrument.lost_in_dut, instrument.lost_in_instrument, "
    "instrument.dropped_by_dut": "as in `summary.json`",
    "instrument.stalls.*": "stalls of `generator` and of `dut`",
    **_within("instrument.stalls.*", _STALLS),
    "instrument.cpus.*": "who polled on which CPUs",
    "instrument.raised_priority": "whether the generator ran before other programs",
    "instrument.generator.*": "what the generator said at its end "
    "([dataplane.md](../dataplane.md))",
    **_within("noise", _RECORDED),
    "noise.own_work.*": "how causes begin that are a side's work, not noise",
    "power.source": "as `--power` names it; null without one, and then nothing but",
    "power.missing_because": "why there is none",
    "power.includes": "what it covers: domains of RAPL, the whole server, what the command "
    "measures",
    "power.readings, power.readings_failed": "how many there were, how many more failed",
    "power.reading_ns_p50, power.reading_ns_max": "how long one took: the median, the longest",
    "power.phases.*.start_ns, power.phases.*.end_ns, power.phases.*.stretches": "when each phase "
    "was, on the clock of the packets, and its stretches of different power",
    "power.figures.*": "those of `summary.json`",
    "power.reasons.*": "why figures are null, by name",
    "knobs.*": "how the host was set: each knob of [host.md](../host.md), null where it cannot be "
    "read",
    "tuning": "what `--tune` set, and what was refused: a list",
    "tuning.*": "of each write: the knob, where, what was there, what was written, and whether it "
    "was refused",
    "dut": "null for `loop`",
    "dut.name, dut.instance, dut.version": "the device, which of several it is, what it says of "
    "its version",
    "dut.configuration": "commands and files that it was set up with",
    "dut.result": "what it counted, null where it does not say",
    "dut.result.*": "as it says it",
    "platform": "null for `loop`",
    "platform.name": "what the device ran on",
    "platform.*": "all else that is known of it; `representative` is false where times mean "
    "nothing",
    "files.*.size_bytes, files.*.sha256": "of every other file: what must be there, unchanged",
}

_NS = "of each of the worst packets, the part of its latency: [noise.md](../noise.md)"

_INTERRUPTS = RunFile(
    layout.INTERRUPTS,
    "Counters of interrupts, a row for each sample, counter and CPU.",
    {
        "unix_ns": Column("int64", "when it was read"),
        "interrupt": Column("string", "as the kernel names it; of softirqs after `softirq`"),
        "cpu": Column("int64", "where"),
        "count": Column("int64", "since the machine was booted"),
    },
)

_NOISE = RunFile(
    layout.NOISE,
    "What kept CPUs from their work, an interval a row, in order of time.",
    {
        "source": Column("string", "`dut`, `instrument`, or `watch` of `tailscope noise`"),
        "cpu": Column("int64", "where"),
        "kind": Column(
            "string",
            "`stall`: as a polling loop saw it; `cause`: a piece of time with a name, disjoint; "
            "`injected`: made on purpose, the truth",
        ),
        "cause": Column("string", "its name: [noise.md](../noise.md)"),
        "detail": Column("string", "what else is known"),
        "event": Column("int64", "pieces of one event that was interrupted share a number"),
        "start_ns": Column("int64", "on the clock of the packets"),
        "duration_ns": Column("int64", "how long"),
    },
)

RUN = (
    RunFile(
        layout.RUN,
        "Where a run comes from, and the checksums of all else. Written last: a run is complete "
        "when it says so.",
        fields=_RUN_FIELDS,
    ),
    RunFile(
        layout.SUMMARY,
        "Every figure, flat; also what `--json` writes. Units are in the names: `_ns` nanoseconds, "
        "`_s` seconds, `_pps` packets per second, `_w` watts, `_j` joules. `null` means that there "
        "is no such value: no sample, or none that the samples support. "
        "[statistics.md](../statistics.md) says what each is worth.",
    ),
    RunFile(
        layout.PERCENTILES,
        "Quantiles of the latency on a fine grid, from the minimum up to the last one that has a "
        "sample beyond.",
        {
            "q": Column("float", "quantile, 0 to 1"),
            "value_ns": Column("int", "the smallest latency with that share at or below it"),
            "ci_low_ns": Column("int", "lower end of its 95 % interval; empty where there is none"),
            "ci_high_ns": Column("int", "upper end, likewise"),
            "beyond": Column("int", "samples of higher rank"),
            "supported": Column("bool", "whether at least 10 samples lie beyond"),
        },
    ),
    RunFile(
        layout.LATENCY,
        "Every match, in the order in which packets were sent.",
        {
            "seq": Column("uint64", "its place before the device, from 0"),
            "pre_ns": Column("uint64", "when it was seen before the device, since 1970"),
            "latency_ns": Column("uint64", "how much later behind it"),
            "intended_ns": Column("uint64", "when it should have left; null for captures"),
            "tainted": Column("bool", "whether the instrument stalled; null for captures"),
        },
    ),
    RunFile(
        layout.WORST,
        "The worst packets, by latency, then by time.",
        {
            "latency_ns": Column("uint64", "its latency"),
            "pre_ns": Column("uint64", "when it was seen before the device"),
            "post_ns": Column("uint64", "when it was seen behind it"),
            "pre_seq": Column("uint64", "its place before the device, from 0"),
        },
    ),
    RunFile(
        layout.WORST,
        "Of a measurement it also has what they waited for.",
        {
            **{
                f"{part}_ns": Column("int64", _NS)
                for part in ("service", "dut", "queue", "instrument", "unexplained")
            },
            "cause": Column("string", "of its largest part"),
            "queue_cause": Column("string", "what delayed the first packet of its queue"),
        },
    ),
    RunFile(
        layout.HISTOGRAM,
        "Histogram of the latency: buckets that are not empty.",
        {
            "bucket_ns": Column("int", "lower edge"),
            "count": Column("int", "packets"),
        },
    ),
    RunFile(
        layout.HLOG,
        "The same in HdrHistogram's log format, values within 0.1 %.",
    ),
    RunFile(
        layout.GAPS,
        "Histograms of the gaps between packets.",
        {
            "side": Column("str", "`pre` or `post`"),
            "bucket_ns": Column("int", "lower edge"),
            "count": Column("int", "gaps"),
        },
    ),
    RunFile(
        layout.RATE,
        "Packets per second.",
        {
            "side": Column("str", "`pre` or `post`"),
            "start_ns": Column("int", "begin of the second"),
            "count": Column("int", "packets"),
        },
    ),
    _NOISE,
    _INTERRUPTS,
    RunFile(
        layout.EXPLANATION,
        "What the tail is made of, of a measurement.",
        fields={
            "quantile": "packets beyond it are explained",
            "threshold_ns": "its value",
            "service_ns": "as long as the median packet takes",
            "packets": "how many are explained",
            "latency_ns": "of all of them",
            "excess_ns": "the same without the service of each",
            "parts_ns.*": "the parts of `latency_ns`: `service`, `dut`, `queue`, `instrument`, "
            "`unexplained`",
            "causes": "a list, the largest first",
            "causes.part, causes.cause": "the part, and its cause",
            "causes.packets, causes.total_ns, causes.share, causes.largest_ns": "packets that "
            "waited for it; how long, all together, as a share of the excess, and one of them",
        },
    ),
    RunFile(
        layout.POWER,
        "Power over time, a row for each stretch between readings and each domain; where power "
        "was read.",
        {
            "domain": Column("string", "`package-0`, `package-0/dram`, `server`, `meter`"),
            "start_ns": Column("int64", "on the clock of the packets"),
            "end_ns": Column("int64", "likewise"),
            "watts": Column("double", "mean power meanwhile"),
        },
    ),
    RunFile(
        f"{layout.CAPTURES}/",
        "`pre.pcapng.zst` and `post.pcapng.zst`, where asked.",
    ),
    RunFile(
        layout.REPORT,
        "The report: one file, works offline. It may be drawn again, and has no checksum.",
    ),
    *(
        RunFile(
            name,
            f"Kept by `tailscope {command} --keep`, beside the checksums: its `--json`"
            f" ([{page}](../{page})), and where that comes from.",
            fields=_KEPT,
        )
        for name, command, page in (
            (layout.TAIL, "model tail", "tail.md"),
            (layout.OVERLOAD, "model overload", "overload.md"),
            (layout.VERDICT, "verify", "verdict.md"),
        )
    ),
    RunFile(
        layout.NOTES,
        "What its user says of a run, beside the checksums: [catalogue.md](../catalogue.md).",
        fields={
            "format": "version; a reader refuses any other",
            "tags": "a list, sorted",
            "notes": "a list, the oldest first",
            "notes.written_unix_ns, notes.text": "when a note was written, and what it says",
        },
    ),
)
"""The files of a run directory."""

CAMPAIGN = (
    RunFile(
        layout.CAMPAIGN,
        "Written after each cell. The runs are directories beside it.",
        fields={
            "format": "version; a reader refuses any other",
            "name, about": "of the experiment",
            "complete": "whether no cell is left",
            "tailscope_version": "what wrote it",
            "started_unix_ns": "when",
            "host.*": "the machine, as in `run.json`",
            "experiment.*": "the experiment, with the profile that was chosen: "
            "[experiment.md](experiment.md)",
            "cells": "a list, one for each combination and repeat",
            "cells.name, cells.values.*, cells.repeat": "its name, what it varies, which repeat",
            "cells.state": "`pending`, `running`, `done`, `partial`, `failed`, or `waiting` for "
            "another kernel to be booted",
            "cells.reason, cells.hint": "why it is not done, and what can be done about it",
            "cells.runs": "its run directories, within the campaign's",
            "cells.figures.*": "the most important figures of each run",
            "cells.started_unix_ns, cells.lasted_s": "when it began, and how long it took",
        },
    ),
)
"""The files of a campaign."""

_TRIAL = {
    "rate_pps": "packets per second",
    "sent, unsent, lost_in_dut, lost_in_instrument, latency_ns_p50": "as in `summary.json`",
    "loss_ratio": "the device's: of the packets sent",
    "meets_level": "whether the packets of the trial meet `--slo`; null without",
    "invalid": "why a trial says nothing of the device; null if it does",
}

SEARCH = (
    RunFile(
        layout.SEARCH,
        "What a search found; with `--forwarder` the runs `forwarder` and `function` lie beside "
        "it.",
        fields={
            "tailscope_version": "what wrote it",
            "host.*": "the machine, as in `run.json`",
            "plan.*": "of a trial, as in `run.json`",
            "min_rate_pps, max_rate_pps, trial_s, width, pdr_loss, slo, forwarder": "as asked for",
            "goals": "a list",
            "goals.goal": "`NDR`, `PDR` or `level`",
            "goals.rate_pps": "the highest rate that holds; null if none does or none is known",
            "goals.fails_at_pps": "the lowest rate above it that does not; null if there is none",
            "goals.limited_by": "why: [overload.md](../overload.md)",
            "instrument_limit_pps": "the lowest rate at which no trial said anything of the "
            "device; null if there is none",
            "prediction": "with `--forwarder`, what `tailscope model overload` says; null without, "
            "or if nothing follows",
            "prediction.*": "its figures: [overload.md](../overload.md)",
            "trials, without_device": "lists of trials, in order",
            **_within("trials", _TRIAL),
            **_within("without_device", _TRIAL),
            "warnings, partial": "sentences",
        },
    ),
)
"""The files of a search."""

_CAUSE = {
    "cause": "what it was",
    "count": "how often it came",
    "rate_hz": "its rate on each CPU",
    "total_ns, share": "what it took in all, and of the time of all CPUs",
    "duration_ns_p50, duration_ns_p99, duration_ns_max, p99_supported": "how long one of them "
    "takes, and whether 10 events lie beyond the p99",
    "details": "who asked for it, which function: most frequent first",
}

NOISE_FOLDER = (
    RunFile(
        layout.WATCHED,
        "What CPUs were kept from, without packets; also what `--json` writes.",
        fields={
            "cpus, duration_s, stall_ns": "what was watched, for how long, from which length on a "
            "gap is a stall",
            "stalls": "of all of these CPUs",
            "stalls.share": "of the time",
            **_within("stalls", _STALLS),
            "causes": "a list, largest total first",
            **_within("causes", _CAUSE),
            "cpu_causes.*": "the same for each CPU",
            "cost": "the recorder's own; null where no events were recorded",
            "cost.share_with, cost.share_without, cost.without_s": "share of the time in stalls "
            "with events recorded, and without in the `without_s` right after, by the same loops; "
            "medians of tenths of a second",
            **_RECORDED,
            "warnings, partial": "sentences",
        },
    ),
    _NOISE,
    _INTERRUPTS,
)
"""The files of ``tailscope noise --out``."""
