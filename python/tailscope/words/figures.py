"""The figures of a run in words: the same for the terminal and for a page."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tailscope.plan.fields import CAPTURED
from tailscope.registry import offered
from tailscope.store.info import EMULATED, about_of, clock_of, foreign_text, is_emulated
from tailscope.store.records.plan import AnalysisPlan, ImportPlan
from tailscope.units import (
    QUANTILES,
    between_text,
    count_text,
    counted,
    duration_text,
    percentile_name,
    printable,
    quantity_text,
    share_text,
    typed_duration,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tailscope.engine.analysis import Figure, Group
    from tailscope.plan.fields import PlanFields
    from tailscope.store.kept import Conclusions
    from tailscope.store.records.explanation import ExplainedStages, Explanation
    from tailscope.store.records.floor import FloorRecord
    from tailscope.store.records.overload import OverloadRecord
    from tailscope.store.records.run import Instrument, PowerRecord, RunInfo, SentTraffic, Stalls
    from tailscope.store.records.verdict import VerdictRecord
    from tailscope.store.run import Run

BOUND_NOTE = "* fewer than 10 samples lie beyond: a bound, no estimate"
CAPTURE_FLOOR = "unknown: captures carry none"
_DOUBTFUL = 0.05
"""Share of a delay from which on it is said that it may as well be the instrument's."""
_FEW = 0.01
"""Share of the packets that changes no median."""
IMPORT_FLOOR = "unknown: imported figures do not say it"
CAPTURE_CLOCK = "times of the capture files"
CLOCKS = {
    "imported": "unknown: imported figures do not say it",
    "tsc": "time-stamp counter, read around sending and receiving",
    "kernel-software": "the timestamper's kernel, when it received frames from the card",
    "kernel-hardware": "the timestamper's card, by its kernel",
    "nic-hardware": "the timestamper's card",
}
STAGE_HEADER = ("stage", "p50", "p99", "of a packet", "of the tail", "interrupted most by")
DROP_HEADER = ("dropped by the device", "packets")
NOTHING = "-"
_ABOVE = "above the least"

_COUNTS = {
    "pre_packets": "packets before",
    "post_packets": "packets behind",
    "sent": "sent",
    "count": "matched",
    "lost": "lost",
    "late": "late",
    "duplicated": "duplicated",
    "ambiguous": "ambiguous",
    "reordered": "reordered",
}
_COUNTS_IF_ANY = {
    "outside": "outside",
    "negative": "seen before they were sent",
    "repeated": "repeated",
    "reverse": "travelling the other way",
    "local": "of the link only",
    "corrupt": "corrupt",
    "resegmented": "divided or merged",
    "untimed": "seen by a clock in doubt",
    "pre_trimmed": "trimmed before",
    "post_trimmed": "trimmed behind",
    "pre_unkeyed": "without a key before",
    "post_unkeyed": "without a key behind",
    "post_ambiguous": "ambiguous behind",
    "post_negative": "too early behind",
    "post_reverse": "the other way, behind",
    "post_late": "late behind",
    "post_outside": "outside behind",
    "post_resegmented": "divided or merged behind",
    "post_untimed": "seen by a clock in doubt, behind",
    "post_corrupt": "corrupt behind",
    "post_unknown": "only seen behind",
}
_PARTS = {
    "service": "service, as usual",
    "dut": "DuT: {cause}",
    "queue": "queue, behind: {cause}",
    "instrument": "instrument: {cause} (tainted)",
    "unexplained": "unexplained",
}
_MAYBE = "unexplained, may be {cause}"
_ENERGY = {
    "power_w_idle": ("power, idle", "W"),
    "power_w_running": ("power, running", "W"),
    "power_w_processing": ("power, processing", "W"),
    "energy_j_per_packet": ("energy of a packet", "J"),
    "energy_j_per_packet_above_idle": ("the same, above idle", "J"),
    "energy_j_per_million_packets": ("energy of a million packets", "J"),
    "energy_j_per_million_packets_above_idle": ("those, above idle", "J"),
}
_SHARES = {"lost": "sent", "late": "sent", "reordered": "count", "tainted": "count"}

_DIRECTIONS = {
    "forth": "forth, from the generator's first port to its second",
    "back": "back, from the generator's second port to its first",
}


class Row(NamedTuple):
    """One figure: its name, its value, and how far to trust it."""

    label: str
    value: str
    interval: str = ""
    beyond: str = ""


def count_rows(summary: Mapping[str, Figure]) -> list[Row]:
    """Say what became of the packets; a rare fate only when a packet met it."""
    rows = [
        Row(
            label,
            lost_text(summary) if name == "lost" else _count(summary[name]),
            _share(summary, name),
        )
        for name, label in _COUNTS.items()
    ]
    rows += [
        Row(label, _count(summary[name]))
        for name, label in _COUNTS_IF_ANY.items()
        if summary.get(name)
    ]
    rate = summary["transfer_rate"]
    rows.append(Row("transfer rate", NOTHING if rate is None else f"{rate:.6f}"))
    return rows


