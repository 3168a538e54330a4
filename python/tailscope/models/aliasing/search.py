"""The clocks that interrupt, one after the other, and which packets they delay."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.models.aliasing.comb import LEAST_EVENTS, Comb, lock
from tailscope.models.aliasing.spectrum import peaks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tailscope.models.aliasing.comb import Floats
    from tailscope.models.aliasing.simulation import Times
    from tailscope.models.aliasing.spectrum import Peak

    Marks = NDArray[np.bool_]

__all__ = ["FALSE_ALARMS", "Delayed", "FoundComb", "is_on", "strongest"]

FALSE_ALARMS = 1e-3
"""Bound of the probability that a clock is found where packets are delayed at random."""

_LARGEST_SHARE = 0.2
_ENOUGH_ROWS = 5000
_CLEARLY = 1.1


class FoundComb(NamedTuple):
    """A clock that interrupts.

    Attributes
    ----------
    comb : Comb
    threshold_ns : int
        Packets that waited longer are more often on the comb than not.
    power : float
        How much it stands out.
    """

    comb: Comb
    threshold_ns: int
    power: float


class Delayed:
    """Packets that waited longer than a threshold, in rows: one interruption may delay several.

    Parameters
    ----------
    arrival_ns, wait_ns : ndarray of int64, shape (n,)
    threshold_ns : int

    Attributes
    ----------
    packets : ndarray of bool, shape (n,)
        Which they are.
    heads : ndarray of int, shape (n_rows,)
        Places of the first of each row: it came when the interruption was under way, and left
        when it ended, while the others had to queue.
    sizes : ndarray of int, shape (n_rows,)
        Packets in each row.
    leave_ns, wait_ns : ndarray of float64, shape (n_rows,)
        When the head of each row was let go, and how long it had waited.
    """

    def __init__(self, arrival_ns: Times, wait_ns: Times, threshold_ns: int) -> None:
        self.packets = wait_ns > threshold_ns
        first = self.packets & ~np.concatenate([[False], self.packets[:-1]])
        self.heads = np.flatnonzero(first)
        self.leave_ns: Floats = (arrival_ns + wait_ns)[self.heads].astype(np.float64)
        self.wait_ns: Floats = wait_ns[self.heads].astype(np.float64)
        self._row = np.cumsum(first)[self.packets] - 1
        self.sizes = np.bincount(self._row, minlength=len(self.heads))

    def in_rows(self, rows: Marks) -> Marks:
        """Mark the packets of some rows.

        Parameters
        ----------
        rows : ndarray of bool, shape (n_rows,)
        """
        found = self.packets.copy()
        found[self.packets] = rows[self._row]
        return found


def strongest(arrival_ns: Times, wait_ns: Times) -> FoundComb | str:
    """Find the clock that stands out most, or say why there is none.

    Parameters
    ----------
    arrival_ns : ndarray of int64, shape (n,)
        Ascending, from 0 on.
    wait_ns : ndarray of int64, shape (n,)
        How much longer than usual each packet took.
    """
    found = _strongest(arrival_ns, wait_ns)
    return found if isinstance(found, str) else _sharpened(found, arrival_ns, wait_ns)


def _strongest(arrival_ns: Times, wait_ns: Times) -> FoundComb | str:
    """Find the clock that stands out most, at the threshold where it does; or say why none."""
    best: FoundComb | None = None
    enough = 0.0
    loudest: Peak | None = None
    thresholds = _thresholds(wait_ns)
    for threshold_ns in thresholds:
        delayed = Delayed(arrival_ns, wait_ns, threshold_ns)
        rows = len(delayed.heads)
        # A power cannot be larger than the number of rows.
        if rows < max(LEAST_EVENTS, enough):
            continue
        others_ns = arrival_ns[~delayed.packets].astype(np.float64)
        some = slice(None, None, max(1, rows // _ENOUGH_ROWS))
        leave_ns, waited_ns = delayed.leave_ns[some], delayed.wait_ns[some]
        candidates = []
        for peak in peaks(arrival_ns, delayed.heads):
            if loudest is None or peak.power > loudest.power:
                loudest = peak
            if peak.chance * len(thresholds) > FALSE_ALARMS:
                break
            comb = lock(peak.rate_hz, leave_ns, waited_ns, others_ns)
            if comb is not None:
                caught = np.count_nonzero(is_on(comb, leave_ns))
                # Packets of a comb lie on faster ones too; the slowest says most.
                candidates.append((caught, -comb.chance, FoundComb(comb, threshold_ns, peak.power)))
        if candidates:
            found = max(candidates, key=lambda candidate: candidate[:2])[2]
            if found.power > enough:
                best, enough = found, _CLEARLY * found.power
    return best or _refusal(loudest, len(thresholds))


def _thresholds(wait_ns: Times) -> list[int]:
    """Waits that leave a fifth of all packets, a tenth, and so on: the right one is not known."""
    in_order = np.sort(wait_ns)
    beyond = int(_LARGEST_SHARE * len(in_order))
    found: list[int] = []
    while beyond >= LEAST_EVENTS:
        found.append(max(0, int(in_order[-beyond - 1])))
        beyond //= 2
    return list(dict.fromkeys(found))


def _refusal(loudest: Peak | None, tried: int) -> str:
    if loudest is None:
        return f"fewer than {LEAST_EVENTS} interruptions stand out from packets without delay"
    chance = min(1.0, loudest.chance * tried)
    if chance > FALSE_ALARMS:
        return (
            "delayed packets follow no rate: the most prominent one,"
            f" {loudest.rate_hz:.2f} Hz, could occur by chance with a probability of {chance:.2g}"
        )
    return (
        f"delayed packets recur at {loudest.rate_hz:.2f} Hz, but do not leave together, as they"
        " would at the end of an interruption"
    )


def is_on(comb: Comb, leave_ns: Times | Floats) -> Marks:
    """Whether departures are near the end of a tooth.

    Parameters
    ----------
    comb : Comb
    leave_ns : ndarray, shape (n,)
    """
    return comb.caught(leave_ns.astype(np.float64))[1] >= 0


def _sharpened(found: FoundComb, arrival_ns: Times, wait_ns: Times) -> FoundComb:
    """Move the threshold to where packets are more often on the comb than not, and fit again."""
    delayed = Delayed(arrival_ns, wait_ns, found.threshold_ns)
    votes = np.where(is_on(found.comb, arrival_ns + wait_ns), 1, -1)
    followers = delayed.packets.copy()
    followers[delayed.heads] = False
    votes[followers] = 0
    order = np.argsort(-wait_ns, kind="stable")
    for_it, in_order = np.cumsum(votes[order]), wait_ns[order]
    # A cut lies between two different waits; of equally good ones the lowest.
    cuts = np.flatnonzero(in_order[:-1] > np.maximum(in_order[1:], 0))[::-1]
    threshold_ns = max(0, int(in_order[cuts[np.argmax(for_it[cuts])] + 1]))
    delayed = Delayed(arrival_ns, wait_ns, threshold_ns)
    others_ns = arrival_ns[~delayed.packets].astype(np.float64)
    comb = lock(found.comb.rate_hz, delayed.leave_ns, delayed.wait_ns, others_ns)
    return found if comb is None else FoundComb(comb, threshold_ns, found.power)
