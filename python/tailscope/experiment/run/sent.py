"""Traffic as a generator was asked to send it, and as it sent it: gaps, bursts, sizes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tailscope.experiment.packets import mean_size_bytes
from tailscope.plan.fields import CAPTURED
from tailscope.store.records.run import SentTraffic

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from tailscope.experiment.packets import Traffic
    from tailscope.store.records.messages import GeneratedTraffic

    Integers = NDArray[np.int64]

_NS_PER_S = 1e9
_AT_ONCE = 1 << 20
"""Packets that are looked at together, of which there may be many."""


@dataclass
class _Bursts:
    """Sums over the bursts of a recording, in ticks."""

    gaps: int = 0
    """Pairs of successive packets of one burst."""
    total: int = 0
    shortest: int | None = None
    longest: int | None = None
    first: int = 0
    first_tick: int | None = None
    last: int = 0
    """The numbers of those bursts."""
    last_tick: int | None = None
    """Departures of the first packet that began a burst, and of the last one that did."""
    _before: tuple[int, int] | None = field(default=None, repr=False)

    def add(self, slot: Integers, departed: Integers, size: int) -> None:
        """Take the next packets: their places in the schedule, and when they left."""
        import numpy as np

        if self._before is not None:
            slot = np.concatenate([[self._before[0]], slot])
            departed = np.concatenate([[self._before[1]], departed])
        burst = slot // size
        is_within = (np.diff(burst) == 0) & (np.diff(slot) == 1)
        gaps = np.diff(departed)[is_within]
        if len(gaps):
            self.gaps += len(gaps)
            self.total += int(gaps.sum())
            low, high = int(gaps.min()), int(gaps.max())
            self.shortest = low if self.shortest is None else min(self.shortest, low)
            self.longest = high if self.longest is None else max(self.longest, high)
        begins = np.flatnonzero(slot % size == 0)
        if len(begins):
            if self.first_tick is None:
                self.first, self.first_tick = int(burst[begins[0]]), int(departed[begins[0]])
            self.last, self.last_tick = int(burst[begins[-1]]), int(departed[begins[-1]])
        self._before = int(slot[-1]), int(departed[-1])


def sent_traffic(
    traffic: Traffic, generated: GeneratedTraffic, folder: Path, tsc_hz: int
) -> SentTraffic:
    """Compare what a generator was asked to send with what left."""
    is_replay = traffic.replay is not None
    gap_ns: float | None = _NS_PER_S / traffic.rate_pps
    if traffic.pattern == CAPTURED:
        gap_ns = _captured_gap_ns(folder, tsc_hz)
    sent_bytes = generated.sent_bytes
    # A packet that was not recorded hides the place of later ones in their bursts.
    in_bursts = traffic.burst > 1 and not generated.unrecorded_sent
    return SentTraffic(
        asked_gap_ns_mean=gap_ns,
        asked_frame_bytes_mean=None if is_replay else mean_size_bytes(traffic),
        frame_bytes_mean=None if sent_bytes is None else sent_bytes / generated.sent,
        **(_of_bursts(traffic, folder, tsc_hz) if in_bursts else {}),
    )


def _captured_gap_ns(folder: Path, tsc_hz: int) -> float | None:
    """The mean gap of a capture that was sent at its own times."""
    from tailscope.engine.analysis import load_ticks

    intended = load_ticks(folder, "intended_tsc")
    if len(intended) < 2:
        return None
    return int(intended[-1] - intended[0]) / tsc_hz * _NS_PER_S / (len(intended) - 1)


def _of_bursts(traffic: Traffic, folder: Path, tsc_hz: int) -> dict[str, Any]:
    found = _read_bursts(folder, traffic.burst)

    def ns(ticks: float) -> float:
        return ticks / tsc_hz * _NS_PER_S

    figures: dict[str, Any] = {
        "asked_burst_gap_ns": traffic.burst_gap_ns,
        "asked_burst_period_ns_mean": traffic.burst * _NS_PER_S / traffic.rate_pps,
    }
    if found.gaps:
        assert found.shortest is not None and found.longest is not None
        figures |= {
            "burst_gap_ns_min": round(ns(found.shortest)),
            "burst_gap_ns_mean": ns(found.total / found.gaps),
            "burst_gap_ns_max": round(ns(found.longest)),
        }
    if found.first_tick is not None and found.last > found.first:
        assert found.last_tick is not None
        lasted = found.last_tick - found.first_tick
        figures["burst_period_ns_mean"] = ns(lasted / (found.last - found.first))
    return figures


def _read_bursts(folder: Path, size: int) -> _Bursts:
    import numpy as np

    from tailscope.engine.analysis import load_ticks

    names = ("intended_tsc", "departure_tsc", "unsent_tsc")
    intended, departed, unsent = (load_ticks(folder, name) for name in names)
    found = _Bursts()
    for first in range(0, len(intended), _AT_ONCE):
        some = slice(first, first + _AT_ONCE)
        # The ones that were not sent are the first that were due at their time.
        skipped = np.searchsorted(unsent, intended[some], side="right")
        slot = np.arange(first, first + len(skipped)) + skipped
        found.add(slot, np.asarray(departed[some], np.int64), size)
    return found