def lost_text(summary: Mapping[str, Figure]) -> str:
    """Return the number of lost packets; from .. to where the captures do not prove all of them."""
    lost, proven = summary["lost"], summary.get("lost_proven")
    if lost is None or proven is None or proven == lost:
        return _count(lost)
    return f"{_count(proven)} to {_count(lost)}"


def latency_rows(summary: Mapping[str, Figure]) -> list[Row]:
    """Say how long the packets took; a quantile without support is a bound."""
    return [
        Row("min", _latency(summary, "min")),
        Row("mean", _latency(summary, "mean")),
        *_quantile_rows(summary),
        Row("max", _latency(summary, "max")),
    ]


def part_text(part: str, cause: str) -> str:
    """Say what a packet waited for, or what that may have been."""
    from tailscope.store.records.explanation import REST_OF_BATCH, WAY

    if cause == WAY:
        return WAY
    name = _MAYBE if part == "unexplained" and cause else _PARTS[part]
    if part == "queue" and cause == REST_OF_BATCH:
        name = "queue, for: {cause}"
    return name.format(cause=cause)


def worst_rows(run: Run) -> list[tuple[str, ...]]:
    """Say how long the worst packets took, by position in the capture, and for what where known."""
    worst, explained = run.worst, run.worst_explained
    # Tables of others do not say which packets they were.
    numbers = [NOTHING if seq is None else count_text(int(seq)) for seq in worst.pre_seq]
    names = numbers or [NOTHING] * len(worst.latency_ns)
    latencies = [duration_text(int(took_ns)) for took_ns in worst.latency_ns]
    rows = list(zip(names, latencies, strict=True))
    parts = [part for part in _PARTS if f"{part}_ns" in explained]
    if not parts:
        return list(rows)
    found: list[tuple[str, ...]] = []
    for rank, row in enumerate(rows):
        part = max(parts, key=lambda part: int(explained[f"{part}_ns"][rank]))
        cause = explained["queue_cause" if part == "queue" else "cause"][rank]
        found.append((*row, part_text(part, str(cause or "unknown"))))
    return found


def explained_text(explanation: Explanation) -> str:
    """Say of which packets the rows of `cause_rows` are."""
    start = percentile_name(explanation.quantile)
    if not explanation.packets:
        latency = duration_text(explanation.threshold_ns)
        return f"No packet took longer than {start}, {latency}: there is no tail to explain."
    if explanation.none_above is None:
        lie = "lies" if explanation.packets == 1 else "lie"
        tail = f"{counted(explanation.packets, 'packet')} {lie} beyond {start}"
    else:
        above, shown = percentile_name(explanation.none_above), count_text(explanation.packets)
        tail = f"No packet lies above {above}; showing the {shown} above {start}"
    return (
        f"{tail}, {duration_text(explanation.threshold_ns)}; {_usual_text(explanation)}"
        f".{_order_text(explanation)}{_stalled_text(explanation)}"
        " Causes of their additional delay:"
    )


def is_doubtful(stalled_ns: int, named_ns: int, delay_ns: int) -> bool:
    """Return True if the instrument stalled for far more of a delay than has its name."""
    return stalled_ns - named_ns > _DOUBTFUL * delay_ns


def _may_be_the_instruments(explanation: Explanation) -> bool:
    named_ns = explanation.parts_ns.get("instrument", 0)
    return is_doubtful(explanation.stalled_ns, named_ns, explanation.excess_ns)


def _stalled_text(explanation: Explanation) -> str:
    """Say that causes of the device may be the instrument's, if much of the delay could be."""
    if not _may_be_the_instruments(explanation):
        return ""
    return (
        f" The instrument itself stalled for {explanation.stalled_ns / explanation.excess_ns:.1%}"
        " of that time, so packets may have left the device before, and its causes have less."
    )


def explained_answer(explanation: Explanation) -> str:
    """Say in a sentence what delayed the tail most; empty where there is none."""
    causes = [cause for cause in explanation.causes if cause.total_ns]
    if not explanation.packets or not causes:
        return ""
    first = max(causes, key=lambda cause: cause.total_ns)
    share = f"{100 * first.share:.3g} % of the delay of the tail"
    if first.part == "dut" and _may_be_the_instruments(explanation):
        return f"{first.cause} on the device's CPUs made at most {share}."
    return {
        "dut": f"{first.cause} on the device's CPUs made {share}.",
        "instrument": f"{first.cause} held the instrument itself, which made {share}.",
        "queue": f"Waiting in a queue because of {first.cause} made {share}.",
    }.get(first.part, f"{share[:1].upper()}{share[1:]} is unexplained.")


