"""Comparisons of runs in words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tailscope.compare.compare import Verdict
from tailscope.compare.figures import LOST
from tailscope.units import duration_text, typed_duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tailscope.compare.compare import Comparison, FigureChange
    from tailscope.compare.limits import Judgement

_WORDS = {
    ("ns", "higher"): "slower",
    ("ns", "lower"): "faster",
    ("share", "higher"): "more",
    ("share", "lower"): "fewer",
}
_NOTHING = "-"
_NO_END = "unbounded"
_MANY = 1000
"""Times that something grew: from there on a percentage says nothing to anybody."""


def title(comparison: Comparison) -> str:
    """Say what is compared with what."""
    pair = comparison.pair
    cell = f"{pair.cell}: " if pair.cell else ""
    sizes = len(pair.baseline_runs), len(pair.candidate_runs)
    runs = f" ({sizes[0]} and {sizes[1]} runs)" if max(sizes) > 1 else ""
    return f"{cell}{pair.baseline} → {pair.candidate}{runs}"


def headline(comparison: Comparison) -> str:
    """Say in a sentence what differs: quantiles, and lost packets."""
    pair, findings = comparison.pair, comparison.findings
    differs = []
    for word in ("slower", "faster"):
        names = [each.figure.name for each in findings if word_of(each) == word]
        if names:
            differs.append(f"{word} than {pair.baseline} at {_listed(names)}")
    lost = next(each for each in findings if each.figure == LOST)
    if (word := word_of(lost)) in ("more", "fewer"):
        differs.append(f"loses {word} packets")
    if differs:
        is_word = "" if differs[0].startswith("loses") else "is "
        return f"{pair.candidate} {is_word}{_listed(differs)}."
    quantiles = [
        finding
        for finding in findings
        if finding.figure.quantile is not None and finding.difference
    ]
    if not quantiles:
        return f"{pair.baseline} and {pair.candidate}: no quantile can be compared."
    unclear = [each.figure.name for each in quantiles if each.verdict == Verdict.UNCLEAR]
    losses = ""
    if lost.verdict == Verdict.UNCLEAR:
        losses = f" Whether {pair.candidate} loses more or fewer packets cannot be told."
    if unclear:
        return (
            f"Whether {pair.candidate} differs from {pair.baseline} at {_listed(unclear)} cannot be"
            f" told.{losses}"
        )
    return (
        f"No difference between {pair.baseline} and {pair.candidate} can be seen up to"
        f" {quantiles[-1].figure.name}.{losses}"
    )


def lines(comparison: Comparison, judgements: Sequence[Judgement]) -> Iterator[str]:
    """Everything that was found of a pair, below its title."""
    yield title(comparison)
    width = max(len(finding.figure.name) for finding in comparison.findings)
    window_ns = _window_ns(comparison)
    for finding in comparison.findings:
        sentence = _said(finding, window_ns) + _lost_ones(finding, window_ns)
        yield f"  {finding.figure.name + ':':<{width + 1}} {sentence}"
    if comparison.others:
        yield "  what else differs:"
        width = max(len(other.name) for other in comparison.others)
        for other in comparison.others:
            yield f"    {other.name:<{width}}  {other.baseline} → {other.candidate}"
    for warning in comparison.warnings:
        yield f"  warning   {warning}"
    for judgement in judgements:
        yield f"  {judgement.limit.text}: {judgement.outcome}: {judgement_text(judgement)}"


def _window_ns(comparison: Comparison) -> float:
    return comparison.sides.window_ns


def word_of(finding: FigureChange) -> str:
    """Return the verdict on a difference as people say it."""
    return _WORDS.get((finding.figure.unit, finding.verdict), str(finding.verdict))


def _listed(names: Sequence[str]) -> str:
    """Join names to a list in a sentence."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _said(finding: FigureChange, window_ns: float) -> str:
    """Return a comparison in a sentence; a packet that never came counts as the window."""
    unit, difference = finding.figure.unit, finding.difference

    def side(value: float) -> str:
        return "never came" if unit == "ns" and value >= window_ns else _text(value, unit)

    if difference is None:
        bound = "≥ " if finding.figure.quantile is not None else ""
        texts = (
            # Student's interval of few runs may end below what a latency can be.
            side(max(each.low, 0) if bound and math.isfinite(each.low) else each.value)
            for each in (finding.baseline, finding.candidate)
        )
        return f"{' → '.join(bound + text for text in texts)}: no estimate ({finding.lacks})"
    values = f"{side(finding.baseline.value)} → {side(finding.candidate.value)}"
    relative = finding.relative
    share = "" if relative is None or relative > _MANY else f" ({relative:+.1%})"
    sentence = (
        f"{values}, {_signed(difference.value, unit)}{share},"
        f" 95 % interval {_signed(difference.low, unit)} to {_signed(difference.high, unit)}"
    )
    if finding.verdict == "no difference":
        sentence += ": no difference can be seen"
        noticeable = finding.noticeable
        if noticeable and math.isfinite(noticeable):
            sentence += f"; one below {_text(noticeable, unit)} would not be noticed"
        return sentence
    return f"{sentence}: {word_of(finding)}" + (
        "" if finding.lacks is None else f": {finding.lacks}"
    )


def _lost_ones(finding: FigureChange, window_ns: float) -> str:
    """Say how packets that never came count, where that changes a figure."""
    if finding.figure.quantile is None or not math.isfinite(window_ns):
        return ""
    shown = [_text(each.value, "ns") for each in (finding.baseline, finding.candidate)]
    came = [_text(each, "ns") for each in finding.of_those_that_came]
    if shown == came:
        return ""
    return (
        f"; packets that never came count as {typed_duration(round(window_ns))} each, those that"
        f" came have {' → '.join(came)}"
    )


def judgement_text(judgement: Judgement) -> str:
    """Say in a sentence how far a figure is beyond its limit, and what speaks against that."""
    parts = list(judgement.reasons)
    excess, unit = judgement.excess, judgement.limit.figure.unit
    if excess is not None:
        side = "beyond" if excess.value > 0 else "below"
        parts.insert(
            0,
            f"{_text(abs(excess.value), unit)} {side} the limit"
            f" ({_signed(excess.low, unit)} to {_signed(excess.high, unit)})",
        )
    return "; ".join(parts)


def _signed(value: float, unit: str) -> str:
    """Return a difference, or an end of its interval, with its sign; there may be none."""
    if math.isinf(value):
        return _NO_END
    return f"+{_text(value, unit)}" if value > 0 else _text(value, unit)


def _text(value: float, unit: str) -> str:
    if not math.isfinite(value):
        return _NOTHING
    if unit == "ns":
        return duration_text(value)
    return f"{value:.4%}" if unit == "share" else f"{value:,.2f} packets/s"
