"""The story of one packet: the causes of its latency, the largest first."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from tailscope.exceptions import UsageError
from tailscope.noise.attribution import (
    DUT,
    INSTRUMENT,
    SERVICE,
    UNEXPLAINED,
    Attribution,
    Tally,
)
from tailscope.noise.queues import Delayed, delayed, stalled_ns, usual_of
from tailscope.noise.stages import stages_of
from tailscope.store.records.explanation import WAY

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tailscope.noise.attribution import Blocked
    from tailscope.noise.queues import Usual
    from tailscope.noise.stages import Stages
    from tailscope.store.packets import Latencies, Packets

    Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Line:
    """One cause that a packet waited for."""

    part: str
    """One of `tailscope.noise.attribution.PARTS`."""
    cause: str
    """Name of the cause; empty if it is unknown."""
    waited_ns: int
    share: float
    """Share of the latency, in [0, 1]."""
    details: tuple[str, ...]
    """Details of that cause while the packet was in the device."""


@dataclass(frozen=True)
class Story:
    """A packet and the causes of its latency."""

    seq: int
    rank: int
    """Rank of the packet; 1 is the worst."""
    packets: int
    sent_after_ns: int
    """Time since the first packet was sent."""
    latency_ns: int
    service_ns: int
    lines: list[Line]
    """Causes, the largest first; they sum to the latency."""
    stalled_ns: int
    """Time of its delay during which the instrument stalled, whatever else there was."""
    stages_ns: dict[str, int] | None = None
    """Time in each stage of the kernel, which sum to the latency; None if they are unknown."""

    def record(self) -> dict[str, object]:
        """Return the story as JSON content."""
        return asdict(self)


def tell(
    packets: Packets,
    latencies: Latencies,
    blocked: Blocked,
    seq: int | None = None,
    stages: Stages | None = None,
) -> Story:
    """Tell the story of a packet."""
    if not latencies.distribution.count:
        raise UsageError(
            "no packet came back: there is nothing to explain",
            code="nothing-matched",
            hint="`tailscope runs show RUN` says how many were lost, and what is known of them",
        )
    usual = usual_of(packets)
    seq = latencies.worst_seq if seq is None else seq
    packet = _found(packets, latencies, seq, usual)
    latency_ns, tally = int(packet.latency_ns[0]), Tally()
    explained = Attribution(blocked).explain(packet, tally)
    details = _details(packet, blocked)
    lines = [
        _line(share.part, share.cause, share.total_ns, latency_ns, details)
        for share in tally.shares()
    ]
    whole_ns = int(explained.service_ns[0])
    service_ns = min(whole_ns, usual.each_ns)
    lines.append(_line(SERVICE, "", service_ns, latency_ns, {}))
    lines.append(_line(SERVICE, WAY, whole_ns - service_ns, latency_ns, {}))
    lines = sorted((line for line in lines if line.waited_ns), key=lambda line: -line.waited_ns)
    assert sum(line.waited_ns for line in lines) == latency_ns, "parts sum to the latency"
    return Story(
        seq=int(packet.seq[0]),
        rank=1 + latencies.distribution.above(latency_ns),
        packets=latencies.distribution.count,
        sent_after_ns=int(packet.pre_ns[0]) - latencies.first_ns,
        latency_ns=latency_ns,
        service_ns=usual.service_ns,
        lines=lines,
        stalled_ns=stalled_ns(packets, usual, lambda numbers, _: numbers == seq),
        stages_ns=None if stages is None else stages_of(stages, packet),
    )


def _found(packets: Packets, latencies: Latencies, seq: int, usual: Usual) -> Delayed:
    def is_it(numbers: Integers, _: Integers) -> NDArray[np.bool_]:
        is_packet: NDArray[np.bool_] = numbers == seq
        return is_packet

    there = Delayed.joined([*delayed(packets, usual, is_it)])
    if not len(there.seq):
        raise UsageError(
            f"--packet: got {seq}, expected a packet that came back, from {latencies.first_seq} to"
            f" {latencies.last_seq}",
            code="packet-unknown",
        )
    return there


def _details(packet: Delayed, blocked: Blocked) -> dict[tuple[str, str], list[str]]:
    """Return by part and cause the details of what blocked a CPU while a packet was there."""
    begin = int(packet.pre_ns[0]) - blocked.error_ns
    end = begin + int(packet.latency_ns[0]) + 2 * blocked.error_ns
    first = np.searchsorted(blocked.end_ns, begin, "right")
    last = np.searchsorted(blocked.start_ns, end, "left")
    met = slice(int(first), int(last))
    kinds = np.stack([blocked.is_dut[met], blocked.cause[met], blocked.detail[met]])
    alike, at = np.unique(kinds, axis=1, return_index=True)
    details: dict[tuple[str, str], list[str]] = {}
    for is_dut, cause, detail in alike[:, np.argsort(at)].T.tolist():
        part = DUT if is_dut else INSTRUMENT
        for key in ((part, blocked.names[cause]), (UNEXPLAINED, blocked.names[cause])):
            texts = details.setdefault(key, [])
            if text := blocked.details[detail]:
                texts.append(text)
    return details


def _line(
    part: str,
    cause: str,
    waited_ns: int,
    latency_ns: int,
    details: dict[tuple[str, str], list[str]],
) -> Line:
    share = waited_ns / latency_ns if latency_ns else 0.0
    return Line(part, cause, waited_ns, share, tuple(details.get((part, cause), ())))