def _usual_text(explanation: Explanation) -> str:
    """Say which packets take `service_ns`: files of before have the median of all."""
    service, each_ns = duration_text(explanation.service_ns), explanation.each_ns
    if each_ns is None:
        return f"the median takes {service}"
    if not explanation.seen_idle:
        return (
            f"too few packets found the device idle to tell; one of a queue usually takes {service}"
        )
    text = f"a packet that finds the device idle usually takes {service}"
    if explanation.service_tainted:
        text += ", in part because the instrument stalled"
    if each_ns == explanation.service_ns:
        return text
    way = duration_text(explanation.service_ns - each_ns)
    return f"{text}: {duration_text(each_ns)} of service, {way} on the way there and back"


def _order_text(explanation: Explanation) -> str:
    """Say that queues are not known, if so."""
    if explanation.in_order is not False:
        return ""
    return (
        " Packets overtake each other, so their order in the device is not known, and neither are"
        " its queues: waiting for earlier packets is unexplained."
    )


def _drift_text(drift_ppb: float, error_ppb: float | None) -> str:
    """Say how fast clocks part; nothing where it may be no drift at all."""
    if error_ppb is None or abs(drift_ppb) <= error_ppb:
        return NOTHING
    return f"{drift_ppb:+,.0f} ±{error_ppb:,.0f} ppb"


def clock_rows(info: RunInfo) -> list[tuple[str, ...]]:
    """Say how clocks of a laboratory were brought to that of the captures, by each method."""
    rows: list[tuple[str, ...]] = []
    for role, machine in (info.machines or {}).items():
        clock = machine.clock
        for found in clock.mappings:
            if found.error_ns is None or found.offset_ns is None or found.drift_ppb is None:
                figures = ("-", "-", f"not known: {printable(found.missing_because or '')}")
            else:
                figures = (
                    f"{found.offset_ns:+,d} ns",
                    _drift_text(found.drift_ppb, found.drift_error_ppb),
                    f"±{count_text(found.error_ns)} ns",
                )
            used = "used" if found.method == clock.method else ""
            rows.append((role, found.method, count_text(found.bounds), *figures, used))
        events = info.noise.events if role == "dut" and info.noise is not None else None
        if events is not None and events.clock_error_ns and clock.error_ns is not None:
            error = f"±{count_text(events.clock_error_ns)} ns"
            rows.append((role, "kernel events", "", "", "", error, "added"))
        rows += [
            (
                role,
                report.program,
                "",
                "" if report.offset_ns is None else f"{report.offset_ns:+,d} ns",
                "",
                "" if report.error_ns is None else f"±{count_text(report.error_ns)} ns",
                "not used",
            )
            for report in clock.reports
        ]
    return rows


def clocks_text(explanation: Explanation) -> str:
    """Say how far clocks of several machines agree; nothing where there is but one."""
    error_ns = explanation.clock_error_ns
    if error_ns is None:
        return ""
    return (
        "by the clock of the captures, what happened on the device is known to within"
        f" ±{count_text(error_ns)} ns; what that leaves open is unexplained, with what it may be"
    )


def cause_rows(explanation: Explanation) -> list[tuple[str, ...]]:
    """Say what the tail waited for, largest first."""
    return [
        (
            printable(part_text(cause.part, cause.cause)),
            f"{cause.share:.1%}",
            count_text(cause.packets),
            duration_text(cause.total_ns),
            duration_text(cause.largest_ns),
        )
        for cause in explanation.causes
    ]


def stages_text(stages: ExplainedStages) -> str:
    """Say of which packets the rows of `stage_rows` are."""
    where = "kernel" if stages.way == "kernel" else "device"
    text = f"{counted(stages.packets, 'packet')} with all stages on the way through the {where}"
    if not stages.left_out:
        return f"{text}. {count_text(stages.tail_packets)} of them are of the tail."
    return (
        f"{text}; {count_text(stages.left_out)} were not seen at every point, and are left out."
        f" Of the tail, {count_text(stages.tail_packets)} have all stages, and"
        f" {count_text(stages.tail_left_out)} are left out."
    )


def stage_rows(stages: ExplainedStages) -> list[tuple[str, ...]]:
    """Say how long packets were in each stage, in the order of their way."""
    return [
        (
            each.stage,
            NOTHING if each.ns_p50 is None else duration_text(each.ns_p50),
            NOTHING if each.ns_p99 is None else duration_text(each.ns_p99),
            NOTHING if each.share_p50 is None else f"{each.share_p50:.1%}",
            NOTHING if each.tail_share is None else f"{each.tail_share:.1%}",
            "".join(
                f"{printable(part_text(cause.part, cause.cause))} {duration_text(cause.total_ns)}"
                for cause in each.interrupted_by[:1]
            ),
        )
        for each in stages.stages
    ]


