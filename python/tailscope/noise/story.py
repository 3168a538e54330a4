"""One packet's story: what it waited for, largest first."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from tailscope.exceptions import UsageError
from tailscope.noise.attribution import DUT, INSTRUMENT, SERVICE, explain
from tailscope.noise.intervals import overlaps

if TYPE_CHECKING:
    from tailscope.noise.attribution import Blocked
    from tailscope.noise.explanation import Packets

__all__ = ["Line", "Story", "tell"]


@dataclass(frozen=True)
class Line:
    """One thing that a packet waited for.

    Attributes
    ----------
    part : str
        One of `tailscope.noise.attribution.PARTS`.
    cause : str
        Empty for what has none.
    waited_ns : int
    share : float
        Of the latency, in [0, 1].
    details : tuple of str
        What else is known of that cause while the packet was there.
    """

    part: str
    cause: str
    waited_ns: int
    share: float
    details: tuple[str, ...]


@dataclass(frozen=True)
class Story:
    """A packet, and what it waited for.

    Attributes
    ----------
    seq : int
    rank : int
        1 for the worst of all.
    packets : int
    sent_after_ns : int
        After the first packet.
    latency_ns, service_ns : int
    lines : list of Line
        Largest first; they sum to the latency.
    """

    seq: int
    rank: int
    packets: int
    sent_after_ns: int
    latency_ns: int
    service_ns: int
    lines: list[Line]

    def record(self) -> dict[str, object]:
        """It as JSON has it."""
        return asdict(self)


def tell(packets: Packets, blocked: Blocked, seq: int | None = None) -> Story:
    """Tell the story of a packet.

    Parameters
    ----------
    packets : Packets
    blocked : Blocked
    seq : int, optional
        Position in the pre capture; the worst packet's by default.

    Raises
    ------
    UsageError
        If there is no such packet, or it never came back.
    """
    if not len(packets.seq):
        raise UsageError("no packet came back: there is nothing to explain")
    at = int(np.argmax(packets.latency_ns)) if seq is None else _place(packets, seq)
    service_ns = packets.service_ns()
    latency_ns = int(packets.latency_ns[at])
    found = explain(packets.pre_ns, packets.latency_ns, np.array([at]), blocked, service_ns)
    details = _details(packets, at, blocked)
    lines = [
        _line(share.part, share.cause, share.total_ns, latency_ns, details)
        for share in found.shares
    ]
    lines.append(_line(SERVICE, "", int(found.service_ns[0]), latency_ns, {}))
    lines = sorted((line for line in lines if line.waited_ns), key=lambda line: -line.waited_ns)
    assert sum(line.waited_ns for line in lines) == latency_ns, "parts sum to the latency"
    return Story(
        seq=int(packets.seq[at]),
        rank=1 + int(np.count_nonzero(packets.latency_ns > latency_ns)),
        packets=len(packets.seq),
        sent_after_ns=int(packets.pre_ns[at] - packets.pre_ns[0]),
        latency_ns=latency_ns,
        service_ns=service_ns,
        lines=lines,
    )


def _place(packets: Packets, seq: int) -> int:
    at = int(np.searchsorted(packets.seq, seq))
    if at == len(packets.seq) or packets.seq[at] != seq:
        raise UsageError(
            f"--packet: got {seq}, expected a packet that came back, from {packets.seq[0]} to"
            f" {packets.seq[-1]}"
        )
    return at


def _details(packets: Packets, at: int, blocked: Blocked) -> dict[tuple[str, str], list[str]]:
    """What else is known, by part and cause, of all that blocked a CPU while a packet was there."""
    start = packets.pre_ns[at : at + 1]
    end = start + packets.latency_ns[at]
    met = overlaps(start, end, blocked.start_ns, blocked.end_ns).other
    found: dict[tuple[str, str], list[str]] = {}
    for piece in met.tolist():
        part = DUT if blocked.is_dut[piece] else INSTRUMENT
        texts = found.setdefault((part, blocked.names[blocked.cause[piece]]), [])
        text = blocked.details[blocked.detail[piece]]
        if text and text not in texts:
            texts.append(text)
    return found


def _line(
    part: str,
    cause: str,
    waited_ns: int,
    latency_ns: int,
    details: dict[tuple[str, str], list[str]],
) -> Line:
    share = waited_ns / latency_ns if latency_ns else 0.0
    return Line(part, cause, waited_ns, share, tuple(details.get((part, cause), ())))
