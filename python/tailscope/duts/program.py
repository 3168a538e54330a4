"""Devices that are programs of others: started, watched until ready, ended by a signal."""

from __future__ import annotations

import queue
import re
import signal
from typing import TYPE_CHECKING

from tailscope.duts.dut import Running
from tailscope.exceptions import TestbedError
from tailscope.testbed.programs import search_path
from tailscope.testbed.waiting import Countdown

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailscope.duts.dut import Configuration
    from tailscope.store.records.dataplane import DutCounts
    from tailscope.testbed.places import Process

_END_S = 30.0
_POLL_S = 0.2
_NOT_FOUND = 127
"""Exit status of a shell or ``env`` whose program does not exist."""


class RunningProgram(Running):
    """A program that forwards packets."""

    def __init__(
        self,
        name: str,
        process: Process,
        *,
        version: str,
        configuration: Configuration,
        counts: Callable[[], DutCounts | None] | None = None,
        rules_sha256: str | None = None,
    ) -> None:
        self._name, self._process, self._counts = name, process, counts
        self.version, self.configuration = version, configuration
        self.rules_sha256 = rules_sha256

    @property
    def is_running(self) -> bool:
        """Return True if the program still runs."""
        return self._process.is_running

    def failure(self) -> TestbedError:
        """Make the error that says how the program ended."""
        return ended(self._name, self._process)

    def stop(self) -> DutCounts | None:
        """End the program by SIGTERM, and return its counts; None if it did not end."""
        from tailscope.store.records.dataplane import NoCounts

        self._process.signal(signal.SIGTERM)
        if not self._process.wait_end(_END_S):
            return None
        return NoCounts() if self._counts is None else self._counts()


def wait_for(
    name: str,
    process: Process,
    ready: str | Callable[[], bool],
    *,
    timeout_s: float,
    waits_for: str | None = None,
) -> None:
    """Wait until a program is ready."""
    countdown = Countdown(timeout_s)
    if isinstance(ready, str):
        waits_for = f"{ready!r} in its output"
    while True:
        if not isinstance(ready, str) and ready():
            return
        if countdown.is_over():
            waited = "" if waits_for is None else f", waiting for {waits_for}"
            raise not_ready(name, process, f"not ready within {timeout_s:g} s{waited}")
        try:
            line = process.next_line(min(_POLL_S, countdown.left_s))
        except queue.Empty:
            continue
        if line is None:
            raise ended(name, process)
        if isinstance(ready, str) and re.search(ready, line):
            return


def ended(name: str, process: Process) -> TestbedError:
    """Make the error that says how a program ended, with its last words."""
    how = process.how_it_ended()
    if how != f"ended with status {_NOT_FOUND}":
        return TestbedError(_quoting(name, process, how), code="program-ended")
    hint = f"no program was found: give its path, as it is none of those in {search_path()}"
    return TestbedError(_quoting(name, process, how), code="no-program", hint=hint)


def not_ready(name: str, process: Process, how: str) -> TestbedError:
    """Make the error of a program that is not ready in time, with its last words."""
    return TestbedError(_quoting(name, process, how), code="not-ready")


def _quoting(name: str, process: Process, how: str) -> str:
    process.wait_end(_POLL_S)
    words = process.last_words()
    return f"{name}: {how}" + (f"; it said: {words}" if words else "")
