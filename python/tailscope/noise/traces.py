"""Traces of kernel events, read by the programs of their formats: trace-cmd, perf, babeltrace2.

Their output is read line by line, and strictly: a line that cannot be understood is an error.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Literal, NamedTuple

from tailscope.exceptions import TestbedError, UsageError
from tailscope.host import remedies

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Reader = Literal["trace-cmd", "perf", "babeltrace2"]

_PACKAGES: dict[Reader, str] = {
    "trace-cmd": "trace-cmd",
    "perf": "linux-perf",
    "babeltrace2": "babeltrace2",
}
_LIMIT_S = 540.0
_TRACE_CMD, _PERF = b"\x17\x08\x44tracing", b"PERFILE2"
_NS_DIGITS = 9
_MOST_CHARACTERS = 1 << 14
"""Longest line, in characters."""

# The kernel's name of a task has 15 bytes; programs that print it may add some of their own.
_TASK = r"\s*\S.{0,63}?"
_CPU, _TIME = r"(?P<cpu>\d{1,6})", r"(?P<s>\d{1,10})\.(?P<fraction>\d{6,9})"
_COUNT = r"(?P<count>\d{1,18})"
# TASK-PID [CPU] FLAGS TIME: EVENT: REST, behind the name of the buffer if there is one.
_FTRACE = re.compile(
    rf"\s*(?:\S{{1,255}}:\s+)?{_TASK}-\d+\s+\[{_CPU}\]\s+(?:[^\s:]+\s+)?"
    rf"{_TIME}:\s+(?P<event>[\w.:-]+):\s*(?P<rest>.*)"
)
_FTRACE_LOST = re.compile(rf"\s*(?:\S+:\s+)?CPU:{_CPU} \[(?:{_COUNT} )?EVENTS DROPPED\]")
_FTRACE_HEAD = re.compile(r"\s*|cpus=\d+|(?:\S+:\s+)?CPU \d+ is empty|version = .*")
# COMM TID [CPU] TIME: EVENT: REST
_PERF_LINE = re.compile(
    rf"{_TASK}\s+-?\d+(?:/-?\d+)?\s+\[{_CPU}\]\s+{_TIME}:\s+"
    r"(?:\d+\s+)?(?P<event>[\w.:/-]+?):(?:\s+(?P<rest>.*))?"
)
_PERF_LOST = re.compile(rf".*\bPERF_RECORD_LOST(?:_SAMPLES)? lost {_COUNT}(?!\d).*")
_PERF_HEAD = re.compile(r"\s*|#.*")
# [TIME] HOST EVENT: { cpu_id = CPU }, { REST }
_CTF = re.compile(
    r"\[(?P<s>\d{1,10})\.(?P<fraction>\d{9})\]\s+(?:\(\S+\)\s+)?(?:\S+\s+)?(?P<event>[\w.:-]+):\s+"
    rf"\{{(?>[^{{}}]*?\bcpu_id = ){_CPU}[^{{}}]*\}}(?:,\s*(?P<rest>.*))?"
)
_CTF_LOST = re.compile(r"discarded (?P<count>\d+) event")
_REFERENCE = re.compile(
    r"# reference time: .* = (?P<unix>\d+\.\d+) \(TOD\) = (?P<own>\d+\.\d+) \(\S+\)"
)


class TraceEvent(NamedTuple):
    """One line of a trace."""

    time_ns: int
    cpu: int
    name: str
    """Name of the event, without its group."""
    fields: str
    """Other contents of the line."""


class Lost(NamedTuple):
    """A place at which the tracer lost events."""

    cpu: int | None
    """CPU that lost events; None if it is unknown."""
    events: int


@dataclass(frozen=True)
class Trace:
    """A trace, and the program that reads it."""

    path: Path
    reader: Reader
    is_text: bool
    """True if it is the output of ``perf script`` already."""
    to_unix_ns: int | None
    """Offset from its times to Unix time that the trace itself states; None if there is none."""

    def lines(self) -> Iterator[TraceEvent | Lost]:
        """Read all events, in order of time on each CPU."""
        if self.is_text:
            try:
                with self.path.open(encoding="utf-8", errors="replace") as lines:
                    yield from self._parsed(lines)
            except OSError as error:
                raise UsageError(
                    f"{self.path}: {error.strerror}", code="trace-unreadable"
                ) from None
            return
        with _output(self.reader, _arguments(self.reader, self.path), self.path) as (
            lines,
            messages,
        ):
            yield from self._parsed(lines)
        for lost in _CTF_LOST.finditer("\n".join(messages)):
            yield Lost(None, int(lost["count"]))

    def _parsed(self, lines: IO[str]) -> Iterator[TraceEvent | Lost]:
        for number, line in enumerate(iter(lambda: lines.readline(_MOST_CHARACTERS), ""), 1):
            is_whole = len(line) < _MOST_CHARACTERS
            event = parse_line(self.reader, line.rstrip("\n")) if is_whole else None
            if event is None:
                raise UsageError(
                    f"{self.path}: line {number} of {self._said_by()}: got"
                    f" {line.strip()[:120]!r}, expected an event with CPU and time",
                    code="trace-line",
                    hint="record tracepoints of all CPUs, without stacks",
                )
            if not isinstance(event, str):
                yield event

    def _said_by(self) -> str:
        return "the text" if self.is_text else f"the output of {self.reader}"


def open_trace(path: Path) -> Trace:
    """Detect the format of a trace in a file or folder."""
    path = path.absolute()
    if path.is_dir():
        if next(path.rglob("metadata"), None) is None:
            raise UsageError(
                f"{path}: got a folder without metadata, expected a CTF trace",
                code="trace-metadata",
            )
        return Trace(path, "babeltrace2", is_text=False, to_unix_ns=None)
    try:
        with path.open("rb") as file:
            begin = file.read(4096)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", code="trace-unreadable") from None
    if begin.startswith(_TRACE_CMD):
        return Trace(path, "trace-cmd", is_text=False, to_unix_ns=None)
    if begin.startswith(_PERF):
        return Trace(path, "perf", is_text=False, to_unix_ns=_reference_ns(path))
    first = next((line for line in begin.decode(errors="replace").splitlines() if line.strip()), "")
    if b"\0" in begin or parse_line("perf", first) is None:
        raise UsageError(
            f"{path}: expected a trace: trace.dat of trace-cmd, perf.data, the text of `perf"
            " script`, or a folder with CTF",
            code="trace-format",
        )
    return Trace(path, "perf", is_text=True, to_unix_ns=None)


def parse_line(reader: Reader, line: str) -> TraceEvent | Lost | str | None:
    """Parse a line of a program's output; a heading stays text, and None is no line of it."""
    event, heading = {
        "trace-cmd": (_FTRACE, _FTRACE_HEAD),
        "perf": (_PERF_LINE, _PERF_HEAD),
        "babeltrace2": (_CTF, None),
    }[reader]
    if lost := _lost(reader, line):
        return lost
    if heading is not None and heading.fullmatch(line):
        return line
    match = event.fullmatch(line)
    if match is None:
        return None
    fraction = match["fraction"].ljust(_NS_DIGITS, "0")
    return TraceEvent(
        int(match["s"]) * 1_000_000_000 + int(fraction),
        int(match["cpu"]),
        match["event"].rpartition(":")[2],
        (match["rest"] or "").strip(),
    )