def drop_rows(stages: ExplainedStages) -> list[tuple[str, ...]]:
    """Say why packets were dropped that were lost, as `DROP_HEADER` names it."""
    return [(printable(each.reason), count_text(each.packets)) for each in stages.drops]


def has_bounds(summary: Mapping[str, Figure]) -> bool:
    """Return whether a quantile in the table is but a bound."""
    return bool(summary["count"]) and any(
        summary[f"latency_ns_{name}_supported"] is False for name in QUANTILES
    )


def unknown_floor(info: RunInfo) -> str:
    """Say of a run without a floor what measures it."""
    if info.instrument is None:
        return CAPTURE_FLOOR if isinstance(info.plan, AnalysisPlan) else IMPORT_FLOOR
    if info.hosts:
        return "unknown: nothing measures it in a laboratory"
    return "unknown: `tailscope calibrate` measures it"


def instrument_rows(summary: Mapping[str, Figure], info: RunInfo) -> list[Row]:
    """Say what the instrument says of itself: its floor, its own stalls, and what they did."""
    instrument = info.instrument
    if instrument is None:
        return []
    rows = [_unsent_row(instrument), *_loss_rows(instrument)]
    rows += _sent_rows(summary, instrument.traffic)
    rows += _floor_rows(info.floor, unknown_floor(info))
    # A timestamper knows when packets passed, not when they were meant to.
    stamped_here = "tainted" in summary
    rows += _departure_rows(summary) if stamped_here else []
    rows.append(_stall_row("stalls of the generator", instrument.stalls.generator))
    if instrument.stalls.dut is not None:
        rows.append(_stall_row("stalls of the DuT", instrument.stalls.dut))
    if stamped_here:
        rows.append(Row("tainted", _count(summary["tainted"]), _share(summary, "tainted")))
    return rows


def _unsent_row(instrument: Instrument) -> Row:
    held_back = instrument.unsent_generator
    whose = f"{_count(held_back)} by the generator" if instrument.unsent and held_back else ""
    return Row("unsent", _count(instrument.unsent), whose)


def _sent_rows(summary: Mapping[str, Figure], sent: SentTraffic | None) -> Iterator[Row]:
    """Describe the traffic asked for, and beside it the traffic sent."""
    if sent is None:
        return
    if sent.asked_gap_ns_mean is not None:
        yield _asked_row("mean gap", sent.asked_gap_ns_mean, summary["pre_gap_ns_mean"])
    if sent.asked_burst_gap_ns is not None:
        row = _asked_row("gap in bursts", sent.asked_burst_gap_ns, sent.burst_gap_ns_mean)
        least, most = _duration(sent.burst_gap_ns_min), _duration(sent.burst_gap_ns_max)
        yield row._replace(beyond=f"{least} to {most}")
        period_ns = sent.asked_burst_period_ns_mean
        yield _asked_row("burst to burst", period_ns, sent.burst_period_ns_mean)
    asked_bytes, sent_bytes = sent.asked_frame_bytes_mean, sent.frame_bytes_mean
    if asked_bytes is not None and sent_bytes is not None:
        yield Row("mean frame", f"{sent_bytes:.5g} B", f"asked {asked_bytes:.5g} B")


def _asked_row(label: str, asked_ns: Figure, sent_ns: Figure) -> Row:
    return Row(label, _duration(sent_ns), f"asked {_duration(asked_ns)}")


def _loss_rows(instrument: Instrument) -> list[Row]:
    dropped = instrument.dropped_by_dut
    rows = [
        Row("lost in the DuT", _count(instrument.lost_in_dut)),
        Row("lost in the instrument", _count(instrument.lost_in_instrument)),
        Row("lost: where is not known", _count(instrument.lost_where_unknown)),
    ]
    return rows if dropped is None else [*rows, Row("dropped by the DuT", _count(dropped))]


def _departure_rows(summary: Mapping[str, Figure]) -> list[Row]:
    return [
        Row(
            f"departure error {label}",
            _duration(summary[f"departure_error_ns_{name}"]),
            f"{_duration(summary[f'untainted_departure_error_ns_{name}'])} outside stalls",
        )
        for label, name in (("p50", "p50"), ("p99.9", "p999"), ("max", "max"))
    ]


def _floor_rows(floor: FloorRecord | None, unknown: str) -> list[Row]:
    if floor is None:
        return [Row("floor", NOTHING, unknown)]
    believed = floor.believed_up_to
    return [
        Row("floor p50", _duration(floor.latency_ns_p50)),
        Row("floor p99.9", _duration(floor.latency_ns_p999)),
        Row("believed up to", NOTHING if believed is None else percentile_name(believed)),
    ]


