"""How many packets a second a tap hears before it misses the first: a router of the kernel.

`python bench/tap.py 50k 100k 200k` as root: the generator sends through a router at each rate for
some seconds, and `tailscope tap` hears both of its interfaces on all CPUs that there are. A line
for each rate says what was sent, what came, what the tap missed, and how much of a CPU it took.
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/extra/tap"))

from foreign.network import Network, routed_network
from taps import Tap

from tailscope.testbed.process import find_binary
from tailscope.units import rate_pps

DURATION_S = 5
EAL = (
    "gen",
    "-l",
    "0",
    "--no-huge",
    "--no-pci",
    "-m",
    "256",
    "--no-telemetry",
    "--vdev=net_af_packet0,iface=eth0",
)
TRAFFIC = (
    *("--src-ip=10.1.0.2", "--dst-ip=10.2.0.2", "--dst-port=5001", "--warm-up=0s", "--drain=0s"),
    f"--duration={DURATION_S}s",
)
AROUND_S = 0.5
"""How long it listens before the traffic and behind it."""


def cpu_s(pid: int) -> float:
    """Return how long a process has been on a CPU."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def measure(net: Network, mac: str, pps: int) -> str:
    """Send at a rate, and say what became of it."""
    with tempfile.TemporaryDirectory() as folder:
        tap = Tap(net, Path(folder), "--filter", "udp port 5001", "--keep", 0)
        tap.wait_heard()
        time.sleep(AROUND_S)
        [pid] = tap.listeners()
        before_s = cpu_s(pid)
        said = net.run(
            "client", find_binary()[0], *EAL, "--", *TRAFFIC, f"--dst-mac={mac}", f"--rate={pps}"
        )
        sent = json.loads(said.splitlines()[-1])["gen"]["sent"]
        took_s = cpu_s(pid) - before_s
        time.sleep(AROUND_S + 1)
        _, told = tap.end()
    sent_pps = sent / DURATION_S
    heard, summary = told[-1]["tap"], told[-1]["summary"]
    missed = [heard[side]["dropped"] + heard[side]["late"] for side in ("pre", "post")]
    return (
        f"{pps:>9,} asked  {sent_pps:>11,.0f} sent/s  in {heard['pre']['received']:>9,}"
        f"  out {heard['post']['received']:>9,}  matched {summary['count']:>9,}"
        f"  lost {summary['lost']:>7,}"
        f"  unresolved {summary['outside']:>7,}  missed {missed[0]:,} and {missed[1]:,}"
        f"  CPU {took_s / DURATION_S:.0%}"
    )


def main() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with routed_network() as net:
        links = json.loads(net.run("router", "ip", "-j", "link", "show", "tap-in"))
        net.configure(
            "router", "neigh replace 10.2.0.2 lladdr 02:00:00:00:00:02 dev tap-out nud permanent"
        )
        net.configure("server", "link set eth0 address 02:00:00:00:00:02")
        for rate in sys.argv[1:]:
            print(measure(net, links[0]["address"], rate_pps(rate, "RATE")), flush=True)


if __name__ == "__main__":
    main()