def _lost(reader: Reader, line: str) -> Lost | None:
    if reader == "trace-cmd" and (found := _FTRACE_LOST.fullmatch(line)):
        # Some such lines do not say how many events were lost.
        return Lost(int(found["cpu"]), int(found["count"] or 1))
    if reader == "perf" and (found := _PERF_LOST.fullmatch(line)):
        return Lost(None, int(found["count"]))
    return None


def _arguments(reader: Reader, path: Path) -> list[str]:
    if reader == "trace-cmd":
        return ["report", "-N", "-t", "-i", str(path)]
    if reader == "perf":
        shown = "comm,tid,cpu,time,event,trace"
        return [
            *("--no-pager", "script", "--force", "--ns", "--show-lost-events"),
            *("-F", shown, "-i", str(path)),
        ]
    return ["--clock-seconds", "--no-delta", str(path)]


def _reference_ns(path: Path) -> int | None:
    """Return the difference of Unix time and perf's clock that perf noted when it began."""
    arguments = ["--no-pager", "script", "--force", "--header-only", "-i", str(path)]
    with _output("perf", arguments, path) as (lines, _):
        match = next(filter(None, map(_REFERENCE.fullmatch, map(str.rstrip, lines))), None)
        for _ in lines:
            """Read to the end, so that perf can end."""
    return None if match is None else _ns(match["unix"]) - _ns(match["own"])


def _ns(text: str) -> int:
    seconds, _, fraction = text.partition(".")
    return int(seconds) * 1_000_000_000 + int(fraction.ljust(_NS_DIGITS, "0")[:_NS_DIGITS])


@contextmanager
def _output(
    reader: Reader, arguments: list[str], path: Path
) -> Iterator[tuple[IO[str], list[str]]]:
    """Start a program; yield its output, and a list of its messages once it has ended."""
    program = shutil.which(reader)
    if program is None:
        raise TestbedError(
            f"{path}: {reader} reads it, and is not installed",
            code="trace-reader-missing",
            remedy=remedies.package(_PACKAGES[reader]),
        )
    messages: list[str] = []
    with tempfile.TemporaryFile("w+", errors="replace") as complaints:
        started = subprocess.Popen(  # noqa: S603
            [program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
            errors="replace",
            env={"PATH": os.defpath, "LC_ALL": "C.UTF-8", "HOME": "/"},
        )
        assert started.stdout is not None
        limit = threading.Timer(_LIMIT_S, started.kill)
        limit.start()
        try:
            yield started.stdout, messages
            started.wait()
        finally:
            in_time = limit.is_alive()
            limit.cancel()
            started.kill()
            started.wait()
            started.stdout.close()
            complaints.seek(0)
            messages += complaints.read().splitlines()
    if started.returncode:
        why = next(filter(str.strip, reversed(messages)), f"status {started.returncode}")
        why = why.strip() if in_time else f"it took longer than {_LIMIT_S:.0f} s"
        raise TestbedError(f"{path}: {reader} cannot read it: {why}", code="trace-reader-failed")
