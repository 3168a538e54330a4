"""The answer of a campaign: whether it is good enough, how sure that is, and what is best."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailscope.report.campaign.matrix import FIGURE_OF, MEDIAN, outcome_of, quantile_of_all
from tailscope.units import count_text, duration_text, percentile_name, share_text
from tailscope.verdict.trust import stalls_from
from tailscope.verdict.verdict import Outcome, worst

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope.report.campaign.material import CampaignMaterial, Combination
    from tailscope.store.run import Run


_MUCH = 2.0
_LARGE = 10.0
"""Ratios from which on repeats differ by a factor rather than by a share, and by a whole one."""


def answers(material: CampaignMaterial) -> list[str]:
    """Say how many combinations meet the level, how far repeats differ, and what is best."""
    there = [each for each in material.combinations if each.runs]
    q = quantile_of_all(material)
    return [*_judged(material, there), *_spread(there, q), *_best(there, q)]


def outcome_of_all(material: CampaignMaterial) -> Outcome | None:
    """Return the worst verdict of all combinations; None where none was judged."""
    outcomes = [outcome for each in material.combinations if (outcome := outcome_of(each))]
    return worst(outcomes) if outcomes else None


def taint_of_all(material: CampaignMaterial) -> str:
    """Say in how many runs stalls of the instrument show; empty where they have spoilt nothing."""
    runs = runs_of(material)
    tainted, matched = (
        sum(int(run.summary.get(name) or 0) for run in runs) for name in ("tainted", "count")
    )
    if not tainted:
        return ""
    shown = sum(stalls_from(run.summary) is not None for run in runs)
    return (
        f"{share_text(tainted / matched)} of all samples may be delayed by stalls of the"
        f" instrument, which show in {count_text(shown)} of {count_text(len(runs))} runs."
    )


def runs_of(material: CampaignMaterial) -> list[Run]:
    """Return all runs of a campaign."""
    return [run for each in material.combinations for run in each.runs]


def _spread(there: Sequence[Combination], q: float | None) -> list[str]:
    """Say how far runs of the same combination differ, where they differ most."""
    figure = FIGURE_OF[MEDIAN if q is None else q]
    known = [
        (each, [int(value) for run in each.runs if (value := run.summary[figure]) is not None])
        for each in there
    ]
    several = [(each, values) for each, values in known if len(values) > 1]
    if not several:
        return ["How far repeats would differ is not known: each has one run."] if there else []
    where, values = max(several, key=lambda pair: _ratio(pair[1]))
    ratio = _ratio(values)
    most = share_text(ratio - 1)
    if ratio >= _MUCH:
        most = f"a factor of {ratio:,.{0 if ratio >= _LARGE else 1}f}"
    named = "median" if q is None else percentile_name(q)
    ends = f"{duration_text(min(values))} to {duration_text(max(values))}"
    place = f"{_name_of(where)}: " if where.values else ""
    return [f"Between repeats {named} differs by {most} at most ({place}{ends})."]


def _ratio(values: Sequence[int]) -> float:
    return max(values) / max(1, min(values))


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
        _name_of(combination),
        statistics.median(values),
        min(ends("_ci_low") or values),
        max(ends("_ci_high") or values),
    )


def _name_of(combination: Combination) -> str:
    return ", ".join(f"{name} {value}" for name, value in combination.values.items())


def _judged(material: CampaignMaterial, there: Sequence[Combination]) -> list[str]:
    outcomes = Counter(map(outcome_of, there))
    if not any(outcomes[outcome] for outcome in Outcome):
        levels = ", ".join(material.content.experiment.service_levels)
        if not levels:
            return []
        return [f"Not judged: `tailscope verify CAMPAIGN --keep` does that, by {levels}."]
    levels = ", ".join(
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
    return [f"Of {count_text(len(there))} combinations {', '.join(said)} ({levels})."]
