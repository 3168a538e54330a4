"""`tailscope run --to` on a path of known law, against what tcpdump sees, and beside other tools.

Two hosts are network namespaces with a device of known law between them. What tcpdump sees come at
the device and at both hosts is the truth: the round trip without the time in the other host. What
leaves it would see before the driver does. iperf3 tells
no latency of packets, only a smoothed one of TCP. netperf is in no distribution's main archive:
sockperf's ping-pong does what its UDP_RR does.

`python -m bench.hosts [PACKETS_PER_SECOND [SECONDS]]` compares ping, irtt, sockperf and iperf3;
`python -m bench.hosts coverage [RUNS]` counts how often the interval of the median holds that of
all runs. Both as root. The device has the first CPU, and all else the others.
"""

from __future__ import annotations

import json
import math
import os
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

    from between import Found
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

LAW = "bimodal:100us,400us,0.02"
DELAYS = ("20us", "100us", "300us", "1ms")
LAWS_US = (20, 50, 100, 150, 200, 300, 400, 500, 700, 1000)
"""Middles of uniform laws whose packets stay apart at 1000 a second."""
QUANTILES = (0.5, 0.99, 0.999)
_NANOSECONDS = 0xA1B23C4D
LINKS = (("mid", "mid0"), ("far", "host0"), ("mid", "mid1"), ("near", "host0"))
"""Where a query comes, and then its answer."""


def quantile(values: Integers, q: float) -> float:
    """Return the smallest value with at least that share at or below it."""
    return float(np.sort(values)[max(1, math.ceil(q * len(values))) - 1])


def read(capture: Path) -> list[tuple[int, bytes]]:
    """Return time and payload of each packet of IPv4."""
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
        packets.append((seconds * 10**9 + nanoseconds, payload))
    return packets


def truth(name: str, captures: list[Path]) -> tuple[Integers, Integers]:
    """Return when all packets left that captures saw everywhere, and their round trips."""
    left, came, answered, back = (
        {payload[key]: ns for ns, payload in read(file)}
        for file, key in zip(captures, KEYS[name], strict=True)
    )
    seen = sorted(left.keys() & came.keys() & answered.keys() & back.keys(), key=left.__getitem__)
    trips = [came[key] - left[key] + back[key] - answered[key] for key in seen]
    return np.array([left[key] for key in seen], np.int64), np.array(trips, np.int64)


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
    return _sockperf("under-load", "--reply-every=1", between, rate, seconds, folder)


def ping_pong(between: Between, rate: int, seconds: int, folder: Path) -> list[float]:
    return _sockperf("ping-pong", "--burst=1", between, rate, seconds, folder)


def _sockperf(
    mode: str, option: str, between: Between, rate: int, seconds: int, folder: Path
) -> list[float]:
    between.start("far", "sockperf", "server", "-i", FAR, "-p", str(PORT))
    time.sleep(2)
    file = folder / "sockperf.csv"
    words = ("-i", FAR, "-p", str(PORT), "--mps", str(rate), "-t", str(seconds), "--full-rtt")
    between.run("near", "sockperf", mode, *words, option, f"--full-log={file}")
    rows = re.findall(r"^\d+, ([\d.]+), ([\d.]+), [\d.]+$", file.read_text(), re.MULTILINE)
    found = np.array([(float(came) - float(left)) * 1e9 for left, came in rows])
    return [quantile(found, q) for q in QUANTILES]


def iperf3(rate: int, seconds: int) -> str:
    """Return what iperf3 says of TCP: it has no quantiles."""
    size = 200
    with Between([f"--law={LAW}"], realtime=True) as between:
        between.start("far", "iperf3", "-s", "-1", "-p", str(PORT), "-B", FAR)
        time.sleep(1)
        words = ("-c", FAR, "-p", str(PORT), "-t", str(seconds), "-l", str(size), "-J")
        said = json.loads(between.run("near", "iperf3", *words, "-b", str(8 * size * rate)))
    of_tcp = said["end"]["streams"][0]["sender"]
    least, mean, most = (of_tcp[f"{name}_rtt"] for name in ("min", "mean", "max"))
    return f"smoothed round trips of TCP alone: {least} to {most} us, mean {mean} us"


TOOLS: dict[str, Callable[[Between, int, int, Path], list[float]]] = {
    "tailscope run --to": tailscope,
    "ping": ping,
    "irtt": irtt,
    "sockperf": sockperf,
    "sockperf ping-pong": ping_pong,
}
_QUERY, _REPLY = slice(0, 12), slice(24, 36)
"""A query's number and time, and where its answer repeats them."""
KEYS = {
    "tailscope run --to": (_QUERY, _QUERY, _REPLY, _REPLY),
    "ping": (slice(0, 16),) * 4,
    # Token of the connection, and number.
    "irtt": (slice(4, 16),) * 4,
    "sockperf": (slice(0, 8),) * 4,
    "sockperf ping-pong": (slice(0, 8),) * 4,
}
"""Bytes that name a query at each link."""


