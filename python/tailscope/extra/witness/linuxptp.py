"""Logs of ptp4l and phc2sys, on a terminal (``-m``), in syslog, or in a journal."""

from __future__ import annotations

import re
from statistics import median
from typing import TYPE_CHECKING

from tailscope.exceptions import UsageError
from tailscope.extra.witness.log import Log, LogReader
from tailscope.extra.witness.samples import Sample
from tailscope.extra.witness.times import resolution_ns, seconds_ns, stamp_at_start

if TYPE_CHECKING:
    from tailscope.extra.witness.times import Stamp

_S = 10**9
_HEAD = re.compile(
    r"(?<!\S)(ptp4l|phc2sys|ts2phc)(?:\[(\d{1,10}\.\d+)\]:|(?:\[\d+\])?: \[(\d{1,10}\.\d+)\])"
)
_OFFSET = re.compile(
    r"(?:(\S+) (?:phc|sys) |master )offset +(-?\d{1,18}) s(\d) freq +([+-]?\d{1,12})"
)
_SUMMARY = re.compile(r"(?:(\S+) )?rms +\d+ max +(\d{1,18}) freq +([+-]?\d{1,12}) \+/- +\d+")
_PORT = re.compile(r"(port \d+)(?: \(\S+\))?: (\w+) to (\w+) on (\w+)")
_JUMPED = re.compile(r"clockcheck: |timed out while polling for tx timestamp")
_LOCKED = (2, 3)
"""States of the servo in which it keeps the clock; 0 is unlocked, 1 a step."""
_KEPT = ("SLAVE", "CLIENT")


class LinuxPtp(LogReader):
    """Reads a log of ptp4l, phc2sys or ts2phc."""

    def __init__(self, near_ns: int | None) -> None:
        self._near_ns = near_ns
        self._program = ""
        self._clocks: dict[str, list[Sample]] = {}
        self._lost_ports: set[str] = set()
        self._zeros: list[Stamp] = []
        self._at_ns = self._resolution_ns = 0

    def take(self, line: str) -> None:
        """Take the next line."""
        head = _HEAD.search(line)
        if head is None:
            return
        program, plain, nested = head.groups()
        if self._program not in ("", program):
            raise UsageError(
                f"--clock-log: a log of {self._program} and {program}, expected one program a file",
                code="clock-log-programs",
                hint=f"grep {program} LOG > {program}.log",
            )
        self._program, text = program, plain or nested
        at_ns = seconds_ns(text)
        if at_ns < self._at_ns:
            raise UsageError(
                f"--clock-log: {head.group()}: the time goes back: {program} was started anew"
                " behind a boot",
                code="clock-log-back",
                hint="give the part of the log that the capture is of",
            )
        self._at_ns = at_ns
        self._resolution_ns = resolution_ns(text.partition(".")[2])
        if (stamp := stamp_at_start(line, self._near_ns)) is not None:
            self._zeros.append(stamp._replace(unix_ns=stamp.unix_ns - at_ns))
        self._read(line[head.end() :])

    def _read(self, message: str) -> None:
        if found := _OFFSET.search(message):
            clock, offset_ns, state, frequency_ppb = found.groups()
            is_kept = int(state) in _LOCKED and not self._lost_ports
            self._add(
                clock, Sample(self._at_ns, int(offset_ns), float(frequency_ppb), is_kept=is_kept)
            )
        elif found := _SUMMARY.search(message):
            clock, most_ns, frequency_ppb = found.groups()
            is_kept = not self._lost_ports
            self._add(
                clock, Sample(self._at_ns, int(most_ns), float(frequency_ppb), is_kept=is_kept)
            )
        elif found := _PORT.search(message):
            port, former, state, _ = found.groups()
            if state in _KEPT:
                self._lost_ports.clear()
            elif former in _KEPT:
                self._lost_ports.add(port)
                self._add_to_all()
        elif _JUMPED.search(message):
            self._add_to_all()

    def _add(self, clock: str | None, sample: Sample) -> None:
        self._clocks.setdefault(clock or "", []).append(sample)

    def _add_to_all(self) -> None:
        """Take that nothing keeps any of the clocks at this time."""
        for samples in self._clocks.values():
            samples.append(Sample(self._at_ns, None, is_kept=False))

    def log(self) -> Log | None:
        """Return what was read; None if it is no such log."""
        if not self._program:
            return None
        zero_ns, unsure_ns = self._zero()
        return Log(self._program, self._clocks, self._resolution_ns + unsure_ns, zero_ns)

    def _zero(self) -> tuple[int | None, int]:
        """Return the Unix time of the log's zero, and how much later it can be.

        Times in whole seconds are rounded down: no zero is before the last one that they say, or a
        second behind the first.
        """
        if not self._zeros:
            return None, 0
        zeros_ns = [stamp.unix_ns for stamp in self._zeros]
        step_ns = max(stamp.resolution_ns for stamp in self._zeros)
        if step_ns < _S:
            return round(median(zeros_ns)), step_ns
        return max(zeros_ns), max(0, min(zeros_ns) + step_ns - max(zeros_ns))
