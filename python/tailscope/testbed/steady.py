"""Unix time that does not jump when the machine's clock is set."""

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
"""Twice the rate at which a clock may be slewed, in ppm."""


class ClockPair(NamedTuple):
    """Unix time minus monotonic time, and the largest error of that, in nanoseconds."""

    offset_ns: int
    error_ns: int


def clock_pair() -> ClockPair:
    """Read both clocks at once, and return the best of several attempts."""
    pairs = []
    for _ in range(_ATTEMPTS):
        before = time.monotonic_ns()
        unix = time.time_ns()
        after = time.monotonic_ns()
        pairs.append(ClockPair(unix - (before + after) // 2, (after - before + 1) // 2))
    return min(pairs, key=lambda pair: pair.error_ns)


def ahead_of_kernel_ns() -> int:
    """Return the lead of the monotonic clock over the kernel's: not 0 in a time namespace."""
    with suppress(OSError):
        for line in Path("/proc/self/timens_offsets").read_text().splitlines():
            name, seconds, ns = line.split()
            if name == "monotonic":
                return int(seconds) * 1_000_000_000 + int(ns)
    return 0


class SteadyClock:
    """A clock that starts at Unix time and follows the monotonic clock."""

    def __init__(self) -> None:
        self.ahead_ns, self.error_ns = clock_pair()
        """Unix time minus monotonic time at the start, and the largest error of that."""

    def now_ns(self) -> int:
        """Return Unix time, which never goes back and never jumps."""
        return self.ahead_ns + time.monotonic_ns()

    def set_by_ns(self) -> int:
        """Return the step by which the machine's clock was set; 0 for less than a millisecond."""
        now = clock_pair()
        by_ns = now.offset_ns - self.ahead_ns
        noticed_ns = _NOTICED_NS + self.error_ns + now.error_ns
        return by_ns if abs(by_ns) > noticed_ns else 0


def largest_step_ns(
    when_ns: NDArray[np.int64], least_ns: NDArray[np.int64], most_ns: NDArray[np.int64]
) -> int:
    """Return the largest step of Unix time between readings of it by another clock."""
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
