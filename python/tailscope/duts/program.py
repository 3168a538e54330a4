"""Devices that are programs of others: started, ready when they say so, ended by a signal."""

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
"""The status of whoever is to start a program that is not there."""


class RunningProgram(Running):
    """A program that forwards."""

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
        """Whether it is there."""
        return self._process.is_running

    def failure(self) -> TestbedError:
        """Say how it ended."""
        return failure(self._name, self._process, self._process.how_it_ended())

    def stop(self) -> DutCounts | None:
        """End it as a person would."""
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
            raise failure(name, process, f"not ready within {timeout_s:g} s{waited}")
        try:
            line = process.next_line(min(_POLL_S, countdown.left_s))
        except queue.Empty:
            continue
        if line is None:
            raise failure(name, process, process.how_it_ended())
        if isinstance(ready, str) and re.search(ready, line):
            return


def failure(name: str, process: Process, how: str) -> TestbedError:
    """Say how a program failed, in its own words."""
    process.wait_end(_POLL_S)
    words = process.last_words()
    hint = None
    if how == f"ended with status {_NOT_FOUND}":
        hint = f"no program was found: give its path, as it is none of those in {search_path()}"
    return TestbedError(f"{name}: {how}" + (f"; it said: {words}" if words else ""), hint=hint)
