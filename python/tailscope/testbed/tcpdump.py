"""Captures of links by tcpdump, with timestamps of the kernel."""

from __future__ import annotations

import re
import signal
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tailscope.exceptions import TestbedError
from tailscope.testbed.programs import find_program

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from tailscope.testbed.places import Here

_START_S = 10.0
_DRAIN_S = 1.5
"""Time for the contents of the kernel's buffer, in seconds; they arrive within one."""
_BYTES = 128
_BUFFER_KIB = 16_384


@dataclass
class Tap:
    """A link that is recorded."""

    link: str
    command: Sequence[str] = ()
    """Words that start programs in the namespace of the link."""
    path: Path = field(init=False)
    """Path of the capture."""
    dropped: int = field(init=False, default=0)
    """Number of frames that the kernel dropped; set at the end."""


@contextmanager
def recording(taps: Mapping[str, Tap], here: Here, *, only: str = "udp") -> Iterator[None]:
    """Record links within a block."""
    program = find_program("recording", "tcpdump", "tcpdump")
    with ExitStack() as stack:
        logs = []
        for name, tap in taps.items():
            tap.path = here.folder / f"{name}.pcap"
            # It writes to standard output: it drops root before it would open a file.
            options = ["-i", tap.link, "-s", str(_BYTES), "-B", str(_BUFFER_KIB), "-w", "-"]
            options += ["-j", "host", "--time-stamp-precision=nano", "--direction=in"]
            command = [*tap.command, str(program), *options, only]
            logs.append(f"{name}.log")
            stack.enter_context(_recorder(here, name, command, tap))
        _wait_listening(here, logs)
        yield
        time.sleep(_DRAIN_S)


@contextmanager
def _recorder(here: Here, name: str, command: Sequence[str], tap: Tap) -> Iterator[None]:
    """Run tcpdump within a block, and end it by SIGINT, so that it prints its drops."""
    to_file = ["sh", "-c", 'out=$1; shift; exec "$@" >"$out"', "sh", str(tap.path)]
    with here.start(name, [*to_file, *command]) as process:
        yield
        process.signal(signal.SIGINT)
        process.how_it_ended()
    dropped = re.search(r"(\d+) packets? dropped by kernel", here.read(f"{name}.log") or "")
    tap.dropped = int(dropped[1]) if dropped else 0


def _wait_listening(here: Here, logs: Sequence[str]) -> None:
    deadline_s = time.monotonic() + _START_S
    logged: list[str] = []
    while time.monotonic() < deadline_s:
        logged = [(here.read(log) or "").strip() for log in logs]
        if all("listening on" in text for text in logged):
            return
        time.sleep(0.05)
    silent = next(text for text in logged if "listening on" not in text)
    raise TestbedError(f"tcpdump: did not start: {silent or 'no output'}", code="tcpdump-start")
