"""``analyze --clock-log``: from logs of clocks to times at which those of captures are in doubt."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from tailscope.engine.analysis import ClockDoubt, read_keys
from tailscope.exceptions import UsageError
from tailscope.extra.witness.chrony import (
    PrintedSources,
    PrintedTracking,
    StatisticsLog,
    TrackingLog,
)
from tailscope.extra.witness.linuxptp import LinuxPtp
from tailscope.extra.witness.samples import doubts_of, merged
from tailscope.extra.witness.times import seconds_ns
from tailscope.paths import refuse_absent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailscope.engine.analysis import Side
    from tailscope.extra.witness.log import Log, LogReader

_SPEC = re.compile(r"(pre|post)=(.+?)(?:@(-?)(\d{1,12}(?:\.\d{1,9})?))?")
_READERS = (LinuxPtp, TrackingLog, StatisticsLog, PrintedTracking, PrintedSources)
_FEWEST = 2
_MOST_BYTES = 1 << 12
"""Bytes of a line that are read; none that says something of a clock is as long."""
_MOST_NS = (1 << 63) - 1


class Witness(NamedTuple):
    """A log of a clock, as it was asked for."""

    side: Side
    path: Path
    added_ns: int | None
    """What is added to its times; None if nobody said."""


def clock_doubts(
    specs: Sequence[str], limit_ns: int, captures: Mapping[Side, str]
) -> tuple[ClockDoubt, ...]:
    """Return when logs leave the clocks of `captures` in doubt, in order of each side and log."""
    found: list[ClockDoubt] = []
    for witness in map(_witness, specs):
        log = read_log(witness.path, _begin_ns(captures[witness.side]))
        zero_ns = _zero_ns(log, witness)
        for samples in log.clocks.values():
            if len(samples) < _FEWEST:
                continue
            for doubt in merged(doubts_of(samples, limit_ns, log.resolution_ns)):
                start_ns, end_ns = (
                    min(max(ns + zero_ns, 0), _MOST_NS) for ns in (doubt.start_ns, doubt.end_ns)
                )
                found.append(
                    ClockDoubt(witness.side, start_ns, end_ns, doubt.offset_ns, doubt.reason)
                )
    return tuple(found)


def read_log(path: Path, near_ns: int | None) -> Log:
    """Read a log of whichever kind; the capture that it is for begins at `near_ns`."""
    refuse_absent(path, UsageError, "clock-log-absent")
    readers: list[LogReader] = [kind(near_ns) for kind in _READERS]
    with path.open(encoding="utf-8", errors="replace") as file:
        while line := file.readline(_MOST_BYTES):
            for reader in readers:
                reader.take(line)
    logs = [log for log in (reader.log() for reader in readers) if log is not None]
    if len(logs) != 1:
        kinds = " and ".join(log.kind for log in logs) or "nothing of a clock"
        raise UsageError(
            f"--clock-log: {path}: expected a log of ptp4l or phc2sys, tracking.log or"
            " statistics.log of chronyd, or what chronyc tracking or sourcestats printed, got"
            f" {kinds}",
            code="clock-log-kind",
        )
    [log] = logs
    if all(len(samples) < _FEWEST for samples in log.clocks.values()):
        raise UsageError(
            f"--clock-log: {path}: expected at least two offsets of a clock in this log of"
            f" {log.kind}, got fewer",
            code="clock-log-empty",
            hint="ptp4l says offsets of a clock that it keeps (-s), at its usual logging level",
        )
    return log


def _witness(spec: str) -> Witness:
    found = _SPEC.fullmatch(spec)
    if found is None:
        raise UsageError(
            f"--clock-log: got {spec!r}, expected pre=FILE or post=FILE",
            code="clock-log-side",
            hint="--clock-log pre=ptp4l.log, or pre=ptp4l.log@SECONDS to add to its times",
        )
    side, name, minus, seconds = found.groups()
    whole = Path(spec.partition("=")[2])
    if seconds is not None and whole.exists():
        name, seconds = str(whole), None
    added_ns = None if seconds is None else seconds_ns(seconds) * (-1 if minus else 1)
    return Witness(cast("Side", side), Path(name), added_ns)


def _begin_ns(capture: str) -> int | None:
    """Return when a capture begins; None for a pipe, which can be read once only."""
    if capture == "-":
        return None
    first = next(read_keys(capture, "frame", at_once=1), None)
    return None if first is None else int(first.ts_ns[0])


def _zero_ns(log: Log, witness: Witness) -> int:
    """Return the Unix time of a log's zero, on the clock of the capture."""
    if log.zero_ns is None and witness.added_ns is None:
        raise UsageError(
            f"--clock-log: {witness.path}: times of {log.kind} count from the boot of its machine",
            code="clock-log-boot",
            hint=f"--clock-log {witness.side}={witness.path}@SECONDS, with what that machine prints"
            " for: python3 -c 'import time; print(time.time() - time.monotonic())'; or a log from"
            " its journal, whose lines begin with a time",
        )
    return (log.zero_ns or 0) + (witness.added_ns or 0)
