"""Unix time that nobody sets while a measurement reads it."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_ATTEMPTS = 16
_NOTICED_NS = 1_000_000
_SLEWED_PPM = 1_000
"""Twice as fast as a clock is let run to catch up."""


class ClockPair(NamedTuple):
    """Unix time less the monotonic one, and how far that may be off, in ns."""

    offset_ns: int
    error_ns: int


def clock_pair() -> ClockPair:
    """Read both clocks at once: the best of some attempts."""
    pairs = []
    for _ in range(_ATTEMPTS):
        before = time.monotonic_ns()
        unix = time.time_ns()
        after = time.monotonic_ns()
        pairs.append(ClockPair(unix - (before + after) // 2, (after - before + 1) // 2))
    return min(pairs, key=lambda pair: pair.error_ns)


def ahead_of_kernel_ns() -> int:
    """How far the monotonic clock is ahead of the kernel's own: not 0 in a time namespace."""
    with suppress(OSError):
        for line in Path("/proc/self/timens_offsets").read_text().splitlines():
            name, seconds, ns = line.split()
            if name == "monotonic":
                return int(seconds) * 1_000_000_000 + int(ns)
    return 0


class SteadyClock:
    """Unix time as it was when this was made, and what has passed since by the monotonic clock."""

    def __init__(self) -> None:
        self._offset_ns, self._error_ns = clock_pair()

    def now_ns(self) -> int:
        """Unix time; it never goes back, nor leaps."""
        return self._offset_ns + time.monotonic_ns()

    def set_by_ns(self) -> int:
        """By how much the machine's clock was set meanwhile; 0 for less than a millisecond."""
        now = clock_pair()
        by_ns = now.offset_ns - self._offset_ns
        noticed_ns = _NOTICED_NS + self._error_ns + now.error_ns
        return by_ns if abs(by_ns) > noticed_ns else 0


def largest_step_ns(
    when_ns: NDArray[np.int64], least_ns: NDArray[np.int64], most_ns: NDArray[np.int64]
) -> int:
    """By how much Unix time was set at once, at most, between readings of it by another clock."""
    import numpy as np

    if len(when_ns) < len(("before", "after")):
        return 0
    natural_ns = _NOTICED_NS + np.diff(when_ns) * _SLEWED_PPM // 1_000_000
    forward = least_ns[1:] - most_ns[:-1] - natural_ns
    back = least_ns[:-1] - most_ns[1:] - natural_ns
    at = int(np.argmax(np.maximum(forward, back)))
    if max(forward[at], back[at]) <= 0:
        return 0
    return int((least_ns[at + 1] + most_ns[at + 1] - least_ns[at] - most_ns[at]) // 2)
