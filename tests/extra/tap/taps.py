"""The command `tailscope tap` on a router of the kernel."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foreign.network import Network

_HEARD_S = 20


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