def _stall_row(label: str, stalls: Stalls) -> Row:
    total, longest = _duration(stalls.stall_ns_total), _duration(stalls.stall_ns_max)
    return Row(label, _count(stalls.count), f"{total} in all", f"longest {longest}")


def energy_rows(info: RunInfo) -> list[Row]:
    """Say what power the machine drew, and what a packet took of it."""
    figures = None if info.power is None else info.power.figures
    if figures is None:
        return []
    return [
        Row(
            label,
            _quantity(figures[name], unit),
            _quantities((figures[f"{name}_ci_low"], figures[f"{name}_ci_high"]), unit),
        )
        for name, (label, unit) in _ENERGY.items()
    ]


def conclusion_rows(kept: Conclusions) -> list[Row]:
    """Say what was concluded from a run and kept in it."""
    added = (row for rows in offered("conclusion_rows") for row in rows(kept))
    return [*_overload_rows(kept.overload), *added]


def conclusion_doubts(kept: Conclusions) -> Iterator[str]:
    """Say what makes a conclusion doubtful that was kept in a run."""
    for doubts in offered("conclusion_doubts"):
        yield from doubts(kept)
    if (overload := kept.overload) is not None:
        yield from (f"R_max: {warning}" for warning in overload.warnings)


def _overload_rows(found: OverloadRecord | None) -> Iterator[Row]:
    if found is None:
        return
    value = _quantity(found.rate_max_pps, "packets/s")
    name = "highest rate, R_max"
    if found.rate_max_pps_ci_high is None:
        name += ", if packets are worked on one at a time"
    if found.is_upper_bound:
        yield Row(name, value, "without the noise of the device")
    elif found.rate_max_pps_ci_high is None:
        yield Row(name, value, "interval not known")
    else:
        ends = (found.rate_max_pps_ci_low, found.rate_max_pps_ci_high)
        yield Row(name, value, _quantities(ends, "packets/s"))


def verdict_text(found: VerdictRecord | None) -> dict[str, str] | None:
    """Say whether a run meets the service level that it was judged by; None where it was not."""
    if found is None:
        return None
    said = {
        "pass": "Pass: it meets {slo}.",
        "fail": "Fail: it does not meet {slo}.",
        "inconclusive": "Not enough evidence to say whether it meets {slo}.",
    }
    return {"outcome": found.verdict, "text": said[found.verdict].format(slo=found.slo)}


def _quantities(ends: tuple[Figure, Figure], unit: str) -> str:
    numbers = [float(end) for end in ends if end is not None]
    return NOTHING if len(numbers) < 2 else " to ".join(quantity_text(end, unit) for end in numbers)


def _quantity(value: Figure, unit: str) -> str:
    return NOTHING if value is None else quantity_text(float(value), unit)


def _power_text(power: PowerRecord) -> str:
    return (
        f"of {power.includes} ({power.source}): {count_text(power.readings or 0)} readings,"
        f" {duration_text(power.reading_ns_p50 or 0)} each,"
        f" {duration_text(power.reading_ns_max or 0)} at most"
    )


def _span(summary: Mapping[str, Figure]) -> dict[str, str]:
    """The time that both captures saw, if it is known."""
    lasts_s, start_s = summary.get("span_s"), summary.get("span_start_s")
    if not isinstance(lasts_s, float) or not isinstance(start_s, float):
        return {}
    lasts, start = (duration_text(each * 1e9) for each in (lasts_s, start_s))
    return {"span": f"{lasts} that both captures saw, from {start} after the first packet on"}


def provenance(summary: Mapping[str, Figure], about: RunInfo | AnalysisPlan) -> dict[str, str]:
    """Say where the figures come from."""
    info = None if isinstance(about, AnalysisPlan) else about
    plan = about if isinstance(about, AnalysisPlan) else about.plan
    if isinstance(plan, ImportPlan):
        assert info is not None, "an import makes a run"
        return {**_described(info), **_imported(plan, info)}
    matching = (
        f"on {summary['match_on']}, window {typed_duration(plan.window_ns)},"
        f" trim {typed_duration(plan.trim_ns)}"
    )
    if isinstance(plan, AnalysisPlan):
        files = {
            side: path
            if (form := summary[f"{side}_format"]) is None
            else f"{path} ({form}, {summary[f'{side}_resolution']})"
            for side, path in (("pre", plan.pre), ("post", plan.post))
        }
        said = {} if info is None else _described(info)
        is_live = info is not None and info.clock.source != "capture-file"
        clock = CLOCKS[info.clock.source] if info is not None and is_live else CAPTURE_CLOCK
        own = {"matching": matching, "clock": clock, "floor": CAPTURE_FLOOR}
        return {**files, **_span(summary), **own, **said}
    assert info is not None, "it was measured"
    cpus = {} if info.instrument is None else info.instrument.cpus
    power = info.power
    return {
        "device": device_text(plan),
        "platform": platform_text(plan)
        + (f" ({EMULATED}: times are not representative)" if is_emulated(info) else ""),
        "wire": plan.wire,
        "traffic": traffic_text(plan),
        **_direction(info),
        "cores": ", ".join(f"{role} {listed}" for role, listed in cpus.items()),
        "matching": matching,
        "clock": _clock_text(info) + _tick_text(summary),
        **({} if power is None or power.source is None else {"power": _power_text(power)}),
    }


