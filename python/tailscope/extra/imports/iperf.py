"""iperf3's JSON: packets lost of UDP, and the kernel's round trips of TCP; it times no packet."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from tailscope.exceptions import CaptureError
from tailscope.extra.imports.foreign import (
    MOST,
    EveryPacket,
    ForeignRun,
    count_of,
    text_of,
    unit_differs,
)
from tailscope.units import count_text, duration_text

if TYPE_CHECKING:
    from pathlib import Path

IPERF3 = re.compile(rb'"version"\s*:\s*"iperf 3')

_NS_PER_US = 1_000
_NS_PER_MS = 1_000_000
_ONLY_LOSS = "no packet has a latency: iperf3 counts those of UDP"
_SMOOTHED = (
    "latencies are round trips as the kernel has smoothed them, one of each connection and"
    " interval: single slow packets do not show in them"
)


class _Stream(msgspec.Struct):
    """A connection in an interval."""

    rtt: int | None = None
    """Smoothed round trip in µs, where the kernel tells it."""
    omitted: bool = False


class _Interval(msgspec.Struct):
    streams: list[_Stream]


class _Sum(msgspec.Struct):
    """All connections of a test; packets only of UDP."""

    packets: int | None = None
    lost_packets: int | None = None
    jitter_ms: float | None = None
    retransmits: int | None = None


class _End(msgspec.Struct):
    sum: _Sum | None = None
    sum_sent: _Sum | None = None
    sum_received: _Sum | None = None


class _Test(msgspec.Struct):
    end: _End
    intervals: list[_Interval] = []
    error: str | None = None


def read_iperf(path: Path, unit: str | None) -> ForeignRun:
    """Read what ``iperf3 --json`` prints, of a client or a server."""
    if unit not in (None, "us"):
        raise unit_differs(path, unit, "us", "iperf3's JSON")
    try:
        test = msgspec.json.decode(text_of(path), type=_Test)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CaptureError(
            f"{path}: expected iperf3's JSON with 'end' and 'intervals': {error}", code="iperf3"
        ) from None
    if test.error is not None:
        raise CaptureError(
            f"{path}: expected a test that ended well, got the error {test.error[:80]!r}",
            code="iperf3",
            hint="repeat it",
        )
    received = test.end.sum_received or test.end.sum
    if received is not None and received.packets is not None:
        return _udp(path, test.end, received)
    return _tcp(path, test)


def _udp(path: Path, end: _End, received: _Sum) -> ForeignRun:
    """Return the packets sent and lost; iperf3 3.12 and older say so in `sum`."""
    whole = end.sum if end.sum is not None and end.sum.packets else received
    sent = count_of(str(whole.packets or 0), f"{path}: packets")
    counted = whole.lost_packets or 0
    lost = count_of(str(max(0, counted)), f"{path}: lost_packets")
    if not sent or lost > sent:
        raise CaptureError(
            f"{path}: lost_packets: expected at most the packets sent, {sent}, and at least one of"
            f" these, got {lost}",
            code="packet-count",
        )
    more = () if counted >= 0 else (f"{-counted} more packets came than were sent",)
    jitter = received.jitter_ms
    said = (
        ()
        if jitter is None or not 0 <= jitter * _NS_PER_MS <= MOST
        else (f"the jitter of RFC 3550 was {duration_text(round(jitter * _NS_PER_MS))} in the end",)
    )
    return ForeignRun(
        kind="iperf3",
        name=path.stem,
        source=str(path),
        unit="us",
        files={"result": path},
        count=0,
        figures={"sent": sent, "lost": lost, "loss_ratio": lost / sent},
        warnings=(_ONLY_LOSS, *said, *more),
    )


def _tcp(path: Path, test: _Test) -> ForeignRun:
    """Return the smoothed round trips of each interval."""
    trips_us = [
        stream.rtt
        for interval in test.intervals
        for stream in interval.streams
        if stream.rtt is not None and not stream.omitted
    ]
    if not trips_us:
        raise CaptureError(
            f"{path}: expected round trips of TCP or packets of UDP, got neither",
            code="no-latencies",
            hint="the side that sends knows round trips: use the client's JSON, or that of the"
            " server of a test with --reverse",
        )
    for trip_us in trips_us:
        if not 0 <= trip_us * _NS_PER_US <= MOST:
            raise CaptureError(
                f"{path}: rtt: expected 0 to {MOST // _NS_PER_US} µs, got {trip_us}",
                code="latency-range",
            )
    latency_ns = np.array(trips_us, np.int64) * _NS_PER_US
    again = None if test.end.sum_sent is None else test.end.sum_sent.retransmits
    return ForeignRun(
        kind="iperf3",
        name=path.stem,
        source=str(path),
        unit="us",
        files={"result": path},
        count=len(latency_ns),
        buckets=EveryPacket.of(latency_ns, latency_ns).buckets(path),
        warnings=(_SMOOTHED, *([] if not again else [f"{count_text(again)} retransmissions"])),
    )
