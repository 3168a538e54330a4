"""`tailscope run --to` beside ping, irtt, sockperf and iperf3, on one path and against one truth.

Two hosts are network namespaces with a device of known law between them. What tcpdump sees leave and
come at both hosts is the truth: the round trip without the time in the other host.

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

LAW = ("--law=bimodal:100us,400us,0.02",)
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


def truth(near: Path, far: Path) -> Integers:
    """Return the round trips in the network: on a path that keeps order, packets pair by it."""
    times = {
        (side, is_query): np.array(
            [ns for ns, query, _ in packets if query is is_query], dtype=np.int64
        )
        for side, packets in (("near", read(near)), ("far", read(far)))
        for is_query in (True, False)
    }
    count = min(map(len, times.values()))
    out, came, left, back = (
        times[key][:count]
        for key in (("near", True), ("far", True), ("far", False), ("near", False))
    )
    return (back - out) - (left - came)


def tailscope(between: Between, rate: int, seconds: int, folder: Path) -> list[float]:
    between.reflect()
    found = between.ask(folder / "run", f"--rate={rate}", f"--duration={seconds}s")
    return [found.summary[f"latency_ns_{name}"] for name in ("p50", "p99", "p999")]


def ping(between: Between, rate: int, seconds: int, folder: Path) -> list[float]:
    count = rate * seconds
    said = between.run("near", "ping", "-i", f"{1 / rate:g}", "-c", str(count), FAR)
    found = np.array([float(ms) * 1e6 for ms in re.findall(r"time=([\d.]+) ms", said)])
    return [quantile(found, q) for q in QUANTILES]


def irtt(between: Between, rate: int, seconds: int, folder: Path) -> list[float]:
    between.start("far", "irtt", "server", "-b", f"{FAR}:{PORT}")
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
    rows = re.findall(r"^([\d.]+), ([\d.]+)$", file.read_text(), re.MULTILINE)
    found = np.array([(float(came) - float(left)) * 1e9 for left, came in rows])
    return [quantile(found, q) for q in QUANTILES]


def iperf3(between: Between, rate: int, seconds: int, folder: Path) -> list[float]:
    """Of a stream of TCP it tells the smoothed round trip, and no quantile."""
    between.start("far", "iperf3", "-s", "-p", str(PORT))
    time.sleep(2)
    words = ("-c", FAR, "-p", str(PORT), "-t", str(seconds), "-b", f"{rate * 8000}", "-l", "1000")
    said = json.loads(between.run("near", "iperf3", *words, "-i", "0.1", "--json"))
    streams = [each["streams"][0]["rtt"] * 1e3 for each in said["intervals"]]
    return [quantile(np.array(streams), 0.5), math.nan, math.nan]


TOOLS: dict[str, Callable[[Between, int, int, Path], list[float]]] = {
    "tailscope run --to": tailscope,
    "ping": ping,
    "irtt": irtt,
    "sockperf": sockperf,
    "iperf3 (TCP)": iperf3,
}


def measure(name: str, rate: int, seconds: int) -> tuple[list[float], list[float]]:
    """Return what a tool says, and the truth."""
    with tempfile.TemporaryDirectory() as text, Between(LAW) as between:
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
        found = truth(*captures)
    return said, [quantile(found, q) for q in QUANTILES]


def main() -> None:
    rate, seconds = (int(word) for word in (*sys.argv[1:], "500", "10")[:2])
    print(f"load {Path('/proc/loadavg').read_text().split()[0]}, {rate} packets/s, {seconds} s")
    print(f"{'tool':<20}" + "".join(f"{f'p{100 * q:g}':>28}" for q in QUANTILES))
    for name in TOOLS:
        try:
            said, true = measure(name, rate, seconds)
        except (AssertionError, subprocess.SubprocessError, OSError, ValueError) as error:
            print(f"{name:<20}failed: {str(error)[:200]}")
            continue
        cells = [
            f"{(got - expected) / 1e3:+.1f} of {expected / 1e3:.1f} us"
            if not math.isnan(got)
            else "-"
            for got, expected in zip(said, true, strict=True)
        ]
        print(f"{name:<20}" + "".join(f"{cell:>28}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
