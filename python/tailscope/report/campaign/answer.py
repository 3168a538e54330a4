"""The answer of a campaign: which combination is best, and whether it is good enough."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailscope.report.campaign.matrix import FIGURE_OF, outcome_of, quantile_of_all
from tailscope.units import count_text, duration_text, percentile_name
from tailscope.verdict.verdict import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope.report.campaign.material import CampaignMaterial, Combination


def answers(material: CampaignMaterial) -> list[str]:
    """Say which combinations have the lowest and the highest tail, and how many meet the level."""
    there = [each for each in material.combinations if each.runs]
    return [*_best(there, quantile_of_all(material)), *_judged(material, there)]


@dataclass(frozen=True)
class _Ranked:
    """A combination, the median of its runs, and how far their intervals reach."""

    name: str
    value_ns: float
    low_ns: float
    high_ns: float


def _best(there: Sequence[Combination], q: float | None) -> list[str]:
    if q is None or len(there) < 2:
        return []
    lowest, *others = sorted((_ranked(each, q) for each in there), key=lambda each: each.value_ns)
    near = sum(each.low_ns <= lowest.high_ns for each in others)
    doubt = ""
    if near:
        whose = "that of one other" if near == 1 else f"those of {count_text(near)} others"
        doubt = f" The interval of the lowest overlaps with {whose}."
    highest = others[-1]
    return [
        f"{percentile_name(q)} is lowest with {lowest.name} ({duration_text(lowest.value_ns)}), and"
        f" highest with {highest.name} ({duration_text(highest.value_ns)}).{doubt}"
    ]


def _ranked(combination: Combination, q: float) -> _Ranked:
    def ends(end: str) -> list[int]:
        found = (run.summary[f"{FIGURE_OF[q]}{end}"] for run in combination.runs)
        return [int(value) for value in found if value is not None]

    values = ends("")
    return _Ranked(
        ", ".join(f"{name} {value}" for name, value in combination.values.items()),
        statistics.median(values),
        min(ends("_ci_low") or values),
        max(ends("_ci_high") or values),
    )


def _judged(material: CampaignMaterial, there: Sequence[Combination]) -> list[str]:
    outcomes = Counter(map(outcome_of, there))
    if not any(outcomes[outcome] for outcome in Outcome):
        levels = ", ".join(material.content.experiment.service_levels)
        if not levels:
            return []
        return [f"Not judged: `tailscope verify CAMPAIGN --keep` does that, by {levels}."]
    levels = "; ".join(
        dict.fromkeys(
            run.kept.verdict.slo for each in there for run in each.runs if run.kept.verdict
        )
    )
    said = [
        f"{count_text(outcomes[outcome])} {word}"
        for outcome, word in (
            (Outcome.PASS, "pass"),
            (Outcome.FAIL, "fail"),
            (Outcome.INCONCLUSIVE, "lack evidence"),
            (None, "were not judged"),
        )
        if outcomes[outcome]
    ]
    return [f"{levels}: of {count_text(len(there))} combinations {', '.join(said)}."]
