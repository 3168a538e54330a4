"""Times by a program's counter, and what they are in Unix time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import asdict

from tailscope.engine.analysis import Clock, load_ticks

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from tailscope.store.records.messages import CounterClock

    Integers = NDArray[np.int64]


def clock_of(known: CounterClock) -> Clock:
    """Make the clock that a program has told of."""
    return Clock(**asdict(known))


def counter_pairs(
    folder: Path | None, known: CounterClock | None
) -> tuple[Integers, Integers, Integers]:
    """Return what turns times by a program's counter into Unix time: when, at least, at most."""
    nothing = np.zeros(0, np.int64)
    if folder is None or known is None or not (folder / "pair_tsc.npy").exists():
        return nothing, nothing, nothing
    tsc, unix, width = (
        np.asarray(load_ticks(folder, f"pair_{name}"), np.int64)
        for name in ("tsc", "unix_ns", "width_tsc")
    )
    when = clock_of(known).all_at_ns(tsc)
    error = 1 + width * 1_000_000_000 // (2 * known.tsc_hz)
    return when, unix - when - error, unix - when + error
