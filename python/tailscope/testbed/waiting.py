"""Waiting for programs: for as long as they work, and by time that this process was awake for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

LOOK_S = 2.0
"""How often to look whether a program that says nothing works."""
_LOOKS = 60
"""After so many looks at which it had done nothing, a program is stuck."""


class Countdown:
    """Time that is left to wait for something, for those who listen to a program meanwhile.

    If this process itself is stopped, only a moment passes: what the program has said by then is
    read before anybody judges it.
    """

    def __init__(self, lasts_s: float) -> None:
        self.left_s, self._looked_s = lasts_s, time.monotonic()

    @property
    def pause_s(self) -> float:
        """How long to wait before `is_over` is asked again."""
        return max(0.0, min(LOOK_S, self.left_s))

    def is_over(self) -> bool:
        """Whether the time is over."""
        now_s = time.monotonic()
        self.left_s -= min(now_s - self._looked_s, 2 * LOOK_S)
        self._looked_s = now_s
        return self.left_s <= 0


class Watchdog:
    """Tells a program that works from one that is stuck.

    One that says something, uses a CPU or writes works. Looks are counted rather than seconds: if
    this process itself is stopped, that is no look.
    """

    def __init__(self, work: Callable[[], tuple[int, ...]]) -> None:
        self._work = work
        self._seen: tuple[int, ...] | None = None
        self._looks = 0

    def is_stuck(self) -> bool:
        """Look at the program; whether it has done nothing for the last two minutes of looks."""
        work = self._work()
        self._looks = 0 if work != self._seen else self._looks + 1
        self._seen = work
        return self._looks >= _LOOKS

    @property
    def why(self) -> str:
        """What an error says of a program that is stuck."""
        return f"it said nothing, used no CPU and wrote nothing for {_LOOKS * LOOK_S:g} s"
