"""When a tail lies above another: intervals that are disjoint, with and without tainted samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailscope.models.counting import share_beyond
from tailscope.models.estimate import LEVEL, Estimate
from tailscope.units import duration_text, percentile_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tailscope.recommend.evidence import Case

__all__ = [
    "MEDIAN",
    "Tail",
    "best_quantile",
    "cited",
    "common_quantile",
    "have_medians",
    "proportion",
    "ratio",
    "record_of",
    "tail_of",
    "tails",
    "why_not_above",
]

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

    Attributes
    ----------
    quantile : float
    runs : tuple of int
        The numbers of the runs.
    latency_ns : Estimate
    untainted_ns : tuple of int
        The same quantile without tainted samples: the lowest and the highest run's.
    """

    quantile: float
    runs: tuple[int, ...]
    latency_ns: Estimate
    untainted_ns: tuple[int, int]

    @property
    def figure(self) -> str:
        """By its flat name."""
        return f"latency_ns_{_NAMES[self.quantile]}"

    def text(self) -> str:
        """It in a sentence."""
        value = self.latency_ns
        low, high = duration_text(value.ci_low), duration_text(value.ci_high)
        return (
            f"{percentile_name(self.quantile)} {duration_text(value.estimate)} ({low} to {high},"
            f" {cited(self.runs)})"
        )

    def record(self) -> dict[str, Any]:
        """It as JSON has it."""
        return record_of(self.figure, self.runs, self.latency_ns)


def cited(numbers: Iterable[int]) -> str:
    """Runs by their numbers."""
    return "".join(f"[{number}]" for number in numbers)


def record_of(figure: str, runs: Sequence[int], value: Estimate) -> dict[str, Any]:
    """A figure as JSON has it, with the runs that it is of."""
    return {
        "figure": figure,
        "runs": list(runs),
        **value.record("estimate"),
        "level": value.level,
        "n": value.n,
        "method": value.method,
    }


def best_quantile(cases: Iterable[Case]) -> float | None:
    """The highest quantile that every run supports, with and without tainted samples."""
    rows = [case.run.summary for case in cases]
    for quantile in reversed(_NAMES):
        name = f"latency_ns_{_NAMES[quantile]}"
        if all(
            row[f"{name}_supported"]
            and row[f"{name}_ci_high"] is not None
            and _untainted(row, name) is not None
            for row in rows
        ):
            return quantile
    return None


def common_quantile(*groups: Iterable[Case]) -> float | None:
    """The highest quantile that every run of all groups supports."""
    return best_quantile([case for group in groups for case in group])


def have_medians(*groups: Iterable[Case]) -> bool:
    """Whether every run supports its median: of worst packets alone nobody knows it."""
    cases = [case for group in groups for case in group]
    return all(case.run.summary["latency_ns_p50_supported"] for case in cases)


def _untainted(summary: Any, name: str) -> Any:
    """A figure without tainted samples; where nobody could tell, with all."""
    return summary[f"untainted_{name}"] if "tainted" in summary else summary[name]


def tail_of(cases: Sequence[Case], quantile: float) -> Tail:
    """A quantile that all of the runs support (`best_quantile`)."""
    name = f"latency_ns_{_NAMES[quantile]}"
    rows = [case.run.summary for case in cases]

    def of(suffix: str = "") -> list[int]:
        return [int(row[f"{name}{suffix}"] or 0) for row in rows]

    without = [int(_untainted(row, name)) for row in rows]
    value = Estimate(
        estimate=max(of()),
        ci_low=min(of("_ci_low")),
        ci_high=max(of("_ci_high")),
        level=float(rows[0]["ci_level"] or LEVEL),
        n=sum(int(row["count"] or 0) for row in rows),
        method=_ONE if len(rows) == 1 else _SEVERAL,
    )
    return Tail(quantile, tuple(case.number for case in cases), value, (min(without), max(without)))


def tails(*groups: Sequence[Case]) -> list[Tail]:
    """The same quantile of all groups, the highest that all support; none where they share none."""
    quantile = common_quantile(*groups)
    return [] if quantile is None else [tail_of(group, quantile) for group in groups]


def why_not_above(upper: Tail, lower: Tail) -> str | None:
    """Why `upper` cannot be said to lie above `lower`; None where it does.

    Their intervals must be disjoint; and without tainted samples each must still lie beyond the
    interval of the other, so that the instrument's own stalls do not decide.
    """
    name = percentile_name(upper.quantile)
    if upper.latency_ns.ci_low <= lower.latency_ns.ci_high:
        return f"intervals of {name} overlap"
    if (
        upper.untainted_ns[0] <= lower.latency_ns.ci_high
        or lower.untainted_ns[1] >= upper.latency_ns.ci_low
    ):
        return f"it depends on tainted samples which {name} is higher"
    return None


def ratio(upper: Tail, lower: Tail) -> Estimate:
    """How many times one quantile is the other, with an interval of the ends of both.

    It holds where both intervals do, and so with at least 1 - 2 (1 - level) (Bonferroni).
    """
    above, below = upper.latency_ns, lower.latency_ns
    return Estimate(
        estimate=above.estimate / max(below.estimate, 1),
        ci_low=above.ci_low / max(below.ci_high, 1),
        ci_high=above.ci_high / max(below.ci_low, 1),
        level=round(1 - (1 - above.level) - (1 - below.level), 6),
        n=min(above.n, below.n),
        method="quotient of the ends of both intervals, Bonferroni",
    )


def proportion(count: int, n: int) -> Estimate:
    """A share with its exact interval (Clopper and Pearson)."""
    assert 0 <= count <= n and n > 0, "a part of something"
    return share_beyond(count, n, error=(1 - LEVEL) / 2)
