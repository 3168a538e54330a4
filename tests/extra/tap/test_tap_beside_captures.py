"""A tap beside tcpdump on the same interfaces: both hear the same packets, and tell the same."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest
from foreign.network import routed_network
from runs import AS_ROOT, needed
from taps import Tap, memory_kib

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from foreign.network import Network

pytestmark = [AS_ROOT, pytest.mark.usefixtures("dataplane")]

LASTS_S = int(os.environ.get("TAP_SECONDS", "60"))
"""An hour is `TAP_SECONDS=3600 pytest -m long tests/extra/tap`."""
FILTER = "udp or icmp"
"""TCP of this machine is left out: the kernel leaves the time at which it was to be sent in its
packets, so that each listener on a veth has to take its own time of them."""
SAME = (
    *("match_on", "count", "latency_ns_min", "latency_ns_p50", "latency_ns_p99"),
    *("latency_ns_p999", "latency_ns_max", "duplicated", "reordered"),
)
QUEUE = "qdisc add dev tap-out root tbf rate 20mbit burst 16kb latency 20ms"


@pytest.fixture
def router() -> Iterator[Network]:
    """A client, a router and a server."""
    needed("ip", "ethtool", "tcpdump", "tc", "ping")
    with routed_network() as found:
        yield found


def capture(net: Network, folder: Path) -> list[subprocess.Popen[str]]:
    """Capture what comes in by one port, and leaves by the other."""
    precise = ("--time-stamp-precision=nano", "--immediate-mode", "-U", "-B", 65_536, "-Z", "root")
    ends = (("tap-in", "in", "in.pcap"), ("tap-out", "out", "out.pcap"))
    return [
        net.start(
            *("router", "tcpdump", "-i", link, "-Q", way, "-s", 128, "-w", folder / name),
            *(*precise, *FILTER.split()),
            ready="listening on",
        )
        for link, way, name in ends
    ]


def end_captures(processes: list[subprocess.Popen[str]]) -> None:
    """End captures, of which the kernel has dropped nothing."""
    time.sleep(0.3)
    for process in processes:
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=10)[0]
        assert "\n0 packets dropped by kernel" in f"\n{said}", said


@pytest.mark.long
def test_a_tap_tells_what_captures_of_the_same_packets_do(
    router: Network, tmp_path: Path, figures: Callable[..., dict[str, Any]]
) -> None:
    """A queue that delays and drops, with iperf3 and ping through it."""
    needed("iperf3")
    router.run("router", "tc", *QUEUE.split())
    tap = Tap(router, tmp_path, "--slo", "loss<1e-6", "--filter", FILTER)
    tap.wait_heard()
    captures = capture(router, tmp_path)
    # What is read only in the end must not fill its pipe: no report each second.
    server = ("iperf3", "-s", "-1", "-i", "0", "--forceflush")
    router.start("server", *server, ready="Server listening")
    memory, began_s = {}, time.monotonic()
    client = ["ip", "netns", "exec", router.names["client"]]
    iperf3 = ["iperf3", "-c", "10.2.0.2", "-u", "-b", "21M", "-l", "400", "-t", str(LASTS_S)]
    ping, sender = (
        subprocess.Popen([*client, *words], stdout=subprocess.DEVNULL)
        for words in (["ping", "-i", "0.01", "10.2.0.2"], iperf3)
    )
    while sender.poll() is None:
        time.sleep(1)
        [pid] = tap.listeners()
        memory[round(time.monotonic() - began_s)] = memory_kib(pid)
    ping.send_signal(signal.SIGINT)
    ping.wait(10)
    end_captures(captures)
    time.sleep(0.5)
    status, told = tap.end()
    assert status == 2, tap.said()
    pair = tmp_path / "in.pcap", tmp_path / "out.pcap"
    expected = figures(*pair, "--window", "1s", "--out", tmp_path / "captured")
    found = told[-1]["summary"]
    print({name: (found[name], expected[name]) for name in (*SAME, "lost", "outside")})
    print(told[-1]["tap"]["pre"], told[-1]["tap"]["post"], memory)
    assert {name: found[name] for name in SAME} == {name: expected[name] for name in SAME}
    histograms = [path / "histogram.csv" for path in (tap.out, tmp_path / "captured")]
    assert histograms[0].read_text() == histograms[1].read_text()
    assert found["lost"] > 0
    assert found["lost"] + found["outside"] == expected["lost"] + expected["outside"]
    assert sum(second["lost"] for second in told[:-1]) == found["lost"] + found["late"]
    [later] = [size for s, size in memory.items() if s == max(memory)]
    early = memory[min(s for s in memory if s >= min(10, LASTS_S // 2))]
    assert later < 1.2 * early
