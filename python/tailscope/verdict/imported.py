"""Judging what others have measured and summarised: no verdict says more than their figures do.

How delayed packets come in bursts decides how much they say. Of the worst packets with their times
that is known; of a histogram alone it is not, and no share of packets gets an interval.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from tailscope.models.buckets import Between, Buckets, Ranks
from tailscope.models.counting import (
    design_effect_in_time,
    share_beyond,
    tolerated_design_effect,
)
from tailscope.models.estimate import LEVEL
from tailscope.models.samples import rank_of
from tailscope.store.info import foreign_text
from tailscope.units import count_text
from tailscope.verdict.verdict import Finding, Outcome, RunVerdict, TermVerdict, worst

if TYPE_CHECKING:
    from tailscope.models.estimate import Estimate
    from tailscope.store.run import Run
    from tailscope.verdict.slo import Level, Term


@dataclass(frozen=True)
class ImportedSample:
    """The packets of an imported run."""

    run: Run
    source: str
    """Description of the import's source."""
    ranks: Ranks
    """Latencies of the packets that came."""
    failed: Between | None
    """Packets that were sent and have no latency; None where nobody counted them."""
    lost: Between | None
    """Those of them that did not come."""

    @classmethod
    def of(cls, run: Run) -> ImportedSample:
        """Take the sample from a run that was imported."""
        summary, edges = run.summary, run.edges
        count = int(summary["count"] or 0)
        buckets = None
        if edges is not None:
            buckets = Buckets(*(edge.astype(np.int64) for edge in edges))
        sent, lost = summary["sent"], summary["lost"]
        failed = did_not_come = None
        if sent is not None and lost is not None:
            failed = Between(int(lost), int(sent) - count)
            # Where no packet was timed, all that came have no latency.
            did_not_come = failed if count else Between(int(lost), int(lost))
        ranks = Ranks(count, buckets, run.worst.latency_ns)
        return cls(run, str(foreign_text(run.info)), ranks, failed, did_not_come)

    @property
    def packets(self) -> int:
        """All packets that were sent, or those that came where nobody counted them."""
        return self.ranks.count + (0 if self.failed is None else self.failed.high)

    @property
    def rate_pps(self) -> float | None:
        """Rate at which packets were sent; None where nobody said it."""
        about = self.run.info.about
        rate = None if about is None else about.rate_pps
        return None if rate is None else float(rate)

    @property
    def span_ns(self) -> int:
        """Time in which packets were sent, in nanoseconds; 0 where it is not known."""
        return int(1e9 * self.packets / self.rate_pps) if self.rate_pps else 0

    def lacks(self, what: str) -> str:
        """Say what was not imported."""
        return f"{what}: {self.source} does not hold that"

    def design_effect(self, limit_ns: float, beyond: int) -> float | None:
        """Return the packets of a burst that are worth one; None if times are not known."""
        if not self.ranks.is_among_longest(limit_ns):
            return None
        failed = 0 if self.failed is None else self.failed.high
        return design_effect_in_time(self.run.worst.pre_ns, beyond, failed, self.span_ns)


def judge_import(level: Level, run: Run, *, runs: int = 1) -> RunVerdict:
    """Judge an imported run by a service level, as `tailscope.verdict.verdict.judge` does."""
    sample = ImportedSample.of(run)
    statistical = sum(not term.is_observed for term in level.terms)
    error = (1 - LEVEL) / max(1, statistical * runs)
    terms = tuple(_judge_term(term, sample, error) for term in level.terms)
    return RunVerdict(run.label, worst(each.outcome for each in terms), terms, sample.rate_pps)


def _judge_term(term: Term, sample: ImportedSample, error: float) -> TermVerdict:
    if term.kind == "count":
        return _judge_count(term, sample)
    if term.kind == "max":
        at = sample.ranks.at(sample.ranks.count)
        return _observed(term, sample, at, "the longest latency")
    return _judge_share(term, sample, error)


def _judge_count(term: Term, sample: ImportedSample) -> TermVerdict:
    count = sample.lost if term.name == "lost" else None
    return _observed(term, sample, count, f"number of {term.name} packets")