def _clock_text(info: RunInfo) -> str:
    """Describe what took timestamps, and how the clocks of a timestamper's ports were aligned."""
    instrument = info.instrument
    watched = None if instrument is None else instrument.timestamper
    ports = None if watched is None else watched.port_clocks
    if ports is None:
        return CLOCKS[info.clock.source]
    return (
        f"{CLOCKS[info.clock.source]}; {ports.post} against {ports.pre}:"
        f" offset {duration_text(ports.offset_ns)}, drift {ports.drift_ppb / 1000:+,.3f} ppm,"
        f" taken out with a residual of {duration_text(ports.residual_ns)};"
        f" error at most {duration_text(ports.error_ns)}"
    )


def _tick_text(summary: Mapping[str, Figure]) -> str:
    """Say how far a counter's ticks are apart if that is more than a nanosecond."""
    tick_ns = summary.get("resolution_ns")
    return f", which ticks every {duration_text(float(tick_ns))}" if tick_ns else ""


def _direction(info: RunInfo) -> dict[str, str]:
    """Return the direction of a run that is one of two."""
    direction = None if info.instrument is None else info.instrument.direction
    return {} if direction is None else {"direction": _DIRECTIONS[direction]}


def _described(info: RunInfo) -> dict[str, str]:
    """Return the labels of captures or imports, without those that were not given."""
    about = about_of(info)
    options = ", ".join(f"{name}={value}" for name, value in about.dut_options.items())
    kernel = " ".join(filter(None, (about.kernel, about.kernel_release)))
    rate = None if about.rate_pps is None else f"{count_text(about.rate_pps)} packets/s"
    sizes = (
        None if about.burst in {None, 1} else f"bursts of {about.burst}",
        None if about.size_bytes is None else f"{about.size_bytes} B",
        None if about.flows is None else counted(about.flows, "flow"),
    )
    repeat = None if about.repeat is None else f"repetition {about.repeat}"
    said = {
        "device": " ".join(filter(None, (about.dut, options and f"({options})"))),
        "platform": ", ".join(filter(None, (about.platform, kernel and f"kernel {kernel}"))),
        "boot": about.boot,
        "wire": ", ".join(filter(None, (about.wire, about.cards))),
        "traffic": ", ".join(filter(None, (rate, about.pattern, *sizes, repeat))),
        "machine": about.cpu_model,
        "clock": None if about.clock is None else CLOCKS[clock_of(info)],
        "labels": ", ".join(f"{name}={value}" for name, value in about.labels.items()),
    }
    return {name: text for name, text in said.items() if text}


def _imported(plan: ImportPlan, info: RunInfo) -> dict[str, str]:
    """Return the source of imported figures."""
    width = "as wide as the source has them"
    if plan.bucket_ns is not None:
        width = duration_text(plan.bucket_ns)
    tag = "" if plan.tag is None else f", tag {plan.tag}"
    clock = {} if about_of(info).clock else {"clock": CLOCKS[info.clock.source]}
    return {
        "imported": f"{plan.source}: {foreign_text(info)}{tag}, values in {plan.unit}",
        "buckets": width,
        **clock,
        "floor": IMPORT_FLOOR,
    }


def device_text(plan: PlanFields) -> str:
    """Say what is measured."""
    options = ", ".join(f"{name}={value}" for name, value in plan.dut_options.items())
    return f"{plan.dut} ({options})" if options else plan.dut


def platform_text(plan: PlanFields) -> str:
    """Say what the device runs on, and who else does."""
    kernel = f", kernel {plan.kernel}" if plan.kernel else ""
    side_by_side = ""
    if plan.instances > 1:
        side_by_side = f", {plan.instances} side by side, traffic to {plan.load}"
    busy = [f"{workers} {kind}" for kind, workers in plan.co_runners.items()]
    where = "" if plan.co_runner_platform == "bare" else f" ({plan.co_runner_platform})"
    co_runners = f", beside co-runners: {', '.join(busy)}{where}" if busy else ""
    return f"{plan.platform}{kernel}{side_by_side}{co_runners}"


