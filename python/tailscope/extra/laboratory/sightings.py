"""Times at which machines saw packets, by the numbers in their payloads."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.engine.analysis import read_keys

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

MOST_SIGHTINGS = 4096
"""Largest number of packets for a mapping of clocks: more would hardly improve it."""


class Sightings(NamedTuple):
    """Times at which a machine saw packets, on its own clock.

    A device sees a packet once. A generator sees it leave and return.
    """

    seq: Integers
    """Numbers of packets."""
    first_ns: Integers
    """Time of the first sighting, in nanoseconds."""
    last_ns: Integers
    """Time of the last sighting, in nanoseconds."""

    @classmethod
    def none(cls) -> Sightings:
        """Return no sightings."""
        nothing = np.zeros(0, np.int64)
        return cls(nothing, nothing, nothing)

    def some(self, since_ns: int = 0) -> Sightings:
        """Return an even selection of the sightings since a time, at most `MOST_SIGHTINGS`."""
        selected = np.flatnonzero(self.first_ns >= since_ns)
        if len(selected) > MOST_SIGHTINGS:
            selected = selected[np.linspace(0, len(selected) - 1, MOST_SIGHTINGS).astype(np.int64)]
        return Sightings(*(column[selected] for column in self))

    def of(self, seq: Integers) -> Sightings:
        """Return the sightings of some packets, sorted by number and without duplicates."""
        numbers, first = np.unique(self.seq, return_index=True)
        which = first[np.isin(numbers, seq)]
        return Sightings(*(column[which] for column in self))


def probe_times(capture: Path, wanted: Integers | None = None) -> tuple[Integers, Integers]:
    """Return the numbers of the probes in a capture, and their capture times."""
    numbers, times = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for keys in read_keys(capture, "probe"):
        seq = keys.key_bytes.view(">u8").astype(np.int64)
        when = np.asarray(keys.ts_ns)[keys.keyed].astype(np.int64)
        is_wanted = np.ones(len(seq), bool) if wanted is None else np.isin(seq, wanted)
        numbers.append(seq[is_wanted])
        times.append(when[is_wanted])
    return np.concatenate(numbers), np.concatenate(times)
