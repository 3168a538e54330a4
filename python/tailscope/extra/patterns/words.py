"""Patterns in sentences."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tailscope.extra.patterns.models.distances import FEWEST
from tailscope.units import count_text, counted, duration_text, percentile_name

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tailscope.extra.patterns.models.distances import Distances
    from tailscope.extra.patterns.models.holds import Holds
    from tailscope.extra.patterns.records import (
        NamedPattern,
        PatternsRecord,
        StallDistances,
        UnnamedStalls,
    )

    Figures = Mapping[str, Any]

_BITS = 8
_LONG_NS = 100_000_000


def opening_text(found: PatternsRecord) -> str:
    """Say which packets are slow."""
    if found.quantile is None or found.threshold_ns is None or found.fastest_ns is None:
        return "No packet was matched: there is nothing that packets could say."
    fastest = (
        f"No packet found the device empty, so that all of them may have waited; the fastest took"
        f" {duration_text(found.fastest_ns)}."
        if found.undelayed_ns is None
        else f"Without a delay they take {duration_text(found.undelayed_ns)}."
    )
    part = "" if found.searched == found.packets else f" of {count_text(found.packets)}"
    return (
        f"{count_text(found.slow)} of the {count_text(found.searched)} packets searched{part} are"
        f" slow: from {percentile_name(found.quantile)} on, {duration_text(found.threshold_ns)}."
        f" {fastest}"
    )


def unknown_text() -> str:
    """Say what packets alone do not tell."""
    return (
        "This follows from the packets alone: it says what happened to them, not why. What was"
        " recorded meanwhile may say why: --interrupts, --trace."
    )


def stalls_text(found: Holds | UnnamedStalls, why: str = "nothing recorded says why") -> str:
    """Say how often and for how long packets were held, and that nothing says why."""
    least, usual, most = map(
        duration_text, (found.duration_ns_min, found.duration_ns_p50, found.duration_ns_max)
    )
    lasted = usual if found.stalls == 1 else f"{usual} (median; {least} to {most})"
    apart = found.distances
    recur = (
        f"once in {found.observed_s:.3g} s"
        if apart is None
        else f"{count_text(found.stalls)} times, {_apart_text(found.stalls, apart)}"
    )
    return (
        f"Unexplained stalls: nothing left the device for {lasted}, {recur}, and {why}."
        f" They held {counted(found.packets, 'packet')}, {found.slow_share:.0%} of the"
        " slow ones. Where the device is this machine, `tailscope run --stages on` (as root) tells"
        " where packets waited; below the kernel there are firmware, a hypervisor, and the device's"
        " own pauses."
    )


def _apart_text(stalls: int, apart: Distances | StallDistances) -> str:
    """Say at which period stalls come, or how far apart they are otherwise."""
    low, middle, high, mean = map(
        _seconds_text,
        (
            apart.distance_ns_p25,
            apart.distance_ns_p50,
            apart.distance_ns_p75,
            apart.distance_ns_mean,
        ),
    )
    if stalls < FEWEST:
        return f"{mean} apart on average, too few to tell a period"
    if apart.period_ns is None or apart.off_share is None:
        return (
            f"at no period that can be told: {mean} apart on average, {middle} in the median"
            f" (quartiles: {low} and {high})"
        )
    within = max(math.ceil(apart.off_share * 1_000) / 10, 0.1)
    which = "all" if apart.on_time == stalls - 1 else f"{apart.on_time} of the"
    return (
        f"every {_seconds_text(apart.period_ns)} ({which} {stalls - 1} distances are this or a"
        f" multiple of it, within {within:g}%)"
    )


def _seconds_text(ns: int) -> str:
    """Write a time between stalls in seconds, or a short one to its fourth digit in ms."""
    return f"{ns / 1e9:.3f} s" if ns >= _LONG_NS else f"{ns / 1e6:.4g} ms"


def evidence_text(named: NamedPattern) -> str:
    """Return the evidence of a pattern, and how much it explains."""
    text = _TEXTS[named.pattern](named.figures)
    share = named.slow_share
    if (reason := named.figures.get("not_full_because")) is not None:
        text += f" (no limit is known: {reason})"
    return text if share is None else f"{text}. It explains {share:.0%} of the slow packets."


def _queue(figures: Figures) -> str:
    return (
        f"packets wait in a queue that is drained at {_rate(figures)}: the output has this rate for"
        f" {figures['steady_share']:.0%} of the time in which packets wait{_input(figures)};"
        f" the device is busy for {figures['busy_share']:.0%} of the time"
    )


def _full_queue(figures: Figures) -> str:
    return (
        f"{_queue(figures)}. It is full with {_size('limit', figures)}:"
        f" {figures['lost_at_limit_share']:.1%} of {count_text(figures['lost_packets'])} losses"
        " happened then, while it held less for"
        f" {figures['accepted_below_limit_share']:.0%} of the other packets. Latency is at its top"
        f" then, {duration_text(figures['latency_ns_top'])}"
    )


def _token_bucket(figures: Figures) -> str:
    return (
        f"bursts of {_size('burst', figures)} pass undelayed after idleness, then packets leave at"
        f" {_rate(figures)}: packets began to wait {count_text(figures['bursts'])} times,"
        f" {figures['bursts_alike_share']:.0%} of them behind such a burst, and"
        f" {figures['conforming_share']:.1%} of the output stays within it"
    )


def _policer(figures: Figures) -> str:
    low = {name.removesuffix("_low"): value for name, value in figures.items()}
    least = "" if "burst_bytes" in figures or "burst_packets" in figures else "at least "
    return (
        f"packets beyond {_rate(figures)} after bursts of {least}{_size('burst', low)} are dropped,"
        f" and none is delayed for that: {figures['exceeding_share']:.1%} of"
        f" {count_text(figures['lost_packets'])} lost packets exceed it,"
        f" {figures['conforming_share']:.1%} of the others do not"
    )


def _stall(figures: Figures) -> str:
    text = (
        f"packets are held for up to {duration_text(figures['duration_ns'])} every"
        f" {duration_text(figures['period_ns'])} ({figures['rate_hz']:.4g} Hz):"
        f" {figures['own_share']:.0%} of {count_text(figures['delayed_packets'])} delayed"
        " packets are released by that clock"
    )
    others = [
        f"{rate_hz:.4g} Hz (up to {duration_text(held_ns)}, {share:.0%})"
        for rate_hz, held_ns, share in zip(
            *(figures.get(f"other_{name}", ()) for name in ("rates_hz", "durations_ns", "shares")),
            strict=True,
        )
    ]
    if others:
        text += f", and others by {_listed(others) if len(others) > 1 else others[0]}"
    if figures.get("p_value") is not None:
        text += f"; by chance with a probability of {figures['p_value']:.2g} at most"
    return text


def _batching(figures: Figures) -> str:
    by = {
        "timer": "a timer of {} releases them",
        "count": "they are released once so many are there",
        "either": "a timer of {} or their number releases them, which even arrivals do not tell"
        " apart",
    }[figures["released_by"]]
    period = duration_text(figures["period_ns"]) if figures["period_ns"] else ""
    return (
        f"{figures['grouped_share']:.0%} of the packets leave in groups, though they come one by"
        f" one: usually of {figures['packets_usual']} packets, of {figures['packets_most']} at"
        f" most; {by.format(period)}"
    )


def _ecmp(figures: Figures) -> str:
    return (
        f"the flow chooses one of {figures['levels']} levels of latency:"
        f" {_levels(figures)} (medians) for {_listed(map(str, figures['flows_by_level']))} flows;"
        f" latencies of a flow lie within {duration_text(figures['spread_ns'])} (quartiles)"
    )


def _reordering(figures: Figures) -> str:
    return (
        f"each packet takes one of {figures['levels']} levels of latency, whatever its flow:"
        f" {_levels(figures)} (medians); {figures['overtaking_share']:.1%} overtake others of their"
        f" flow, {figures['slower_share']:.0%} take a slower level"
    )


def _retransmissions(figures: Figures) -> str:
    found = figures["retransmitted_segments"]
    lost = figures["lost_between_captures"]
    return (
        f"{count_text(found)} of {count_text(figures['tcp_segments'])} segments of TCP"
        f" ({figures['retransmitted_share']:.1%}, in"
        f" {count_text(figures['retransmitting_flows'])} connections) repeat bytes that were sent"
        f" {duration_text(figures['repeated_after_ns_p50'])} before (median);"
        f" {count_text(lost)} of these were lost between the captures, the other"
        f" {count_text(found - lost)} elsewhere, or not at all"
    )


_TEXTS: dict[str, Callable[[Figures], str]] = {
    "queue": _queue,
    "full queue": _full_queue,
    "token bucket": _token_bucket,
    "policer": _policer,
    "periodic stall": _stall,
    "batching": _batching,
    "ECMP": _ecmp,
    "reordering": _reordering,
    "retransmissions": _retransmissions,
}


def _input(figures: Figures) -> str:
    times = figures.get("input_times")
    return f", while the input is up to {times:.3g} times as fast or slow" if times else ""


def _levels(figures: Figures) -> str:
    return _listed(map(duration_text, figures["level_ns_p50"]))


def _listed(texts: Any) -> str:
    *first, last = texts
    return f"{', '.join(first)} and {last}"


def _rate(figures: Figures) -> str:
    """Return a rate in bits, packets or both; or the range that it lies in."""
    texts = []
    for unit, shown in (("bytes", _bit_rate), ("packets", _packet_rate)):
        if (rate := figures.get(f"rate_{unit}_per_s")) is not None:
            texts.append(shown(rate))
        elif (low := figures.get(f"rate_{unit}_per_s_low")) is not None:
            high = figures[f"rate_{unit}_per_s_high"]
            texts.append(f"a rate of {shown(low)} to {shown(high)}")
    return " or ".join(texts)


def _bit_rate(bytes_per_s: float) -> str:
    return _scaled(bytes_per_s * _BITS, "bit/s")


def _packet_rate(packets_per_s: float) -> str:
    return f"{count_text(round(packets_per_s))} packets/s"


def _size(name: str, figures: Figures) -> str:
    texts = []
    if (size := figures.get(f"{name}_bytes")) is not None:
        texts.append(_scaled(size, "B"))
    if (size := figures.get(f"{name}_packets")) is not None:
        texts.append(f"{count_text(round(size))} packets")
    return " or ".join(texts)


def _scaled(value: float, unit: str) -> str:
    for factor, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}"