def traffic_text(plan: PlanFields) -> str:
    """Say what a generator sends."""
    if plan.replay is not None:
        rate = "its own times"
        if plan.pattern != CAPTURED:
            rate = f"{count_text(plan.rate_pps)} packets/s"
        return f"the frames of {plan.replay}, once, at {rate}"
    bursts = ""
    if plan.burst > 1:
        gap = f", {typed_duration(plan.burst_gap_ns)} apart" if plan.burst_gap_ns else ""
        bursts = f" in bursts of {plan.burst}{gap}"
    kind = "" if plan.protocol == "udp" else f" of {plan.protocol.upper()}"
    vlan = "" if plan.vlan is None else f", VLAN {plan.vlan}"
    if plan.encap is not None:
        vlan += f", through {plan.encap}"
    size = f"{plan.size_bytes} B" if plan.size_mix is None else f"sizes {plan.size_mix}"
    flows = f", {count_text(plan.flows)} flows" if plan.flows > 1 else ""
    if plan.queues > 1:
        flows += f" by {plan.queues} queues"
    both = " in each of two directions" if plan.direction == "both" else ""
    return (
        f"{count_text(plan.rate_pps)} packets/s{kind} {plan.pattern}{bursts}{both},"
        f" {size}{vlan}{flows}, {typed_duration(plan.duration_ns)} after"
        f" {typed_duration(plan.warm_up_ns)} of warm-up"
    )


def reading(runs: Sequence[tuple[Mapping[str, Figure], RunInfo]]) -> str:
    """Say in a paragraph what measurements at several rates show, and what that is worth."""
    parts = []
    for summary, info in runs:
        best = _last_supported(summary)
        tail = f" and {best.label} {best.value}" if best else ""
        lost = int(summary["lost"] or 0)
        loss = f", {_count(lost)} of {_count(summary['sent'])} packets lost" if lost else ""
        rate = count_text(info.measured.rate_pps)
        median = _latency(summary, "p50")
        found = f"the median is {median}{tail}" if summary["count"] else "no packet was matched"
        parts.append(f"at {rate} packets/s {found}{loss}")
    tainted = sum(int(summary.get("tainted") or 0) for summary, _ in runs)
    matched = sum(int(summary["count"] or 0) for summary, _ in runs)
    text = "; ".join(parts)
    floor = runs[-1][1].floor
    believed = None if floor is None else floor.believed_up_to
    worth = (
        f"On this machine the instrument can be believed up to {percentile_name(believed)}: what"
        " lies beyond may be the machine's own."
        if believed is not None
        else f"How far to trust the instrument is {unknown_floor(runs[-1][1])}."
    )
    taints = ""
    if matched and all("tainted" in summary for summary, _ in runs):
        share = share_text(tainted / matched)
        taints = f" The instrument's own stalls taint {share} of the samples."
    return f"{text[:1].upper()}{text[1:]}.{taints} {worth}"


def latency_word(summary: Mapping[str, Figure]) -> str:
    """Name latencies: of clocks whose offset is not known, all are above the least."""
    return f"latency {_ABOVE}" if summary.get("latency_relative") else "latency"


def relative_text(summary: Mapping[str, Figure]) -> str:
    """Say so where latencies are above the least; nothing where they are what packets took."""
    known = not summary.get("latency_relative")
    return "" if known else f"All times are {_ABOVE}: the offset of the clocks is not known."


def order_text(summary: Mapping[str, Figure]) -> str:
    """Say so where captures may be in the wrong order; nothing where they are not."""
    if not summary.get("order_doubtful"):
        return ""
    return "The captures may be swapped; if they are, nothing of this holds."


def sentence(summary: Mapping[str, Figure]) -> str:
    """Say in one sentence what was measured, without a verdict."""
    if alike := nothing_told(summary):
        return (
            f"Nothing could be matched: all {count_text(alike)} packets look alike (ambiguous), so"
            " neither a latency nor a loss can be told. Send packets that differ, such as by a"
            " counter in the payload, or match by bytes that do: --match-on."
        )
    if not summary["count"]:
        sent, lost = _count(summary["sent"]), lost_text(summary)
        return f"No packet was matched; {lost} of {sent} sent packets are lost."
    best = _last_supported(summary)
    tail = f", {best.label} {best.value} (95 % interval {best.interval})" if best else ""
    return (
        f"{latency_word(summary).capitalize()} of {_count(summary['count'])} packets: median"
        f" {_latency(summary, 'p50')}{tail}, maximum"
        f" {_latency(summary, 'max')}; {_losses(summary)}."
    )


def nothing_told(summary: Mapping[str, Figure]) -> int:
    """Return the number of packets that look alike if no packet could be matched or was lost."""
    if summary["count"] or summary["sent"]:
        return 0
    return int(summary.get("ambiguous") or 0)


