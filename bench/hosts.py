"""`tailscope run --to` beside ping, irtt and sockperf, on one path and against one truth.

Two hosts are network namespaces with a device of known law between them. What tcpdump sees leave
and come at both hosts is the truth: the round trip without the time in the other host. iperf3 tells
no latency of packets, only a smoothed one of TCP.

`python -m bench.hosts [PACKETS_PER_SECOND [SECONDS]]`, as root.
"""

from __future__ import annotations

import json
import math
import re
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "extra" / "hosts"))

from between import FAR, PORT, Between

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

LAW = "bimodal:100us,400us,0.02"
DELAYS = ("20us", "100us", "300us", "1ms")
QUANTILES = (0.5, 0.99, 0.999)
_NANOSECONDS = 0xA1B23C4D


def quantile(values: Integers, q: float) -> float:
    """Return the smallest value with at least that share at or below it."""
    return float(np.sort(values)[max(1, math.ceil(q * len(values))) - 1])


def read(capture: Path) -> list[tuple[int, bool, bytes]]:
    """Return time, whether it comes from the near host, and payload of each packet of IPv4."""
    content = capture.read_bytes()
    assert struct.unpack_from("<I", content)[0] == _NANOSECONDS
    packets, at = [], 24
    while at + 16 <= len(content):
        seconds, nanoseconds, length, _ = struct.unpack_from("<IIII", content, at)
        frame = content[at + 16 : at + 16 + length]
        at += 16 + length
        packet = frame[14:]
        header = (packet[0] & 0xF) * 4
        # ICMP has its number in its header, which UDP does not.
        skipped = 4 if packet[9] == 1 else 8
        payload = packet[header + skipped :]
        is_query = packet[12:16] == bytes((10, 99, 0, 1))
        packets.append((seconds * 10**9 + nanoseconds, is_query, payload))
    return packets


def truth(name: str, near: Path, far: Path) -> Integers:
    """Return the round trips in the network of all packets that both captures saw at all points."""
    query_key, reply_key = KEYS[name]
    out, back = _times(read(near), query_key, reply_key)
    came, left = _times(read(far), query_key, reply_key)
    seen = out.keys() & back.keys() & came.keys() & left.keys()
    trips = [back[key] - out[key] - (left[key] - came[key]) for key in seen]
    return np.array(trips, dtype=np.int64)


def _times(
    packets: list[tuple[int, bool, bytes]], query_key: slice, reply_key: slice
) -> tuple[dict[bytes, int], dict[bytes, int]]:
    """Return the times of queries and of replies, by what names a query in both."""
    queries = {payload[query_key]: ns for ns, is_query, payload in packets if is_query}
    replies = {payload[reply_key]: ns for ns, is_query, payload in packets if not is_query}
    return queries, replies


def tailscope(between: Between, rate: int, seconds: int, folder: Path) -> list[float]:
    between.reflect()
    found = between.ask(folder / "run", f"--rate={rate}", f"--duration={seconds}s")
    return [found.summary[f"latency_ns_{name}"] for name in ("p50", "p99", "p999")]


def ping(between: Between, rate: int, seconds: int, _folder: Path) -> list[float]:
    count = rate * seconds
    said = between.run("near", "ping", "-i", f"{1 / rate:g}", "-c", str(count), FAR)
    found = np.array([float(ms) * 1e6 for ms in re.findall(r"time=([\d.]+) ms", said)])
    return [quantile(found, q) for q in QUANTILES]


def irtt(between: Between, rate: int, seconds: int, folder: Path) -> list[float]:
    between.start("far", "irtt", "server", "-i", "1ms", "-b", f"{FAR}:{PORT}")
    time.sleep(2)
    file = folder / "irtt.json"
    every = f"{1e6 / rate:g}us"
    words = ("-i", every, "-d", f"{seconds}s", "-q", "-o", str(file), f"{FAR}:{PORT}")
    between.run("near", "irtt", "client", *words)
    trips = json.loads(file.read_text())["round_trips"]
    found = np.array([trip["delay"]["rtt"] for trip in trips if "rtt" in trip["delay"]])
    return [quantile(found, q) for q in QUANTILES]


def sockperf(between: Between, rate: int, seconds: int, folder: Path) -> list[float]:
    between.start("far", "sockperf", "server", "-i", FAR, "-p", str(PORT))
    time.sleep(2)
    file = folder / "sockperf.csv"
    words = ("-i", FAR, "-p", str(PORT), "--mps", str(rate), "-t", str(seconds), "--full-rtt")
    between.run("near", "sockperf", "under-load", *words, "--reply-every=1", f"--full-log={file}")
    rows = re.findall(r"^\d+, ([\d.]+), ([\d.]+), [\d.]+$", file.read_text(), re.MULTILINE)
    found = np.array([(float(came) - float(left)) * 1e9 for left, came in rows])
    return [quantile(found, q) for q in QUANTILES]


TOOLS: dict[str, Callable[[Between, int, int, Path], list[float]]] = {
    "tailscope run --to": tailscope,
    "ping": ping,
    "irtt": irtt,
    "sockperf": sockperf,
}
KEYS = {
    # A query's number and time, which its answer repeats.
    "tailscope run --to": (slice(0, 12), slice(24, 36)),
    "ping": (slice(0, 16), slice(0, 16)),
    # Token of the connection, and number.
    "irtt": (slice(4, 16), slice(4, 16)),
    "sockperf": (slice(0, 8), slice(0, 8)),
}
"""Bytes that name a query in it, and in its reply."""


def measure(name: str, rate: int, seconds: int, law: str = LAW) -> tuple[list[float], list[float]]:
    """Return what a tool says, and the truth."""
    with tempfile.TemporaryDirectory() as text, Between([f"--law={law}"], realtime=True) as between:
        folder, captures = Path(text), []
        Path(text).chmod(0o777)
        for side in ("near", "far"):
            file = folder / f"{side}.pcap"
            captures.append(file)
            select = "icmp" if name == "ping" else f"port {PORT}"
            words = ("-i", "host0", "-w", str(file), "-U", "-B", "65536", "-s", "200", "-Z", "root")
            tcpdump = between.start(
                side, "tcpdump", *words, "--time-stamp-precision=nano", "-n", select
            )
            assert tcpdump.stdout is not None
            tcpdump.stdout.readline()
        said = TOOLS[name](between, rate, seconds, folder)
        time.sleep(1)
        found = truth(name, *captures)
    return said, [quantile(found, q) for q in QUANTILES]


def main() -> None:
    rate, seconds = (int(word) for word in (*sys.argv[1:], "500", "10")[:2])
    print(f"load {Path('/proc/loadavg').read_text().split()[0]}, {rate} packets/s, {seconds} s")
    for delay in DELAYS:
        said, true = measure("tailscope run --to", rate, seconds, f"fixed:{delay}")
        error = (said[0] - true[0]) / 1e3
        print(f"{delay} each way: p50 {said[0] / 1e3:.1f} us, {error:+.2f} us", flush=True)
    print(f"{'tool':<20}" + "".join(f"{f'p{100 * q:g}':>28}" for q in QUANTILES))
    for name in TOOLS:
        try:
            said, true = measure(name, rate, seconds)
        except (AssertionError, subprocess.SubprocessError, OSError, ValueError) as error:
            print(f"{name:<20}failed: {str(error)[:200]}")
            continue
        cells = [
            f"{(got - expected) / 1e3:+.1f} of {expected / 1e3:.1f} us"
            for got, expected in zip(said, true, strict=True)
        ]
        print(f"{name:<20}" + "".join(f"{cell:>28}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
