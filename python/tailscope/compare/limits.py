"""Regressions that are too large: what may be added to a figure, and whether it was."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tailscope.compare.figures import LOST, quantile_figure
from tailscope.exceptions import UsageError
from tailscope.models.estimate import LEVEL
from tailscope.units import count_text, positive_duration_ns
from tailscope.verdict.verdict import Outcome, worst

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tailscope.compare.compare import Comparison, Sides
    from tailscope.compare.figures import Figure
    from tailscope.models.differences import Bounds
    from tailscope.verdict.evidence import Doubt

_OPTION = "--fail-on"
_EXAMPLE = "such as 'p99.99>+10%', 'p99.9>+5us' or 'lost>+0.1%'"
_LIMIT = re.compile(r"([^\s>]+)\s*>\s*\+\s*([^\s>]+)")
_QUANTILE = re.compile(r"p(\d{1,2}(?:\.\d+)?)", re.ASCII)
_SINGLE = (
    "one run a side does not tell how runs of the same set-up vary: repeat them on both sides,"
    " or judge these two alone by --single"
)
_PERCENT = re.compile(r"(\d+(?:\.\d*)?)%", re.ASCII)


@dataclass(frozen=True)
class Limit:
    """The amount by which a figure may grow."""

    text: str = field(compare=False)
    """The limit as it was written: two that differ in that alone are one."""
    figure: Figure
    share: float = 0.0
    """Allowed growth as a share of the baseline."""
    added: float = 0.0
    """Allowed growth in the figure's unit."""


@dataclass(frozen=True)
class Judgement:
    """A judgement of a regression by its limit."""

    limit: Limit
    outcome: Outcome
    """Pass: it is shown not to be; fail: it is shown to be."""
    excess: Bounds | None
    """Distance of the candidate beyond the limit; None if there is no estimate."""
    packets: int | None
    """Number of packets in each run that would decide it; None if it is decided, if more runs would
    do it, if no number would, or if that cannot be told.
    """
    runs: int | None
    """Number of runs on each side that would decide it."""
    reasons: tuple[str, ...]

    def record(self) -> dict[str, object]:
        """Return the judgement as JSON has it."""
        ends = (None,) * 3 if self.excess is None else self.excess
        names = ("excess", "excess_ci_low", "excess_ci_high")
        return {
            "limit": self.limit.text,
            "figure": self.limit.figure.name,
            "unit": self.limit.figure.unit,
            "verdict": str(self.outcome),
            **{
                name: None if end is None or not math.isfinite(end) else end
                for name, end in zip(names, ends, strict=True)
            },
            "packets": self.packets,
            "runs": self.runs,
            "reasons": list(self.reasons),
        }


def parse_limits(texts: Iterable[str]) -> tuple[Limit, ...]:
    """Read limits, several of them separated by commas."""
    parts = (part for text in texts for part in text.split(","))
    return tuple(dict.fromkeys(map(parse_limit, parts)))


def parse_limit(text: str) -> Limit:
    """Read a limit, such as ``p99.9>+10%``, ``p99>+5us`` or ``lost>+0.1%``."""
    match = _LIMIT.fullmatch(text.strip())
    if match is None:
        raise UsageError(
            f"{_OPTION}: got {text!r}, expected NAME>+LIMIT", code="limit-term", hint=_EXAMPLE
        )
    name, value = match.groups()
    text = f"{name}>+{value}"
    if name == "max":
        raise UsageError(
            f"{_OPTION}: got {text!r}: the maximum is one packet, and no estimate of anything",
            code="limit-maximum",
            hint="limit a quantile that the runs support, or a packet's worst case with"
            " `tailscope verify --slo 'max<...'`",
        )
    percent = _PERCENT.fullmatch(value)
    share = float(percent.group(1)) / 100 if percent else None
    if name == LOST.name:
        if share is None or share >= 1:
            raise UsageError(
                f"{_OPTION}: {text}: got {value!r}, expected percent of the packets, such as 0.1%",
                code="limit-value",
            )
        return Limit(text, LOST, added=share)
    quantile = _QUANTILE.fullmatch(name)
    if quantile is None or not float(quantile.group(1)):
        raise UsageError(
            f"{_OPTION}: got {name!r} in {text!r}, expected pQ or lost",
            code="limit-figure",
            hint=_EXAMPLE,
        )
    figure = quantile_figure(round(float(quantile.group(1)) / 100, 12))
    if share is not None:
        return Limit(text, figure, share=share)
    return Limit(text, figure, added=positive_duration_ns(value, f"{_OPTION}: {text}"))