def heading(summary: Mapping[str, Figure], protocols: Sequence[Group] = ()) -> str:
    """Say the median and the tail, where the other figures stand below.

    Packets of several protocols have a median each.
    """
    if not summary["count"]:
        return sentence(summary)
    median_word = f"{_ABOVE.capitalize()}: median" if summary.get("latency_relative") else "Median"
    apart = of_several(protocols)
    if apart:
        medians = ", ".join(f"{group.name} {duration_text(ns)}" for group, ns in apart)
        return f"{median_word}s: {medians}; {_losses(summary)}."
    known = [each for each in median_and_tail(summary) if each != NOTHING]
    few = f"{_count(summary['count'])} latencies, too few for a median"
    median = f"{median_word} {', '.join(known)}"
    return f"{median if known else few}; {_losses(summary)}."


def of_several(protocols: Sequence[Group]) -> list[tuple[Group, int]]:
    """Return the protocols that packets are of, with their medians; none where it is but one.

    One of which hardly a packet is cannot change a median.
    """
    matched = sum(group.matched for group in protocols)
    apart = [
        (group, group.latency_ns_p50)
        for group in protocols
        if group.latency_ns_p50 is not None and group.matched > _FEW * matched
    ]
    return apart if len(apart) > 1 else []


def _losses(summary: Mapping[str, Figure]) -> str:
    if summary["lost"] is None:
        return "losses unknown"
    outside = int(summary.get("outside") or 0)
    text = f"{lost_text(summary)} of {count_text(int(summary['sent'] or 0) - outside)} packets lost"
    beside = {"not judged": outside, "not sent": int(summary.get("unsent") or 0)}
    more = [f"{count_text(number)} {what}" for what, number in beside.items() if number]
    return ", ".join([text, *more])


def median_and_tail(summary: Mapping[str, Figure]) -> tuple[str, str]:
    """Say the median, and the last percentile beyond it that the samples support."""
    best = _last_supported(summary)
    return _quantile_row(summary, "p50").value, f"{best.label} {best.value}" if best else NOTHING


def _last_supported(summary: Mapping[str, Figure]) -> Row | None:
    supported = (name for name in QUANTILES if summary[f"latency_ns_{name}_supported"])
    name = next(reversed([*supported]), "p50")
    return None if name == "p50" else _quantile_row(summary, name)


def _quantile_rows(summary: Mapping[str, Figure]) -> Iterator[Row]:
    return (_quantile_row(summary, name) for name in QUANTILES)


def _quantile_row(summary: Mapping[str, Figure], name: str) -> Row:
    flat, label = f"latency_ns_{name}", QUANTILES[name]
    low = _least(summary, f"{name}_ci_low")
    interval = interval_text(low, summary[f"{flat}_ci_high"])
    if summary[flat] is None:
        return Row(label, NOTHING, NOTHING, NOTHING)
    beyond = _count(summary[f"{flat}_beyond"])
    if summary[f"{flat}_supported"]:
        return Row(label, _latency(summary, name), interval, beyond)
    bound = NOTHING if low is None else f"≥ {_duration(low)}"
    return Row(f"{label} *", bound, f"sample {_latency(summary, name)}", beyond)


def _latency(summary: Mapping[str, Figure], name: str) -> str:
    """A figure of the latency, from the least that it can have been where that is another one."""
    return instrument_text(_least(summary, name), summary[f"latency_ns_{name}"])


def _least(summary: Mapping[str, Figure], name: str) -> Figure:
    """The least that a figure of the latency can have been; it itself where that is not known."""
    least = summary.get(f"least_latency_ns_{name}")
    return summary[f"latency_ns_{name}"] if least is None else least


def instrument_text(least_ns: Figure, latency_ns: Figure) -> str:
    """Write a latency, from the least that it can have been where that differs."""
    if least_ns is None or latency_ns is None:
        return _duration(latency_ns)
    between = between_text(float(least_ns), float(latency_ns))
    return _duration(latency_ns) if between is None else f"{between} (instrument)"


def interval_text(low: Figure, high: Figure) -> str:
    """Return an interval of durations; an end that is not known is left open."""
    if low is None and high is None:
        return NOTHING
    left = "…" if low is None else _duration(low)
    right = "…" if high is None else _duration(high)
    return f"{left} to {right}"


def _count(value: Figure) -> str:
    return NOTHING if value is None else count_text(int(value))


def _duration(value: Figure) -> str:
    return NOTHING if value is None else duration_text(float(value))


def _share(summary: Mapping[str, Figure], name: str) -> str:
    part, whole = summary[name], summary.get(_SHARES.get(name, ""))
    if part is None or not whole:
        return ""
    share = f"{100 * int(part) / int(whole):.4g} %"
    proven = summary.get("lost_proven") if name == "lost" else None
    if proven is None or proven == part:
        return share
    return f"{100 * int(proven) / int(whole):.4g} % to {share}"
