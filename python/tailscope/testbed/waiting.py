"""Timeouts for programs, which count work and the time that this process was awake."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

LOOK_S = 2.0
"""Interval of checks on a silent program, in seconds."""
_LOOKS = 60
"""Number of checks without any work after which a program is stuck."""


class Countdown:
    """A timeout for reading the output of a program.

    While this process itself is stopped, almost no time passes: it reads the output that the
    program wrote meanwhile before it judges the program.
    """

    def __init__(self, lasts_s: float) -> None:
        self.left_s, self._looked_s = lasts_s, time.monotonic()

    @property
    def pause_s(self) -> float:
        """Return the time to wait before the next call of `is_over`, in seconds."""
        return max(0.0, min(LOOK_S, self.left_s))

    def is_over(self) -> bool:
        """Return True if the time is over."""
        now_s = time.monotonic()
        self.left_s -= min(now_s - self._looked_s, 2 * LOOK_S)
        self._looked_s = now_s
        return self.left_s <= 0


class Watchdog:
    """A detector of programs that are stuck.

    A program that prints, uses a CPU or writes is working. The detector counts checks rather than
    seconds, as this process itself may be stopped.
    """

    def __init__(self, work: Callable[[], tuple[int, ...]]) -> None:
        self._work = work
        self._seen: tuple[int, ...] | None = None
        self._looks = 0

    def is_stuck(self) -> bool:
        """Check the program, and return True if it has done nothing for two minutes of checks."""
        work = self._work()
        self._looks = 0 if work != self._seen else self._looks + 1
        self._seen = work
        return self._looks >= _LOOKS

    @property
    def why(self) -> str:
        """Return the reason for giving up, for an error message."""
        return f"it said nothing, used no CPU and wrote nothing for {_LOOKS * LOOK_S:g} s"
