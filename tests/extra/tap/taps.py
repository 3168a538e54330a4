"""The command `tailscope tap` on a router of the kernel."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from foreign.network import Network

_HEARD_S = 20
SERVER = "10.2.0.2"
_HOLD = """
import sys, time
lasts_s, for_s, every_s = float(sys.argv[1]), int(sys.argv[2]) / 1e3, int(sys.argv[3]) / 1e3
end = time.monotonic() + lasts_s
while (now := time.monotonic()) < end:
    while time.monotonic() < min(end, now + for_s):
        pass
    time.sleep(max(0, every_s - for_s))
"""
_FORWARD = """
import socket, sys
came = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
came.bind((sys.argv[1], 0))
came.setsockopt(263, 23, 1)  # PACKET_IGNORE_OUTGOING
leaves = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
leaves.bind((sys.argv[2], 0))
print("ready", flush=True)
while True:
    frame = came.recv(2048)
    if frame[12:14] == bytes([8, 0]):
        leaves.send(frame)
"""
_SEND = """
import socket, sys, time
sender, began = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), time.monotonic()
for number in range(int(sys.argv[1])):
    sender.sendto(number.to_bytes(8, "big") + bytes(92), (sys.argv[2], 5001))
    time.sleep(max(0, began + number / 1000 - time.monotonic()))
"""


class Tap:
    """The command, on the router."""

    def __init__(self, net: Network, folder: Path, *options: object) -> None:
        self.out, self._said = folder / "run", folder / "said.txt"
        self._lines = folder / "seconds.jsonl"
        words = ["tap", "tap-in", "tap-out", "--json", self._lines, "--out", self.out, *options]
        command = ["ip", "netns", "exec", net.names["router"], sys.executable, "-m", "tailscope"]
        with self._said.open("w") as said:
            self.process = subprocess.Popen(
                [*command, *map(str, words)], stdout=said, stderr=subprocess.STDOUT
            )
        net.stack.callback(self.process.kill)

    def wait_heard(self) -> None:
        """Wait until it hears: from then on it is a process of the data plane."""
        deadline_s = time.monotonic() + _HEARD_S
        while not self.listeners():
            assert self.process.poll() is None, self._said.read_text()
            assert time.monotonic() < deadline_s, "it does not begin"
            time.sleep(0.05)

    def listeners(self) -> list[int]:
        """The processes that hear, once they have given back what root lent them."""
        listed = subprocess.run(
            ["pgrep", "-f", f"tailscope-dp tap -- --pre=tap-in.*{self.out}"],
            capture_output=True,
            text=True,
            check=False,
        )
        pids = [int(pid) for pid in listed.stdout.split()]
        return [pid for pid in pids if "CapEff:\t0000000000000000" in _status(pid)]

    def end(self) -> tuple[int, list[dict[str, Any]]]:
        """End it as Ctrl-C does; its status, and what it told."""
        self.process.send_signal(signal.SIGINT)
        status = self.process.wait(30)
        return status, [json.loads(line) for line in self._lines.read_text().splitlines()]

    def said(self) -> str:
        return self._said.read_text()


def _status(pid: int) -> str:
    try:
        return Path("/proc", str(pid), "status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def memory_kib(pid: int) -> int:
    """Return the memory that a process holds."""
    [line] = (line for line in _status(pid).splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1])


@contextmanager
def hold_cpu(
    cpu: int, *, lasts_s: float, for_ms: int = 1000, every_ms: int = 1000, priority: int = 0
) -> Iterator[subprocess.Popen[bytes]]:
    """Keep a CPU busy within a block, for so long each time, by a process of its own."""
    command = ["taskset", "-c", str(cpu)]
    if priority:
        command += ["chrt", "-f", str(priority)]
    command += [sys.executable, "-c", _HOLD, str(lasts_s), str(for_ms), str(every_ms)]
    with subprocess.Popen(command) as process:
        try:
            yield process
            if not priority:
                process.wait(lasts_s + _HEARD_S)
        finally:
            process.kill()


def forward(net: Network, cpu: int) -> None:
    """Let a program on a CPU of the router forward what comes, instead of the kernel."""
    net.write("router", "ipv4/ip_forward", 0)
    net.run("server", "ip", "link", "set", "eth0", "promisc", "on")
    address = net.run("server", "cat", "/sys/class/net/eth0/address").strip()
    neighbour = f"neigh replace {SERVER} lladdr {address} dev eth0"
    net.configure("client", f"route replace default dev eth0\n{neighbour}\n")
    words = ("taskset", "-c", cpu, sys.executable, "-c", _FORWARD, "tap-in", "tap-out")
    net.start("router", *words, ready="ready")


def send_each_ms(net: Network, packets: int) -> None:
    """Send numbered datagrams from the client to the server, one each millisecond."""
    net.run("client", sys.executable, "-c", _SEND, packets, SERVER)
