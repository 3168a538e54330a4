"""How many packets a second a tap hears before it misses the first: two interfaces and two CPUs.

`python bench/tap.py 200k 400k 800k` as root: one CPU sends as fast as it can up to each rate, and
the other one has `tailscope tap`, which hears both interfaces of a router. What comes in is sent on
by a rule of the kernel (`tc mirred`), which costs less than routing. Both programs have priority
over everything else: on a machine with other work, the tap would wait for its CPU. A line for each
rate says what was sent, what came, what the tap missed, and how much of a CPU it took.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/extra/tap"))

from foreign.network import Network, routed_network
from taps import SERVER, Tap

from tailscope.units import rate_pps

DURATION_S = 3
AROUND_S = 0.5
"""How long it listens before the traffic and behind it."""
SENDER_CPU, TAP_CPU = 0, 1
SENDER_PRIORITY, TAP_PRIORITY = 5, 4
FLOOD = """
import socket, struct, sys, time
server, rate_pps, lasts_s, at_once = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), 60
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.setsockopt(socket.IPPROTO_UDP, 103, 64)  # UDP_SEGMENT: the kernel cuts what is sent
sender.connect((server, 5001))
packets, pack = bytearray(64 * at_once), struct.Struct("!" + "Q56x" * at_once).pack_into
sent, began = 0, time.monotonic()
while (passed_s := time.monotonic() - began) < lasts_s:
    if sent >= passed_s * rate_pps:
        time.sleep(0.0002)
        continue
    pack(packets, 0, *range(sent, sent + at_once))
    sender.send(packets)
    sent += at_once
print(sent)
"""
ON_INGRESS = "filter add dev tap-in ingress protocol ip u32 match ip protocol 17 0xff"
REDIRECT = f"qdisc add dev tap-in clsact\n{ON_INGRESS} action mirred egress redirect dev tap-out\n"


def cpu_s(pid: int) -> float:
    """Return how long a process has been on a CPU."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def prioritise(pid: int) -> None:
    """Give the tap a CPU, and a priority above all but the sender."""
    for command in (
        ("chrt", "-a", "-r", "-p", TAP_PRIORITY, pid),
        ("taskset", "-a", "-p", "-c", TAP_CPU, pid),
    ):
        subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)


def measure(net: Network, pps: int) -> str:
    """Send at a rate, and say what became of it."""
    with tempfile.TemporaryDirectory() as folder:
        tap = Tap(net, Path(folder), "--filter", "udp port 5001", "--keep", 0)
        tap.wait_heard()
        [pid] = tap.listeners()
        prioritise(pid)
        time.sleep(AROUND_S)
        before_s = cpu_s(pid)
        sender = ("chrt", "-f", SENDER_PRIORITY, "taskset", "-c", SENDER_CPU, sys.executable)
        sent = int(net.run("client", *sender, "-c", FLOOD, SERVER, pps, DURATION_S))
        took_s = cpu_s(pid) - before_s
        time.sleep(AROUND_S + 1)
        _, told = tap.end()
    heard, summary = told[-1]["tap"], told[-1]["summary"]
    missed = [heard[side]["dropped"] + heard[side]["late"] for side in ("pre", "post")]
    return (
        f"{pps:>9,} asked  {sent / DURATION_S:>11,.0f} sent/s  in {heard['pre']['received']:>9,}"
        f"  out {heard['post']['received']:>9,}  matched {summary['count']:>9,}"
        f"  lost {summary['lost']:>7,}"
        f"  unresolved {summary['outside']:>7,}  missed {missed[0]:,} and {missed[1]:,}"
        f"  CPU {took_s / DURATION_S:.0%}"
    )


def main() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with routed_network() as net:
        net.run("client", "ethtool", "-K", "eth0", "tx-udp-segmentation", "off")
        net.run("router", "tc", "-batch", "-", given=REDIRECT)
        for rate in sys.argv[1:]:
            print(measure(net, rate_pps(rate, "RATE")), flush=True)


if __name__ == "__main__":
    main()
