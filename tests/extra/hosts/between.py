"""Two hosts as network namespaces, with what is between them and programs on both."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import msgspec

from tailscope.engine.analysis import analyze_recording
from tailscope.extra.hosts.figures import hosts_record
from tailscope.extra.hosts.passages import read_passages
from tailscope.store.records.messages import SenderResult
from tailscope.testbed.process import find_binary

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tailscope.extra.hosts.passages import Passages
    from tailscope.extra.hosts.records import HostsRecord

PORT = 862
NEAR, FAR = "10.99.0.1", "10.99.0.2"
FAR_V6 = "fd99::2"


class Between:
    """A context with two hosts, joined by a cable, or by a device that delays packets."""

    def __init__(self, delay: Sequence[str] | None = None, *, realtime: bool = False) -> None:
        self._delay, self._is_realtime = delay, realtime
        self.stack = ExitStack()
        own = f"{os.getpid()}-{time.monotonic_ns() % 10**6}"
        self.names = {side: f"ts{side}-{own}" for side in ("near", "far", "mid")}

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for side in self.names if self._delay is not None else ("near", "far"):
                name = self.names[side]
                _ip("netns", "add", name)
                stack.callback(_ip, "netns", "delete", name)
                _ip("-n", name, "link", "set", "lo", "up")
            if self._delay is None:
                self._cable("near", "host0", "far", "host0")
            else:
                self._cable("near", "host0", "mid", "mid0")
                self._cable("far", "host0", "mid", "mid1")
                for side in ("near", "far"):
                    # The device hands on what a card would have completed.
                    self.run(side, "ethtool", "-K", "host0", "tx", "off")
                for link in ("mid0", "mid1"):
                    self.run("mid", "sysctl", "-qw", f"net.ipv6.conf.{link}.disable_ipv6=1")
            for side, address, v6 in (("near", NEAR, "fd99::1"), ("far", FAR, FAR_V6)):
                name = self.names[side]
                _ip("-n", name, "addr", "add", f"{address}/24", "dev", "host0")
                _ip("-n", name, "addr", "add", f"{v6}/64", "dev", "host0", "nodad")
            if self._delay is not None:
                self._start_delay(stack)
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stack.close()

    def _cable(self, side: str, link: str, other: str, other_link: str) -> None:
        names = self.names[side], self.names[other]
        ends = ("type", "veth", "peer", "name", other_link, "netns", names[1])
        _ip("link", "add", link, "netns", names[0], *ends)
        for name, each in zip(names, (link, other_link), strict=True):
            _ip("-n", name, "link", "set", each, "up")

    def _start_delay(self, stack: ExitStack) -> None:
        assert self._delay is not None, "there is one"
        prefix = self.names["mid"]
        vdevs = [f"--vdev=net_af_packet{at},iface=mid{at}" for at in (0, 1)]
        eal = ["-l", "0", "--no-huge", "-m", "256", "--no-pci", "--no-telemetry", *vdevs]
        command = ["delay", *eal, f"--file-prefix={prefix}", "--", *self._delay]
        # A device that others keep from its CPU has no law.
        before = ("taskset", "-c", "0", "chrt", "-r", "1") if self._is_realtime else ()
        device = self.start("mid", *before, str(find_binary()[0]), *command)
        stack.callback(_end, device)
        _wait_for(device, '"ready"')

    def command(self, side: str, *command: str) -> list[str]:
        """Return a command that runs on a host."""
        # `ip netns exec` would hide control groups.
        return ["nsenter", f"--net=/run/netns/{self.names[side]}", *command]

    def run(self, side: str, *command: str, check: bool = True) -> str:
        """Run a command on a host, and return what it printed."""
        done = subprocess.run(
            self.command(side, *command), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0 or not check, done.stderr + done.stdout
        return done.stdout

    def start(self, side: str, *command: str) -> subprocess.Popen[str]:
        """Start a program on a host; it ends with the block."""
        process = subprocess.Popen(
            self.command(side, *command),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.stack.callback(_end, process)
        return process

    def reflect(self, *options: str) -> subprocess.Popen[str]:
        """Start a reflector on the far host."""
        process = self.start("far", str(find_binary()[0]), "reflect", "--", *options)
        _wait_for(process, '"ready"')
        return process

    def asking(self, folder: Path, *options: str, to: str = f"{FAR}:{PORT}") -> Asking:
        """Start to measure from the near host."""
        folder.mkdir()
        words = ["sender", "--", f"--to={to}", f"--record={folder}", *options]
        process = self.start("near", str(find_binary()[0]), *words)
        _wait_for(process, '"ready"')
        return Asking(process, folder, to)

    def ask(self, folder: Path, *options: str, to: str = f"{FAR}:{PORT}") -> Found:
        """Measure from the near host."""
        return self.asking(folder, *options, to=to).end()


class Asking(NamedTuple):
    """A measurement under way."""

    process: subprocess.Popen[str]
    folder: Path
    to: str

    def end(self) -> Found:
        """Wait for its end, and analyse it as the command does."""
        output, _ = self.process.communicate(timeout=300)
        assert self.process.returncode == 0, output
        return analysed(self.folder, self.to, output.splitlines()[-1])


class Found(NamedTuple):
    """The result of a measurement."""

    summary: Mapping[str, Any]
    record: HostsRecord
    passages: Passages


def analysed(folder: Path, to: str, last_line: str) -> Found:
    """Analyse what a sender wrote down, and said at its end."""
    result = msgspec.json.decode(last_line, type=SenderResult)
    passages = read_passages(folder)
    analysis = analyze_recording(passages.recording(), window="1s")
    record = hosts_record(to, to, passages, result.sender)
    return Found(analysis.summary, record, passages)


def counts_of(reflector: subprocess.Popen[str]) -> dict[str, Any]:
    """End a reflector, and return what it counted."""
    reflector.send_signal(signal.SIGTERM)
    output, _ = reflector.communicate(timeout=60)
    counts: dict[str, Any] = json.loads(output.splitlines()[-1])["reflect"]
    return counts


def _wait_for(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if word in line:
            return
        assert "error" not in line, line
    raise AssertionError(f"it ended with {process.wait()}")


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGCONT)
        process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}: {done.stderr}"