def limit_error(limits: int, pairs: int) -> float:
    """Return the error rate of each bound that lets all judgements hold together (Bonferroni)."""
    return (1 - LEVEL) / max(1, limits * pairs)


def judge(limit: Limit, comparison: Comparison, error: float, *, single: bool) -> Judgement:
    """Judge a regression; one run a side decides only if `single` ones are to."""
    sides, figure = comparison.sides, limit.figure
    if (lacks := sides.lacks(figure)) is not None:
        packets, takes = _to_support(sides, figure)
        return Judgement(limit, Outcome.INCONCLUSIVE, None, packets, None, (lacks, *takes))
    excesses = [
        type(difference)(*(end - limit.added for end in difference))
        for difference in sides.differences(figure, error, 1 + limit.share)
    ]
    outcomes = {_outcome(each) for each in excesses}
    packets, runs, reasons = None, None, list[str]()
    if len(outcomes) > 1:
        outcome = Outcome.INCONCLUSIVE
        reasons.append(
            "it depends on the instrument:"
            f" {' or '.join(dict.fromkeys(map(str, map(_outcome, excesses))))} within its bounds"
        )
    else:
        [outcome] = outcomes
    if any(_outcome(each) is Outcome.INCONCLUSIVE for each in excesses):
        packets, runs, text = _to_settle(excesses, sides, limit)
        reasons.append(text)
    doubts = [
        f"{sample.name}: {doubt.reason}"
        for sample in sides.samples
        for doubt in (*sample.doubts, *(sample.time_doubts if figure.is_time else ()))
        if _is_against(doubt, outcome)
    ]
    if not single and len(sides.baseline) == len(sides.candidate) == 1:
        doubts.append(_SINGLE)
    if outcome is Outcome.PASS and sides.never_came(figure)[1]:
        doubts.append(f"{figure.name} of {comparison.pair.candidate} is a packet that never came")
    if doubts:
        outcome = Outcome.INCONCLUSIVE
    return Judgement(limit, outcome, excesses[0], packets, runs, (*doubts, *reasons))


def _outcome(excess: Bounds) -> Outcome:
    if excess.low > 0:
        return Outcome.FAIL
    return Outcome.PASS if excess.high <= 0 else Outcome.INCONCLUSIVE


def _is_against(doubt: Doubt, outcome: Outcome) -> bool:
    return (outcome is Outcome.PASS and doubt.of_pass) or (
        outcome is Outcome.FAIL and doubt.of_fail
    )


def _to_support(sides: Sides, figure: Figure) -> tuple[int | None, tuple[str, ...]]:
    """Return the number of packets that makes a figure an estimate in every run."""
    readings = [
        reading[figure.name]
        for sample in sides.samples
        for reading in filter(None, (sample.as_is, sample.least))
    ]
    wanted = [each.packets_to_support for each in readings if each.packets_to_support is not None]
    if not wanted:
        return None, ()
    return max(wanted), (f"about {count_text(max(wanted))} packets are needed in each run",)


def _to_settle(
    excesses: Sequence[Bounds], sides: Sides, limit: Limit
) -> tuple[int | None, int | None, str]:
    """Return the number of packets, or of runs, that decides if the difference stays what it is.

    The ends come closer with the root of their number, but not what timestamps and clocks are off.
    """
    off = sides.off(limit.figure, 1 + limit.share)
    if len({each.value > 0 for each in excesses}) > 1:
        return None, None, "more packets would not settle it"
    factors = []
    for each in excesses:
        reach = each.value - each.low if each.value > 0 else each.high - each.value
        if abs(each.value) <= off or not each.value:
            return None, None, "the difference is too close to the limit: nothing decides"
        if math.isinf(reach):
            return None, None, "there are too few independent packets for that end of the interval"
        factors.append(((reach - off) / (abs(each.value) - off)) ** 2)
    factor = max(factors)
    most = max(len(sides.baseline), len(sides.candidate))
    if most > 1:
        runs = math.ceil(most * factor)
        return None, runs, f"about {count_text(runs)} runs of each would settle it"
    baseline, candidate = sides.measured(limit.figure)
    packets = math.ceil(factor * max(each.packets for each in (*baseline, *candidate)))
    return packets, None, f"about {count_text(packets)} packets in each run would settle it"


def all_together(judgements: Sequence[Judgement], is_complete: bool) -> Outcome:
    """Return the worst outcome of all; nothing passes if a run is missing."""
    outcomes = [judgement.outcome for judgement in judgements]
    return worst(outcomes if is_complete else [*outcomes, Outcome.INCONCLUSIVE])
