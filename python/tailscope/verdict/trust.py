"""Trust in the instrument of a run, in one grade: how far its own figures can be believed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from tailscope.store.floor import FLOOR_GRID
from tailscope.store.info import neighbours_of
from tailscope.units import QUANTILES, count_text, counted, percentile_name
from tailscope.words.figures import unknown_floor
from tailscope.words.neighbours import held_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tailscope.engine.analysis import Figure
    from tailscope.store.records.run import Instrument, RunInfo
    from tailscope.store.run import Run

BELIEVED = 0.9999
"""Quantile up to which an instrument must be believed for the best grade."""

_SHOWS = 1.1
"""Factor by which stalls of the instrument change a quantile that is no longer believed."""


class Grade(StrEnum):
    """A grade of trust, with the colour of its badge."""

    GREEN = "green"
    AMBER = "amber"
    RED = "red"
    UNKNOWN = "unknown"


_GRAVITY = (Grade.GREEN, Grade.UNKNOWN, Grade.AMBER, Grade.RED)


@dataclass(frozen=True)
class Trust:
    """The trust in an instrument."""

    grade: Grade
    label: str
    """The grade in a few words."""
    reason: str = ""
    """Reasons, as a clause; empty for the best grade."""

    @property
    def text(self) -> str:
        """Return all of it in a line; empty where nothing is known."""
        if self.grade is Grade.UNKNOWN:
            return ""
        return f"{self.grade}, {self.label}" + (f": {self.reason}" if self.reason else "")


def trust_of(summary: Mapping[str, Figure], info: RunInfo) -> Trust:
    """Grade the instrument of a run.

    Green needs a known floor and unnoticeable stalls up to p99.99, no packet that the instrument
    lost or could not send, and a look at other programs that found none in the way. Red is a busy
    machine: other programs spoil figures of the device, or not even the median can be believed.
    """
    instrument = info.instrument
    if instrument is None:
        return Trust(Grade.UNKNOWN, "unknown", "captures and imports say nothing of it")
    if "tainted" not in summary:
        return Trust(Grade.UNKNOWN, "unknown", "nothing measures it in a laboratory")
    if not summary["count"]:
        return Trust(Grade.UNKNOWN, "unknown", "no packet was matched")
    neighbours = neighbours_of(info)
    if neighbours is not None and neighbours.unusable:
        return Trust(Grade.RED, "machine busy", held_text(info))
    stalled = stalls_from(summary)
    if stalled == FLOOR_GRID[0]:
        return Trust(Grade.RED, "machine busy", "its own stalls show in the median")
    unstalled = FLOOR_GRID[-1] if stalled is None else FLOOR_GRID[FLOOR_GRID.index(stalled) - 1]
    if info.floor is None:
        believed, label = None, "not calibrated"
    elif info.floor.believed_up_to is None:
        return Trust(Grade.RED, "not believed", "its floor varies too much even at the median")
    else:
        believed = min(unstalled, info.floor.believed_up_to)
        label = f"believed to {percentile_name(believed)}"
    reasons = [*_doubts(info, instrument, unstalled)]
    is_good = not reasons and believed is not None and believed >= BELIEVED
    return Trust(Grade.GREEN if is_good else Grade.AMBER, label, "; ".join(reasons))


def trust_in(runs: Sequence[Run]) -> Trust | None:
    """Return the least trust that any run deserves, and how many deserve it; None without runs."""
    trusts = [trust_of(run.summary, run.info) for run in runs]
    if not trusts:
        return None
    least = max(trusts, key=lambda trust: _GRAVITY.index(trust.grade))
    alike = sum(trust.grade == least.grade for trust in trusts)
    if alike == len(trusts) == 1 or least.grade is Grade.GREEN:
        return least
    total = count_text(len(trusts))
    all_of_them = "both" if len(trusts) == 2 else f"all {total}"
    share = all_of_them if alike == len(trusts) else f"{count_text(alike)} of {total}"
    reason = f"for example, {least.reason}" if alike > 1 else least.reason
    return Trust(least.grade, f"{least.label} in {share} runs", reason)


def stalls_from(summary: Mapping[str, Figure]) -> float | None:
    """Return the first quantile that stalls of the instrument change noticeably, or None."""
    names = zip(FLOOR_GRID, QUANTILES, strict=True)
    return next((q for q, name in names if stalls_show(summary, f"latency_ns_{name}")), None)


def stalls_show(summary: Mapping[str, Figure], figure: str) -> bool:
    """Return whether stalls of the instrument change a latency noticeably."""
    latency_ns, least_ns = summary.get(figure), summary.get(f"least_{figure}")
    if latency_ns is None or least_ns is None:
        return False
    return float(latency_ns) > _SHOWS * float(least_ns)


def _doubts(info: RunInfo, instrument: Instrument, unstalled: float) -> Iterator[str]:
    """Say what keeps an instrument from the best grade."""
    if info.floor is None:
        yield f"its floor is {unknown_floor(info)}"
    elif (believed := info.floor.believed_up_to or 0.0) < BELIEVED:
        yield f"its floor is steady up to {percentile_name(believed)} only"
    if unstalled < BELIEVED:
        yield f"its own stalls show beyond {percentile_name(unstalled)}"
    spoilt = {
        "lost by it": instrument.lost_in_instrument,
        "that it could not send": instrument.unsent,
    }
    for what, count in spoilt.items():
        if count:
            yield f"{counted(count, 'packet')} {what}"
    neighbours = neighbours_of(info)
    if neighbours is None or neighbours.known_from is None:
        yield "nobody watched for other programs on the device's CPU"
