"""A closed and an open loop of requests, and the host that answers: a process each.

``closed`` sends when the answer came, as wrk does, and counts from then. ``open`` sends by the
clock and counts from the time at which a request was due, as wrk2 does: whoever waits for answers
asks less often while they are slow, and misses that they are (coordinated omission).
"""

from __future__ import annotations

import argparse
import select
import socket
import struct
import time
from pathlib import Path

import numpy as np

PORT = 11_113
_NUMBER = struct.Struct("<Q")
_BYTES = 64
_PATIENCE_NS = 1_000_000_000
"""Time after which an answer counts as lost."""


def echo(address: str) -> None:
    """Answer every request, until the process is ended."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ours:
        ours.bind((address, PORT))
        while True:
            data, sender = ours.recvfrom(2048)
            ours.sendto(data, sender)


def ask(address: str, rate_pps: int, duration_ns: int, *, closed: bool) -> np.ndarray:
    """Return the times at which requests were due, and their latencies; infinite if lost."""
    count = int(duration_ns * rate_pps / 1e9)
    due_ns, latency_ns = np.zeros(count), np.full(count, np.inf)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ours:
        ours.connect((address, PORT))
        began_ns = time.monotonic_ns()
        space_ns, at, answered = 1e9 / rate_pps, 0, 0
        while True:
            now_ns = time.monotonic_ns() - began_ns
            if now_ns > duration_ns + (_PATIENCE_NS if answered < at else 0):
                break
            next_ns = at * space_ns
            waits = closed and answered < at and now_ns - due_ns[at - 1] < _PATIENCE_NS
            if at < count and now_ns >= next_ns and not waits:
                due_ns[at] = now_ns if closed else next_ns
                ours.send(_NUMBER.pack(at).ljust(_BYTES, b"\0"))
                at += 1
                continue
            pause_s = _pause_ns(now_ns, next_ns, waits=waits or at == count) / 1e9
            if not select.select([ours], [], [], pause_s)[0]:
                answered = at if closed and not waits else answered
                continue
            (number,) = _NUMBER.unpack_from(ours.recv(2048))
            latency_ns[number] = time.monotonic_ns() - began_ns - due_ns[number]
            answered = number + 1 if closed else answered + 1
            if at == count and answered == count:
                break
    return np.stack([due_ns[:at], latency_ns[:at]])


def _pause_ns(now_ns: float, next_ns: float, *, waits: bool) -> float:
    return 10_000_000 if waits else min(10_000_000, max(0.0, next_ns - now_ns))


def main() -> None:
    """Run one of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("echo", "closed", "open"))
    parser.add_argument("address")
    parser.add_argument("--rate", type=int)
    parser.add_argument("--duration-ns", type=int)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.what == "echo":
        echo(given.address)
    else:
        closed = given.what == "closed"
        np.save(given.out, ask(given.address, given.rate, given.duration_ns, closed=closed))


if __name__ == "__main__":
    main()
