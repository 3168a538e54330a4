"""When machines saw packets, by the numbers in their payloads."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.engine.analysis import read_keys

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

MOST_SIGHTINGS = 4096
"""Packets by which a clock is brought to another: more would hardly tell more."""


class Sightings(NamedTuple):
    """When a machine saw packets, by its own clock.

    A device sees a packet once. A generator sees it leave and come back.
    """

    seq: Integers
    """Numbers of packets."""
    first_ns: Integers
    last_ns: Integers

    @classmethod
    def none(cls) -> Sightings:
        """None at all."""
        nothing = np.zeros(0, np.int64)
        return cls(nothing, nothing, nothing)

    def some(self, since_ns: int = 0) -> Sightings:
        """Not too many of them, evenly, of those from some time on."""
        kept = np.flatnonzero(self.first_ns >= since_ns)
        if len(kept) > MOST_SIGHTINGS:
            kept = kept[np.linspace(0, len(kept) - 1, MOST_SIGHTINGS).astype(np.int64)]
        return Sightings(*(each[kept] for each in self))

    def of(self, seq: Integers) -> Sightings:
        """Those of some packets, in the order of their numbers; a packet seen twice counts once."""
        numbers, first = np.unique(self.seq, return_index=True)
        which = first[np.isin(numbers, seq)]
        return Sightings(*(each[which] for each in self))


def probe_times(capture: Path, wanted: Integers | None = None) -> tuple[Integers, Integers]:
    """Numbers of packets in a capture, and when they were captured."""
    numbers, times = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for keys in read_keys(capture, "probe"):
        seq = keys.key_bytes.view(">u8").astype(np.int64)
        when = np.asarray(keys.ts_ns)[keys.keyed].astype(np.int64)
        kept = np.ones(len(seq), bool) if wanted is None else np.isin(seq, wanted)
        numbers.append(seq[kept])
        times.append(when[kept])
    return np.concatenate(numbers), np.concatenate(times)
