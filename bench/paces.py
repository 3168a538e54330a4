"""Twenty starts of our generator and `l2fwd` over memif, and what a packet costs each loop.

    python -m bench.paces

A virtual machine's host moves its CPUs between cores, and memory that two programs share is three
times slower where theirs share no cache. So each start is shown with the time that a cache line
takes from one CPU to the other and back, before and after it.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from bench.dataplane import Forwarder, Testpmd, dut, overloaded, testpmd
from tailscope.store.records.messages import LoopProgress
from tailscope.testbed.cores import Cores, pick_cores, read_topology
from tailscope.testbed.folder import RunFolder

STARTS = 20
MOST_S = 130
SECONDS = 0.5
ROUNDS = 3
_ALIKE = 0.1
_NEAR = 2.5
"""Round trips this much longer than the shortest are still those of the same cache."""
_NULL = ("--no-huge", "-m", "256", "--no-pci", "--vdev=net_null0", "--vdev=net_null1")
COST_S = 3
_PORTS = 2
_RECEIVED = re.compile(r"RX-packets:\s+(\d+)\s")


class Start(NamedTuple):
    """The rate of a start, and how far its CPUs were from each other."""

    before_ns: int
    after_ns: int
    mpps: float

    def is_within(self, most_ns: float) -> bool:
        return max(self.before_ns, self.after_ns) <= most_ns

    def is_beyond(self, least_ns: float) -> bool:
        return min(self.before_ns, self.after_ns) > least_ns


def round_trip_ns(cores: Cores) -> int:
    """The time that a cache line takes from the generator's CPU to the device's and back."""
    profile = os.environ.get("PROFILE", "release")
    example = Path(__file__).parents[1] / "target" / profile / "examples/round_trip"
    if not example.exists():
        build = f"cargo build -q --profile {profile} -p tailscope-dpdk --example round_trip"
        subprocess.run(build.split(), check=True)
    cpus = map(str, cores.pollers[:2])
    return int(subprocess.run([example, *cpus], check=True, capture_output=True).stdout)


def starts(cores: Cores) -> list[Start]:
    """Starts until there are enough of the pace at which both share a cache, or time is over."""
    found: list[Start] = []
    end = time.monotonic() + MOST_S
    while time.monotonic() < end and len(near(found)) < STARTS:
        before_ns = round_trip_ns(cores)
        rate = overloaded(cores, None, seconds=SECONDS)
        found.append(Start(before_ns, round_trip_ns(cores), rate / 1e6))
    return found


def near(found: list[Start]) -> list[Start]:
    """The starts whose CPUs shared a cache before and after."""
    return [start for start in found if start.is_within(_most_ns(found))]


def far(found: list[Start]) -> list[Start]:
    """The starts whose CPUs shared none, neither before nor after."""
    return [start for start in found if start.is_beyond(_most_ns(found))]


def _most_ns(found: list[Start]) -> float:
    return _NEAR * min((min(start.before_ns, start.after_ns) for start in found), default=0)


def own_cost_ns(cores: Cores) -> float:
    """Time that our forwarder's loop spends on a packet where the wire costs least."""
    with RunFolder() as folder, dut(folder, _NULL, cores) as device:
        (first, began_ns), *_, (last, ended_ns) = (_progress(device) for _ in range(COST_S + 1))
    return (ended_ns - began_ns) / (last - first)


def _progress(device: Forwarder) -> tuple[int, int]:
    """The packets that a forwarder has sent so far, and the CPU time of its loop."""
    event = device.process.next_event(None)
    assert isinstance(event, LoopProgress), event
    return event.tx_packets, _polling_ns(device.pid)


def testpmd_cost_ns(cores: Cores) -> float:
    """The same of testpmd that forwards."""
    with (
        RunFolder() as folder,
        testpmd(folder, "io", _NULL, cores, cores.pollers[1]) as device,
    ):
        (first, began_ns), *_, (last, ended_ns) = (_printed(device) for _ in range(COST_S + 1))
    return (ended_ns - began_ns) / (last - first)


def _printed(device: Testpmd) -> tuple[int, int]:
    """The packets that both ports of testpmd have received when it next says so, as above."""
    before = after = len(_RECEIVED.findall(device.output.read_text()))
    while after < before + _PORTS:
        time.sleep(0.005)
        after = len(_RECEIVED.findall(device.output.read_text()))
    received = _RECEIVED.findall(device.output.read_text())[-_PORTS:]
    return sum(map(int, received)), _polling_ns(device.pid)


def _polling_ns(pid: int) -> int:
    """Time of a CPU that the thread of a process has had that had most of it."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return max(int(thread.read_text().split()[0]) for thread in threads)


def main() -> None:
    cores = pick_cores(read_topology(), ["generator", "dut"])
    found = starts(cores)
    print("round trip before, after [ns]  l2fwd [Mpps]")
    for start in found:
        print(f"{start.before_ns:>22} {start.after_ns:>6} {start.mpps:>13.2f}")
    for what, kind in (("one cache", near(found)), ("two caches", far(found))):
        rates = sorted(start.mpps for start in kind)
        if rates:
            median = statistics.median(rates)
            within = sum(abs(rate / median - 1) <= _ALIKE for rate in rates)
            print(
                f"{what}: {len(rates)} starts, median {median:.2f} Mpps, {rates[0]:.2f} to"
                f" {rates[-1]:.2f}, {within} within 10 % of the median"
            )
    for name, cost_ns in (("l2fwd", own_cost_ns), ("testpmd io", testpmd_cost_ns)):
        costs = [cost_ns(cores) for _ in range(ROUNDS)]
        shown = ", ".join(f"{cost:.2f}" for cost in costs)
        print(f"{name} on net_null: {min(costs):.2f} ns of its CPU a packet ({shown})")


if __name__ == "__main__":
    main()
