"""Comparison of tails, which differ if their intervals are disjoint, despite the instrument."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailscope.models.counting import share_beyond
from tailscope.models.estimate import LEVEL, Estimate
from tailscope.units import counted, duration_text, percentile_name
from tailscope.words.figures import instrument_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tailscope.engine.analysis import Figure
    from tailscope.extra.recommend.evidence import Case

FEWEST_RUNS = 3
"""Fewest runs on each side of a difference; docs/calibration.md has how often fewer are wrong."""

MEDIAN = 0.5
_NAMES = {
    0.5: "p50",
    0.9: "p90",
    0.99: "p99",
    0.999: "p999",
    0.9999: "p9999",
    0.99999: "p99999",
    0.999999: "p999999",
}
_ONE = "exact order statistics"
_SEVERAL = "exact order statistics; the worst run, with the interval that covers all runs'"


@dataclass(frozen=True)
class Tail:
    """A quantile of the latency in one run, or in runs that repeat each other.

    The worst run stands for all (containers2024 §5.1); the interval covers those of all runs, so
    that two tails are apart only where every run of the one is apart from every run of the other.
    """

    quantile: float
    runs: tuple[int, ...]
    """The numbers of the runs."""
    latency_ns: Estimate
    least_ns: Estimate
    """The least that it can have been, without the instrument's stalls."""

    @property
    def figure(self) -> str:
        """Flat name of the figure."""
        return f"latency_ns_{_NAMES[self.quantile]}"

    def text(self) -> str:
        """Return the quantile in a sentence."""
        return (
            f"{percentile_name(self.quantile)} {self.value_text()} ({self.interval_text()},"
            f" {cited(self.runs)})"
        )

    def value_text(self) -> str:
        """Return the quantile, with the least that it can have been if that differs."""
        return instrument_text(self.least_ns.estimate, self.latency_ns.estimate)

    def interval_text(self) -> str:
        """Return the interval, from the least that the quantile can be."""
        low, high = duration_text(self.least_ns.ci_low), duration_text(self.latency_ns.ci_high)
        return f"{low} to {high}"

    def records(self) -> list[dict[str, object]]:
        """Return the figure as JSON has it, and the least that it can have been if that differs."""
        ends = {self.figure: self.latency_ns}
        if self.least_ns != self.latency_ns:
            ends[f"least_{self.figure}"] = self.least_ns
        return [record_of(name, self.runs, value) for name, value in ends.items()]


def cited(numbers: Iterable[int]) -> str:
    """Cite runs by their numbers."""
    return "".join(f"[{number}]" for number in numbers)


def record_of(figure: str, runs: Sequence[int], value: Estimate) -> dict[str, object]:
    """Return a figure as JSON has it, with the runs that it rests on."""
    return {
        "figure": figure,
        "runs": list(runs),
        **value.record("estimate"),
        "level": value.level,
        "n": value.n,
        "method": value.method,
    }


def best_quantile(cases: Iterable[Case]) -> float | None:
    """Return the highest quantile that every run supports."""
    rows = [case.run.summary for case in cases]
    for quantile in reversed(_NAMES):
        name = f"latency_ns_{_NAMES[quantile]}"
        if all(row[f"{name}_supported"] and row[f"{name}_ci_high"] is not None for row in rows):
            return quantile
    return None


def common_quantile(*groups: Iterable[Case]) -> float | None:
    """Return the highest quantile that every run of all groups supports."""
    return best_quantile([case for group in groups for case in group])


def have_medians(*groups: Iterable[Case]) -> bool:
    """Return whether every run supports its median, which the worst packets alone do not give."""
    cases = [case for group in groups for case in group]
    return all(case.run.summary["latency_ns_p50_supported"] for case in cases)


def least(summary: Mapping[str, Figure], name: str) -> Figure:
    """Return the least that a latency can have been; if nobody could tell, the latency itself.

    Of a run from before that was recorded, the instrument's stalls may have made all of it.
    """
    value = summary.get(f"least_{name}")
    if value is not None:
        return value
    return 0 if summary.get("tainted") else summary[name]


def tail_of(cases: Sequence[Case], quantile: float) -> Tail:
    """Return a quantile that all of the runs support (`best_quantile`)."""
    name = f"latency_ns_{_NAMES[quantile]}"
    rows = [case.run.summary for case in cases]

    def estimate(figure: Callable[[Mapping[str, Figure], str], Figure]) -> Estimate:
        def of(suffix: str = "") -> list[int]:
            return [int(figure(row, f"{name}{suffix}") or 0) for row in rows]

        return Estimate(
            estimate=max(of()),
            ci_low=min(of("_ci_low")),
            ci_high=max(of("_ci_high")),
            level=float(rows[0]["ci_level"] or LEVEL),
            n=sum(int(row["count"] or 0) for row in rows),
            method=_ONE if len(rows) == 1 else _SEVERAL,
        )

    numbers = tuple(case.number for case in cases)
    return Tail(quantile, numbers, estimate(lambda row, each: row[each]), estimate(least))


def tails(*groups: Sequence[Case]) -> list[Tail]:
    """Return the tails of all groups at the highest quantile that all support, if there is one."""
    quantile = common_quantile(*groups)
    return [] if quantile is None else [tail_of(group, quantile) for group in groups]


def why_not_above(upper: Tail, lower: Tail) -> str | None:
    """Explain why `upper` cannot be said to lie above `lower`; None if it does.

    Each must be of three runs: packets behind a stall are no independent evidence, so that the
    intervals of single runs say too much.
    """
    overlap = why_overlapping(upper, lower)
    fewest = min(len(upper.runs), len(lower.runs))
    if overlap is None and fewest < FEWEST_RUNS:
        return (
            f"{upper.text()} against {lower.text()} may be chance with {counted(fewest, 'run')} on"
            f" a side: measure {FEWEST_RUNS} on each"
        )
    return overlap


def why_overlapping(upper: Tail, lower: Tail) -> str | None:
    """Explain why the interval of `upper` does not lie above that of `lower`; None if it does.

    They must be disjoint, even if the instrument's stalls delayed the packets of the upper one by
    all of their length, and those of the lower one not at all.
    """
    name = percentile_name(upper.quantile)
    if upper.latency_ns.ci_low <= lower.latency_ns.ci_high:
        return f"intervals of {name} overlap"
    if upper.least_ns.ci_low <= lower.latency_ns.ci_high:
        return f"it depends on the instrument's stalls which {name} is higher"
    return None


def ratio(upper: Tail, lower: Tail) -> Estimate:
    """Return the ratio of two quantiles, with an interval from the ends of both.

    It holds where both intervals do, and so with at least 1 - 2 (1 - level) (Bonferroni).
    """
    above, below = upper.latency_ns, lower.latency_ns
    return Estimate(
        estimate=above.estimate / max(below.estimate, 1),
        ci_low=upper.least_ns.ci_low / max(below.ci_high, 1),
        ci_high=above.ci_high / max(lower.least_ns.ci_low, 1),
        level=round(1 - (1 - above.level) - (1 - below.level), 6),
        n=min(above.n, below.n),
        method="quotient of the ends of both intervals, Bonferroni",
    )


def proportion(count: int, n: int) -> Estimate:
    """Return A share with its exact interval (Clopper and Pearson)."""
    assert 0 <= count <= n and n > 0, "a part of something"
    return share_beyond(count, n, error=(1 - LEVEL) / 2)
