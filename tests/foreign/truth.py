"""What is true of a pair, and whether figures say so."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import subprocess

Bounds = tuple[float, float]
"""The least and the largest value that are true."""

NOTHING: Bounds = (0, 0)
ANY_NUMBER: Bounds = (0, float("inf"))

BOUNDED = (
    *("count", "lost", "late", "negative", "outside", "ambiguous", "repeated", "duplicated"),
    *("reverse", "local", "reordered", "resegmented", "corrupt"),
)
"""Counts that are compared one by one."""

SENT = (
    *("count", "lost", "late", "negative", "outside", "ambiguous", "repeated"),
    *("resegmented", "corrupt"),
)
"""What becomes of a packet before the device that travels forward: exactly one of these."""


def exactly(value: int) -> Bounds:
    return value, value


def around(value: float, tolerance: float) -> Bounds:
    return value - tolerance, value + tolerance


@dataclass(frozen=True)
class Truth:
    """What the figures of a pair must say.

    Parameters
    ----------
    keys : frozenset of str
        Keys that may be found.
    packets : int
        Packets of the capture before the device that travel forward, copies included.
    count, lost, outside, ... : Bounds
        The figures of these names.
    latency_ns_p50 : Bounds, optional
        The median latency; above that of the fastest packet where `relative` is true.
    relative : bool or None
        The clocks are apart: latencies are told above the fastest one, or not at all. None where
        either may be told.
    lost_proven, clock_offset_ns, clock_drift_ppm, resolution_ns : Bounds, optional
    warns : str
        A pattern of which some warning tells.
    """

    keys: frozenset[str]
    packets: int
    count: Bounds
    lost: Bounds
    late: Bounds = NOTHING
    negative: Bounds = NOTHING
    outside: Bounds = NOTHING
    ambiguous: Bounds = NOTHING
    repeated: Bounds = NOTHING
    duplicated: Bounds = NOTHING
    reverse: Bounds = NOTHING
    local: Bounds = NOTHING
    reordered: Bounds = NOTHING
    resegmented: Bounds = NOTHING
    corrupt: Bounds = NOTHING
    lost_proven: Bounds | None = None
    latency_ns_p50: Bounds | None = None
    relative: bool | None = False
    clock_offset_ns: Bounds | None = None
    clock_drift_ppm: Bounds | None = None
    resolution_ns: Bounds | None = None
    warns: str = ""

    def __str__(self) -> str:
        told = {"matched": self.count, "lost": self.lost}
        rest = (
            "outside",
            "ambiguous",
            "repeated",
            "duplicated",
            "reverse",
            "local",
            "reordered",
            "resegmented",
            "corrupt",
        )
        told |= {name: value for name in rest if (value := getattr(self, name)) != NOTHING}
        return ", ".join(f"{name} {_spoken(value)}" for name, value in told.items())


@dataclass(frozen=True)
class Refused:
    """Nothing follows from the pair: an error, which says this word.

    Where `or_nothing` is true, figures that claim neither a match nor a loss are as good.
    """

    word: str
    or_nothing: bool = False

    def __str__(self) -> str:
        return f"refused: {self.word}" + (" (or nothing claimed)" if self.or_nothing else "")


def _spoken(bounds: Bounds) -> str:
    low, high = bounds
    if low == high:
        return f"{low:g}"
    return "any" if bounds == ANY_NUMBER else f"{low:g}…{high:g}"


NOTHING_TOLD = 3
"""Exit status of an analysis of packets that are all alike."""


@dataclass(frozen=True)
class Verdict:
    """What was found of a pair, and what is wrong with it."""

    figures: dict[str, Any]
    complaints: list[str]
    refused: bool = False

    def __str__(self) -> str:
        if self.complaints:
            return f"WRONG: {'; '.join(self.complaints)}"
        return "refused as it should be" if self.refused else "ok"


def judge(done: subprocess.CompletedProcess[str], truth: Truth | Refused) -> Verdict:
    """Compare what `tailscope analyze ... --json -` said with the truth."""
    if done.returncode in (0, NOTHING_TOLD):
        figures = json.loads(done.stdout)
        found = complaints(figures, truth)
        if done.returncode == NOTHING_TOLD and (figures["count"] or figures["lost"]):
            found.append("exit status 3, and packets were matched or lost")
        return Verdict(figures, found)
    # A terminal's width breaks the line, with spaces in front of the rest.
    lines = re.sub(r"\n +", " ", done.stderr).splitlines()
    said = next((line for line in lines if line.startswith("error: ")), "")
    if isinstance(truth, Truth):
        return Verdict({}, [f"exit status {done.returncode}: {said or done.stderr.strip()}"])
    return Verdict({}, list(_refusal(done, said, truth)), refused=True)


def _refusal(done: subprocess.CompletedProcess[str], said: str, truth: Refused) -> list[str]:
    found = []
    if done.returncode != 1:
        found.append(f"exit status {done.returncode}, not 1")
    if not re.search(truth.word, said, re.IGNORECASE):
        found.append(f"no {truth.word!r} in {said!r}")
    return found


def complaints(figures: dict[str, Any], truth: Truth | Refused) -> list[str]:
    """What in the figures is not true."""
    if isinstance(truth, Refused):
        claims = figures["count"] or figures["lost"]
        return [] if truth.or_nothing and not claims else ["exit status 0, not 1"]
    found = []
    if str(figures["match_on"]).split(":")[0] not in truth.keys:
        found.append(f"key {figures['match_on']}, not {' or '.join(sorted(truth.keys))}")
    found += [
        text
        for name in BOUNDED
        if (text := _outside_of(name, figures.get(name) or 0, getattr(truth, name)))
    ]
    accounted = sum(figures.get(name) or 0 for name in SENT)
    if accounted != truth.packets:
        found.append(f"{accounted} packets accounted for, not {truth.packets}")
    return found + _times(figures, truth) + _said(figures, truth)


def _outside_of(name: str, value: float, bounds: Bounds) -> str:
    low, high = bounds
    return "" if low <= value <= high else f"{name} {value:g}, not {_spoken(bounds)}"


def _times(figures: dict[str, Any], truth: Truth) -> list[str]:
    found = []
    for name in ("clock_offset_ns", "clock_drift_ppm", "resolution_ns", "lost_proven"):
        bounds, value = getattr(truth, name), figures.get(name)
        if bounds is not None and (value is not None or _outside_of(name, 0, bounds)):
            found.append(f"no {name}" if value is None else _outside_of(name, value, bounds))
    median = figures["latency_ns_p50"]
    if truth.relative is not None and bool(figures.get("latency_relative")) != truth.relative:
        found.append(f"latency_relative {figures.get('latency_relative')}, not {truth.relative}")
    elif truth.latency_ns_p50 and _is_told(figures, truth):
        found.append(_outside_of("latency_ns_p50", median or 0, truth.latency_ns_p50))
    if truth.resolution_ns and figures.get("latency_ns_p50_ci_high") is not None:
        found.append(_interval(figures, truth.resolution_ns[0]))
    return [text for text in found if text]


def _is_told(figures: dict[str, Any], truth: Truth) -> bool:
    """Without a match there is no latency, and with clocks apart there may be none."""
    return bool(figures["count"]) and not (truth.relative and figures["latency_ns_p50"] is None)


def _interval(figures: dict[str, Any], resolution_ns: float) -> str:
    """An interval narrower than the resolution claims more than the stamps can say."""
    width = figures["latency_ns_p50_ci_high"] - figures["latency_ns_p50_ci_low"]
    narrow = width < resolution_ns
    return f"interval of {width} ns at a resolution of {resolution_ns:g} ns" if narrow else ""


def _said(figures: dict[str, Any], truth: Truth) -> list[str]:
    said = " ".join(figures["warnings"])
    heard = re.search(truth.warns, said, re.IGNORECASE)
    return [] if heard else [f"no warning of {truth.warns!r}"]