def measure(name: str, rate: int, seconds: int, law: str = LAW) -> tuple[list[float], list[float]]:
    """Return what a tool says, and the truth."""
    with tempfile.TemporaryDirectory() as text, Between([f"--law={law}"], realtime=True) as between:
        folder = Path(text)
        captures = capture(between, folder, "icmp" if name == "ping" else f"port {PORT}")
        said = TOOLS[name](between, rate, seconds, folder)
        time.sleep(1)
        _, found = truth(name, captures)
    return said, [quantile(found, q) for q in QUANTILES]


def capture(between: Between, folder: Path, select: str) -> list[Path]:
    """Let tcpdump capture what comes at each link until all are gone, and return its files."""
    folder.chmod(0o777)
    files = []
    for side, link in LINKS:
        files.append(folder / f"{link}-{side}.pcap")
        words = ("-i", link, "-Q", "in", "-w", str(files[-1]), "-U", "-B", "65536", "-s", "200")
        tcpdump = between.start(
            side, "tcpdump", *words, "-Z", "root", "--time-stamp-precision=nano", "-n", select
        )
        assert tcpdump.stdout is not None
        tcpdump.stdout.readline()
    return files


def coverage(runs: int) -> None:
    """Print how often intervals hold the median of all runs, and how far medians are off.

    A run is off as far as its median differs from that of the same packets by tcpdump. An interval
    is that of `hosts.json`: of parts of a run, and with the error of stamps.
    """
    each = runs // len(LAWS_US)
    totals = np.zeros(4, int)
    for delay_us in LAWS_US:
        found, left_ns, trips = some_runs(delay_us, each)
        begun = [run.passages.departed_ns.min() for run in found]
        of_run = np.searchsorted(begun, left_ns, side="right") - 1
        of_all = quantile(trips[of_run >= 0], 0.5)
        names = ("latency_ns_p50_ci_low", "latency_ns_p50", "latency_ns_p50_ci_high")
        said = np.array([[run.summary[name] for name in names] for run in found], float)
        medians = [run.record.median for run in found]
        low, high, stamps = np.array(
            [(one.ns_low, one.ns_high, one.stamps_ns or -1) for one in medians if one]
        ).T
        own = np.array([quantile(trips[of_run == number], 0.5) for number in range(each)])
        errors = said[:, 1] - own
        counts = [
            np.count_nonzero((low <= of_all) & (of_all <= high)),
            np.count_nonzero((low <= own) & (own <= high)),
            np.count_nonzero((said[:, 0] <= of_all) & (of_all <= said[:, 2])),
            np.count_nonzero(np.abs(errors) <= np.maximum(1_000, 0.02 * own)),
        ]
        totals += counts
        print(
            f"{delay_us} us each way: median {of_all / 1e3:.1f} us, of single runs"
            f" {own.min() / 1e3:.1f} to {own.max() / 1e3:.1f} us; held by {counts[0]} of {each},"
            f" their own by {counts[1]}, by independent packets {counts[2]}; errors"
            f" {errors.min() / 1e3:+.2f} to {errors.max() / 1e3:+.2f} us, {counts[3]} within"
            f" max(1 us, 2 %); stamps {stamps.min()} to {stamps.max()} ns; intervals"
            f" {np.median(high - low) / 1e3:.2f} us wide, of independent packets"
            f" {np.median(said[:, 2] - said[:, 0]) / 1e3:.2f} us",
            flush=True,
        )
    names = ("held", "their own", "held by independent packets", "within")
    parts = [f"{total} {name}" for total, name in zip(totals, names, strict=True)]
    print(f"of {each * len(LAWS_US)}: {', '.join(parts)}")


def some_runs(delay_us: int, runs: int) -> tuple[list[Found], Integers, Integers]:
    """Return runs on one path, and when all packets left, and their round trips, by tcpdump."""
    law = f"uniform:{0.75 * delay_us:g}us,{1.25 * delay_us:g}us"
    with tempfile.TemporaryDirectory() as text, Between([f"--law={law}"], realtime=True) as between:
        folder = Path(text)
        captures = capture(between, folder, f"port {PORT}")
        between.reflect()
        options = ("--rate=1000", "--duration=1s")
        found = [between.ask(folder / str(number), *options) for number in range(runs)]
        time.sleep(1)
        return found, *truth("tailscope run --to", captures)


def main() -> None:
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cpus[1:] or cpus)
    if sys.argv[1:2] == ["coverage"]:
        print(f"load {Path('/proc/loadavg').read_text().split()[0]}")
        coverage(int((*sys.argv[2:], "200")[0]))
        return
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
    print(f"{'iperf3':<20}{iperf3(rate, seconds)}")


if __name__ == "__main__":
    main()
