"""The findings of recordings beside captures, in words for terminal and page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailscope.units import count_text, counted, duration_text, percentile_name, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tailscope.store.records.explanation import (
        Alignment,
        Associated,
        AssociatedCounter,
        ExplainingTrace,
        Explanation,
        PolledFile,
        RegularCounter,
    )

COUNTER_HEADER = (
    "counter",
    "CPU",
    "of",
    "in slow windows",
    "in the others",
    "ratio",
    "95 % interval",
    "p",
    "p adjusted",
)
_OTHERS_SHOWN = 5
_NOTHING = "-"
_CLOCKS = {
    "unix": "both clocks have Unix time and are assumed to agree to within {error}",
    "given": "{offset} was added to its times, as given by --offset; stated error: {error}",
    "recorded": "{offset} was added to its times, as the recording itself says; error: {error}",
    "unknown": "nothing ties its clock to that of the captures: all offsets were tried at which it"
    " covers them, and the test accounts for that",
}


def trace_lines(explanation: Explanation) -> list[str]:
    """Describe the traces behind the causes: their clocks, and what they lack."""
    return [printable(text) for trace in explanation.traces for text in _trace(trace)]


def association_lines(associated: Associated) -> list[str]:
    """Describe the association of counters, without the table of `counter_rows`."""
    lines = [
        f"{counted(associated.packets, 'packet')}"
        f" {'is' if associated.packets == 1 else 'are'} slow: beyond"
        f" {percentile_name(associated.quantile)}, {duration_text(associated.threshold_ns)}."
    ]
    lines += [_file(polled) for polled in associated.files]
    lines += [_sum(row) for row in associated.sums]
    lines.append(_verdict(associated))
    if any(row.is_associated for row in (*associated.counters, *associated.sums)):
        lines.append(
            "Polled counters cannot say which packet an interrupt met: this is an association, not"
            f" a cause. Test: {associated.test}; {associated.tested} counters,"
            f" level {associated.level:.0%}."
        )
    return [printable(line) for line in lines]


def counter_rows(associated: Associated) -> list[tuple[str, ...]]:
    """Return the rates of all associated counters, and of the next five."""
    named = [row for row in associated.counters if row.is_associated]
    others = [row for row in associated.counters if not row.is_associated]
    return [_counter(row) for row in (*named, *others[:_OTHERS_SHOWN])]


def regular_lines(associated: Associated) -> list[str]:
    """List the regular counters, which polling cannot associate."""
    if not associated.regular:
        return []
    listed: dict[tuple[str, str, int], list[RegularCounter]] = {}
    for row in associated.regular:
        listed.setdefault((row.source, row.counter, round(row.rate_hz)), []).append(row)
    lines = [
        f"{counter} on CPU {', '.join(str(row.cpu) for row in rows)} of {source}: {rate_hz}/s"
        for (source, counter, rate_hz), rows in listed.items()
    ]
    return [
        "Not tested, because they counted as much in every window, with slow packets or without:",
        *(printable(f"  {line}") for line in lines),
        "Polling cannot associate them. `model aliasing RUN --interrupts FILE` looks for"
        " such clocks in the packets themselves.",
    ]


def _trace(trace: ExplainingTrace) -> Iterator[str]:
    cpus = ", ".join(map(str, trace.cpus))
    own = ", ".join(trace.own_work) or "nothing"
    yield (
        f"{trace.name} ({trace.file}, read by {trace.reader}): {count_text(trace.events)} events of"
        f" CPU {cpus}; the device's own work: {own}."
    )
    yield f"Its clock: {_clock(trace.alignment)}."
    if trace.alignment.error_ns:
        yield (
            "Each event counts without its first and last"
            f" {duration_text(trace.alignment.error_ns)}: what is left holds wherever the clock is."
        )
    if trace.lost_events:
        yield f"The tracer lost {counted(trace.lost_events, 'event')}: some causes are missing."
    if trace.uncovered_packets:
        yield f"Outside of the trace: {counted(trace.uncovered_packets, 'packet')} of the tail."


def _clock(alignment: Alignment) -> str:
    error = duration_text(alignment.error_ns or 0)
    return _CLOCKS[alignment.basis].format(offset=_seconds(alignment.offset_ns or 0), error=error)


def _seconds(ns: int) -> str:
    return f"{ns / 1e9:.6f}".rstrip("0").rstrip(".") + " s"


def _file(polled: PolledFile) -> str:
    text = (
        f"{polled.name} ({polled.file}): {polled.slow_windows} of {polled.windows} polling windows"
        f" of {_seconds(polled.period_ns)} hold slow packets, in {polled.episodes} episodes."
        f" Its clock: {_clock(polled.alignment)}."
    )
    if polled.outside_packets:
        text += f" {count_text(polled.outside_packets)} slow packets lie in no whole window."
    if polled.incomplete_counters:
        text += (
            f" {count_text(polled.incomplete_counters)} counters are left out: they are not in"
            " every reading."
        )
    if polled.not_tested_because:
        text += f" Not enough evidence: {polled.not_tested_because}."
    return text


def _sum(row: AssociatedCounter) -> str:
    """Say what came of the sum of a CPU's counters, and which of them moved."""
    verdict = "associated" if row.is_associated else "not associated"
    return (
        f"All interrupts of CPU {row.cpu} of {row.source} together: {row.slow_rate_hz:.3g}/s in"
        f" slow windows, {row.rest_rate_hz:.3g}/s in the others, {verdict} with slow packets"
        f" (p {row.p_value:.2g}, {row.p_adjusted:.2g} for the CPUs named)."
    )


def _verdict(associated: Associated) -> str:
    named = [row for row in associated.counters if row.is_associated]
    if named:
        return f"Associated with slow packets: {'; '.join(map(_where, named))}."
    if not associated.counters and associated.sums:
        return "Not enough evidence to associate the interrupts of these CPUs with slow packets."
    if not associated.counters:
        return "Not enough evidence: no counter could be tested."
    best = associated.counters[0]
    likely = (
        f"the smallest p value is {best.p_value:.2g}, {best.p_adjusted:.2g} for {associated.tested}"
        f" counters ({_where(best)})"
    )
    if best.best_offset_ns is None:
        return f"Not enough evidence to associate any counter with slow packets: {likely}."
    return (
        "Not enough evidence to associate any counter with slow packets, given how little is known"
        " of the offset:"
        f" {likely}, at {_seconds(best.best_offset_ns)}. If you know better what to"
        " add to the file's times, pass --offset and --offset-error."
    )


def _where(row: AssociatedCounter) -> str:
    return f"{row.counter} on CPU {row.cpu} of {row.source}"


def _counter(row: AssociatedCounter) -> tuple[str, ...]:
    return (
        printable(row.counter),
        str(row.cpu),
        printable(row.source),
        f"{row.slow_rate_hz:.3g}/s",
        f"{row.rest_rate_hz:.3g}/s",
        _NOTHING if row.ratio is None else f"{row.ratio:.3g}",
        _interval(row.ratio_ci_low, row.ratio_ci_high),
        f"{row.p_value:.2g}",
        f"{row.p_adjusted:.2g}",
    )


def _interval(low: float | None, high: float | None) -> str:
    if low is None:
        return _NOTHING
    return f"at least {low:.3g}" if high is None else f"{low:.3g} to {high:.3g}"
