"""Segments of TCP in the capture before the device: a run directory has no sequence numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tailscope.engine.analysis import read_keys
from tailscope.exceptions import TailscopeError
from tailscope.extra.patterns.models.answer import Refusal
from tailscope.extra.patterns.models.retransmissions import PATTERN, Segments, retransmissions
from tailscope.store.records.plan import AnalysisPlan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tailscope.extra.patterns.models.answer import Answer, Numbers
    from tailscope.store.records.run import RunInfo

    Bytes = NDArray[np.uint8]

_TCP = 6
_MOST = 1 << 20
"""Largest number of segments that are kept."""
_HEADERS = ((0x0800, 22), (0x86DD, 42))
"""Versions of IP by their type, and where TCP begins behind it; headers with options are rare."""
_EVER = 2**63 - 1
_ENOUGH = 14
"""Bytes of a TCP header up to its flags."""


def find_retransmissions(
    info: RunInfo,
    seen_ns: NDArray[np.unsignedinteger],
    lost_ns: NDArray[np.unsignedinteger],
    *,
    is_whole: bool,
) -> Answer:
    """Search the capture before the device for retransmissions of the flows that pass it.

    `seen_ns` are the times of the packets that are searched, lost ones included; of a run that is
    not searched as a whole, segments between them are.
    """
    plan = info.plan
    if not isinstance(plan, AnalysisPlan) or info.clock.source != "capture-file":
        return Refusal(PATTERN, "sequence numbers of TCP are in captures, and there are none")
    if not len(seen_ns):
        return Refusal(PATTERN, "no packet passes the device")
    span_ns = (0, _EVER) if is_whole else (int(seen_ns.min()), int(seen_ns.max()))
    try:
        parts = [*_segments(plan.pre, *span_ns)]
    except (TailscopeError, OSError) as error:
        why = str(error).splitlines()[0]
        return Refusal(PATTERN, f"the capture before the device cannot be read again: {why}")
    if not parts:
        return Refusal(PATTERN, "no segment of TCP has bytes of a stream")
    ts_ns, ends, sequence, size, ident = (np.concatenate(each) for each in zip(*parts, strict=True))
    if len(ts_ns) > _MOST:
        return Refusal(PATTERN, f"got {len(ts_ns)} segments of TCP, expected {_MOST} at most")
    _, flow = np.unique(ends, return_inverse=True)
    flow = flow.reshape(-1)
    passes = np.isin(flow, np.unique(flow[np.isin(ts_ns, seen_ns)]))
    chosen = np.flatnonzero(passes & (size > 0))
    segments = Segments(
        ts_ns[chosen].astype(np.int64),
        flow[chosen].astype(np.int64),
        sequence[chosen],
        size[chosen],
        ident[chosen],
        np.isin(ts_ns[chosen], lost_ns),
    )
    return retransmissions(segments)


def _segments(
    capture: str, first_ns: int, last_ns: int
) -> Iterator[tuple[NDArray[np.generic], ...]]:
    """Yield times, ends of the connection, sequence numbers, bytes and identifications."""
    kept = 0
    for packets in read_keys(capture, "l3"):
        within = packets.keyed & (packets.ts_ns >= first_ns) & (packets.ts_ns <= last_ns)
        end = packets.key_ends.astype(np.int64)
        begin = np.concatenate([[0], end[:-1]]).astype(np.int64)
        for kind, at in _HEADERS:
            rows = np.flatnonzero(within & (end - begin >= at + _ENOUGH))
            if len(rows):
                head = packets.key_bytes[begin[rows, None] + np.arange(at + _ENOUGH)]
                tcp = _is_tcp(head, kind)
                if tcp.any():
                    found = (packets.ts_ns[rows[tcp]], *_fields(head[tcp], kind, at))
                    kept += len(found[0])
                    yield found
        if kept > _MOST:
            return


def _is_tcp(head: Bytes, kind: int) -> NDArray[np.bool_]:
    is_version = _number(head, 0, 2) == kind
    if kind == _HEADERS[0][0]:
        whole = (_number(head, 8, 2) & 0x1FFF) == 0
        return np.asarray(is_version & (head[:, 2] == 0x45) & (head[:, 11] == _TCP) & whole)
    return np.asarray(is_version & (head[:, 8] == _TCP))


def _fields(head: Bytes, kind: int, at: int) -> tuple[NDArray[np.generic], ...]:
    is_v4 = kind == _HEADERS[0][0]
    headers = (head[:, at + 12] >> 4).astype(np.int64) * 4
    whole = _number(head, 4, 2) - 20 if is_v4 else _number(head, 6, 2)
    ident = _number(head, 6, 2) if is_v4 else np.zeros(len(head), np.int64)
    # Addresses and ports, with zeros behind those of IPv4.
    ends = np.zeros((len(head), 36), np.uint8)
    addresses = head[:, 14:22] if is_v4 else head[:, 10:42]
    ends[:, : addresses.shape[1]] = addresses
    ends[:, 32:] = head[:, at : at + 4]
    names = np.ascontiguousarray(ends).view(np.dtype((np.void, 36))).reshape(-1)
    return names, _number(head, at + 4, 4), whole - headers, ident


def _number(head: Bytes, at: int, size: int) -> Numbers:
    found = np.zeros(len(head), np.int64)
    for place in range(at, at + size):
        found = found << 8 | head[:, place]
    return found
