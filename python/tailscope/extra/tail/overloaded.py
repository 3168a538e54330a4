"""The rate that a function carries while it is overloaded: a direct measurement of R_max."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.models.estimate import LEVEL, Estimate
from tailscope.models.special import stdtrit
from tailscope.store import layout
from tailscope.store.reader import open_packets
from tailscope.units import duration_text

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from tailscope.store.run import Run

    Integers = NDArray[np.int64]
    Floats = NDArray[np.float64]

_MOSTLY = 0.5
"""Share of the run's time in which no packet finds an overloaded function idle."""
_FASTER = 0.005
"""Packets come faster than they leave by at least this share: they are lost, or latency grows."""
_FULLER = 0.75
"""Probability with which a function that is full holds more at a loss than when it takes a packet;
a line that loses some by chance holds more in half of all cases."""
_SLICES = 20
_FEWEST_PACKETS = 1_000


class Carried(NamedTuple):
    """A rate that an overloaded function carries, and what shows it."""

    rate_pps: Estimate
    said: str


def overloaded(path: Path, run: Run, transfer: Estimate) -> Carried | None:
    """Return the rate at which packets leave an overloaded function; None of one that is not.

    Its queue never empties, and latency grows, or packets are lost that find it full. Of a device
    that holds packets side by side none finds it idle either, but neither holds.
    """
    if layout.LATENCY not in run.info.files:
        return None
    with open_packets(path, run.info) as packets:
        seq, sent_ns, latency_ns = (
            column.astype(np.int64) for column in packets.columns("seq", "pre_ns", "latency_ns")
        )
    left_ns = np.maximum.accumulate(sent_ns + latency_ns)
    busy = _busy(sent_ns, left_ns, transfer.ci_high)
    if busy is None:
        return None
    seq, sent_ns, left_ns, latency_ns = (each[busy] for each in (seq, sent_ns, left_ns, latency_ns))
    lasted_ns = int(left_ns[-1] - left_ns[0])
    least, *_, most = (float(np.median(part)) for part in np.array_split(latency_ns, _SLICES))
    lost = 1 - len(seq) / int(seq[-1] - seq[0] + 1)
    if lost >= _FASTER and _fuller(seq, sent_ns, left_ns - round(transfer.estimate)) >= _FULLER:
        how = f"{lost:.1%} of the packets found it full"
    elif most - least >= _FASTER * lasted_ns:
        how = f"latency grew from {duration_text(least)} to {duration_text(most)}"
    else:
        return None
    said = (
        f"{run.label} is overloaded: its queue did not empty for {lasted_ns / 1e9:.3g} s, in which"
        f" {how}; R_max is the rate at which packets left it, and its median says nothing of an"
        " idle function"
    )
    return Carried(_rate(left_ns), said)


def _fuller(seq: Integers, sent_ns: Integers, left_ns: Integers) -> float:
    """Return how probably a device holds more at a loss than when it takes a packet.

    When a lost packet was sent is taken from the one before it, and the usual time between packets.
    """
    lost = np.setdiff1d(np.arange(seq[0], seq[-1]), seq)
    before = np.searchsorted(seq, lost) - 1
    usual_ns = np.median(np.diff(sent_ns) / np.diff(seq))
    lost_ns = sent_ns[before] + usual_ns * (lost - seq[before])

    def held(at_ns: Integers | Floats) -> Integers:
        return np.searchsorted(sent_ns, at_ns) - np.searchsorted(left_ns, at_ns, "right")

    taking, losing = np.sort(held(sent_ns)), held(np.minimum(lost_ns, sent_ns[before + 1]))
    below, not_above = (np.searchsorted(taking, losing, side) for side in ("left", "right"))
    return float(np.mean(below + not_above) / 2 / len(taking))


def _busy(sent_ns: Integers, left_ns: Integers, transfer_ns: float) -> slice | None:
    """Find the longest time in which no packet finds the function idle, if most of the run is."""
    if len(sent_ns) < _FEWEST_PACKETS:
        return None
    is_idle = sent_ns[1:] + math.ceil(transfer_ns) > left_ns[:-1]
    edges = np.concatenate([[0], np.flatnonzero(is_idle) + 1, [len(sent_ns)]])
    longest = int(np.argmax(np.diff(edges)))
    first, end = int(edges[longest]), int(edges[longest + 1])
    lasted_ns = sent_ns[end - 1] - sent_ns[first]
    is_most = lasted_ns >= _MOSTLY * (sent_ns[-1] - sent_ns[0])
    return slice(first, end) if is_most and end - first >= _FEWEST_PACKETS else None


def _rate(left_ns: Integers) -> Estimate:
    """Return the departures in a second, with Student's interval over slices of time."""
    edges_ns = np.linspace(left_ns[0], left_ns[-1], _SLICES + 1)
    counts = np.diff(np.searchsorted(left_ns, edges_ns, "right"))
    rates_pps = counts * 1e9 / (edges_ns[1] - edges_ns[0])
    reach_pps = stdtrit(_SLICES - 1, (1 + LEVEL) / 2) * float(rates_pps.std(ddof=1))
    reach_pps /= math.sqrt(_SLICES)
    mean_pps = float(rates_pps.mean())
    return Estimate(
        estimate=mean_pps,
        ci_low=mean_pps - reach_pps,
        ci_high=mean_pps + reach_pps,
        n=len(left_ns),
        method="departures while overloaded: Student's t, of slices of time",
    )