def _observed(term: Term, sample: ImportedSample, found: Between | None, what: str) -> TermVerdict:
    """Judge a term about the packets of the run, given the bounds of the figure."""
    n = sample.packets
    if found is None:
        nothing = Finding(Outcome.INCONCLUSIVE, None, None, n)
        return _verdict(term, nothing, (sample.lacks(what),))
    low, high = term.is_met_by(found.low), term.is_met_by(found.high)
    is_between = term.operator == "=" and found.low < term.limit < found.high
    if low == high and not is_between:
        return _verdict(
            term, Finding(Outcome.PASS if low else Outcome.FAIL, float(found.high), None, n)
        )
    finding = Finding(Outcome.INCONCLUSIVE, float(found.high), None, n)
    return _verdict(term, finding, (f"{what} is between {found.low:,} and {found.high:,}",))


def _judge_share(term: Term, sample: ImportedSample, error: float) -> TermVerdict:
    n, failed = sample.packets, sample.failed
    beyond, limit_ns = _beyond(term, sample)
    if beyond is None:
        what = "number of lost packets" if term.kind == "loss" else "latencies at the limit"
        nothing = Finding(Outcome.INCONCLUSIVE, None, None, n)
        return _verdict(term, nothing, (sample.lacks(what),))
    reasons = []
    if failed is None:
        reasons.append(sample.lacks("number of lost packets, which count as beyond"))
    design = None if limit_ns is None else sample.design_effect(limit_ns, beyond.high)
    quantile_ns = _quantile_ns(term, sample)
    came = term.quantile is not None and rank_of(term.quantile, n) <= sample.ranks.count
    is_known = quantile_ns is not None or not came
    if design is None:
        reasons.append(_without_order(term, sample, beyond, error))
        finding = Finding(Outcome.INCONCLUSIVE, quantile_ns, beyond.high, n, is_known=is_known)
        return _verdict(term, finding, tuple(reasons))
    assert term.allowed is not None
    share = _share(beyond, n, design, error)
    outcome = Outcome.INCONCLUSIVE
    if share.ci_high < term.allowed and failed is not None:
        outcome = Outcome.PASS
    elif share.ci_low > term.allowed:
        outcome, reasons = Outcome.FAIL, []
    finding = Finding(outcome, quantile_ns, beyond.high, n, share, design, is_known=is_known)
    return _verdict(term, finding, tuple(reasons))


def _beyond(term: Term, sample: ImportedSample) -> tuple[Between | None, float | None]:
    """Return the number of packets beyond the limit, and that limit if it is a latency."""
    if term.kind == "loss":
        return sample.lost, None
    base = sample.ranks.at(1) if term.kind == "pdv" else Between(0, 0)
    if base is None:
        return None, None
    is_strict = term.operator == "<="
    most = sample.ranks.beyond(term.limit + base.low, is_strict=is_strict)
    least = sample.ranks.beyond(term.limit + base.high, is_strict=is_strict)
    if most is None or least is None:
        return None, None
    more = sample.failed or Between(0, 0)
    return Between(least.low + more.low, most.high + more.high), term.limit + base.low


def _quantile_ns(term: Term, sample: ImportedSample) -> float | None:
    """Return the quantile of a term, the upper edge of its bucket; of a loss, its share."""
    if term.kind == "loss":
        return sample.lost.high / sample.packets if sample.lost else None
    assert term.quantile is not None
    rank = rank_of(term.quantile, sample.packets)
    at = sample.ranks.at(rank) if rank <= sample.ranks.count else None
    base = sample.ranks.at(1) if term.kind == "pdv" else Between(0, 0)
    return None if at is None or base is None else float(at.high - base.low)


def _share(beyond: Between, n: int, design: float, error: float) -> Estimate:
    low = share_beyond(beyond.low, n, design=design, error=error)
    high = share_beyond(beyond.high, n, design=design, error=error)
    return replace(high, ci_low=low.ci_low)


def _without_order(term: Term, sample: ImportedSample, beyond: Between, error: float) -> str:
    """Explain why there is no verdict without the order of packets, and how far off it is."""
    n, allowed = sample.packets, term.allowed
    assert allowed is not None
    reason = sample.lacks("order of packets, so how many are delayed in a burst")
    if share_beyond(beyond.high, n, error=error).ci_high >= allowed:
        return reason
    most = tolerated_design_effect(beyond.high, n, allowed, error=error)
    return f"{reason}; it would pass if a burst is worth at most {count_text(int(most))} packets"


def _verdict(term: Term, finding: Finding, reasons: tuple[str, ...] = ()) -> TermVerdict:
    return TermVerdict(term, finding.outcome, finding, None, reasons, None)
