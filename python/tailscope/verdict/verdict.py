"""Pass, fail or inconclusive: each term of a service level, by the evidence of a run."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, TypedDict

from tailscope.models.counting import (
    closest,
    design_effect_of,
    packets_to_settle,
    share_beyond,
    tolerated_design_effect,
    worst_beside,
)
from tailscope.models.estimate import LEVEL
from tailscope.store.records.verdict import JudgedReading, JudgedRun, JudgedTerm
from tailscope.units import count_text, duration_text, long_text
from tailscope.verdict.evidence import APART
from tailscope.verdict.taken import NO_PACKETS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tailscope.engine.analysis import Figure, Histogram
    from tailscope.models.estimate import Estimate
    from tailscope.store.records.verdict import Word
    from tailscope.verdict.evidence import Doubt, PacketSample, RunSample
    from tailscope.verdict.slo import Level, Term


class Outcome(StrEnum):
    """The outcome of a term, of a run, or of several."""

    PASS = "pass"  # noqa: S105 - a verdict, no password
    INCONCLUSIVE = "inconclusive"
    FAIL = "fail"


_GRAVITY = (Outcome.PASS, Outcome.INCONCLUSIVE, Outcome.FAIL)


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """Return the worst of several outcomes; pass if there is none."""
    return max(outcomes, key=_GRAVITY.index, default=Outcome.PASS)


@dataclass(frozen=True)
class Finding:
    """The result of one reading of a run for a term."""

    outcome: Outcome
    found: float | None
    """The quantile, maximum, ratio or number of the run, in the unit of the limit; None without
    packets, or where the packet that decides never came."""
    beyond: int | None
    """Packets beyond the limit."""
    packets: int
    """Number of packets that were judged."""
    share: Estimate | None = None
    """Share of packets beyond the limit; None if only the packets of the run are counted."""
    design_effect: float | None = None
    tolerated_design_effect: float | None = None
    """Design effect of the packets, and the largest one with which the term would still pass, if it
    does.
    """
    to_settle: int | None = None
    """Packets in all that would decide, if the share stays what it is; None where it is decided, or
    never would be."""
    between: tuple[float, float] | None = None
    """What the quantile is at least and at most, by the bounds that decide; infinite where packets
    never came, or too few tell; None without such bounds."""
    is_known: bool = True
    """False if the packet that decides came, and nothing tells what it took."""

    def record(self) -> JudgedReading:
        """Return the result as JSON has it."""
        return JudgedReading(**self.figures(self.outcome))

    def figures(self, outcome: Outcome) -> _Figures:
        """Return the fields that JSON has for it, beside a verdict that may differ."""
        share = self.share
        return {
            "verdict": outcome.value,
            "found": self.found,
            "beyond": self.beyond,
            "packets": self.packets,
            "share_beyond": None if share is None else share.estimate,
            "share_beyond_ci_low": None if share is None else share.ci_low,
            "share_beyond_ci_high": None if share is None else share.ci_high,
            "design_effect": self.design_effect,
            "tolerated_design_effect": self.tolerated_design_effect,
        }


class _Figures(TypedDict):
    verdict: Word
    found: float | None
    beyond: int | None
    packets: int
    share_beyond: float | None
    share_beyond_ci_low: float | None
    share_beyond_ci_high: float | None
    design_effect: float | None
    tolerated_design_effect: float | None


@dataclass(frozen=True)
class TermVerdict:
    """The verdict on a term, with its reasons."""

    term: Term
    outcome: Outcome
    as_is: Finding
    """Result for the times that packets took."""
    least: Finding | None
    """Result for the least that they can have taken; None if that is the same, or not known."""
    reasons: tuple[str, ...]
    """Sentences: what stands against a verdict, and what would settle it."""
    more_packets: int | None
    """Number of further packets that would settle it; None if no number would, or it is settled."""

    @property
    def depends_on_instrument(self) -> bool:
        """True if the outcome differs for the least that packets can have taken."""
        return self.least is not None and self.least.outcome != self.as_is.outcome

    def record(self, rate_pps: float | None) -> JudgedTerm:
        """Return the verdict as JSON has it; `rate_pps` is that of the run."""
        more = self.more_packets
        return JudgedTerm(
            **self.as_is.figures(self.outcome),
            term=self.term.text,
            kind="observed" if self.term.is_observed else "statistical",
            limit=self.term.limit,
            allowed_share=self.term.allowed,
            depends_on_instrument=self.depends_on_instrument,
            least=None if self.least is None else self.least.record(),
            more_packets=more,
            more_s=None if more is None or not rate_pps else more / rate_pps,
            reasons=self.reasons,
        )


@dataclass(frozen=True)
class RunVerdict:
    """The verdict on a run: the worst of its terms."""

    name: str
    """Name of the run."""
    outcome: Outcome
    terms: tuple[TermVerdict, ...] = ()
    """Verdicts on the terms; empty if the run could not be judged at all."""
    rate_pps: float | None = None
    reason: str | None = None
    """Reason why it could not be judged."""
    neighbours: str = ""
    """Description of what other programs took of the device's CPU, if it may matter."""
    trust: str = ""
    """Trust in the instrument, in a line; empty if nothing is known of it."""
    spoilt: str = ""
    """Description of what leaves a range open between the least and the most that can be."""
    never_came: int = 0
    """Packets that quantiles count as slower than all others."""

    def record(self) -> JudgedRun:
        """Return the verdict as JSON has it."""
        return JudgedRun(
            run=self.name,
            verdict=self.outcome.value,
            rate_pps=self.rate_pps,
            reason=self.reason,
            neighbours=self.neighbours or None,
            terms=tuple(term.record(self.rate_pps) for term in self.terms),
        )


def judge(level: Level, evidence: RunSample, *, runs: int = 1) -> RunVerdict:
    """Judge a run by a service level.

    A term with a share (quantiles, loss) passes when the upper bound of the share beyond its limit
    is within what is allowed, and fails when the lower bound is not. Each bound errs with at most
    5 %, divided by the number of such terms in all runs, so that all verdicts together hold with
    95 % (Bonferroni). Other terms speak of the packets of the run alone and cannot err.

    What the instrument, or neighbours of the device, may have spoilt is a bound of what packets
    took: a term passes when even the upper ends meet it, and fails when even the lower ends do not.
    """
    statistical = sum(not term.is_observed for term in level.terms)
    error = (1 - LEVEL) / max(1, statistical * runs)
    for reading in filter(None, (evidence.as_is, evidence.least)):
        if len(reading.taken):
            asked = (term for term in level.terms if not term.is_observed)
            reading.taken.look_for(ns for term in asked for ns in _marked_from(term, reading))
    terms = tuple(_judge_term(term, evidence, error) for term in level.terms)
    return RunVerdict(
        evidence.name,
        worst(each.outcome for each in terms),
        terms,
        evidence.rate_pps,
        neighbours=evidence.neighbours,
        trust=evidence.trust,
        spoilt=evidence.spoilt,
        never_came=evidence.as_is.taken.failed,
    )


def meets(
    level: Level,
    figures: Mapping[str, Figure],
    latency: Histogram,
    least: Histogram | None = None,
) -> bool | None:
    """Return whether the packets of a run meet a service level, whatever they say of others.

    What the instrument lost, and what the device dropped on purpose, is left out. None where it
    depends on the instrument's own stalls.
    """
    ends = [(latency, least or latency), (least or latency, latency)]
    readings = [_counted(figures, *end) for end in ends]
    if not len(readings[0].taken):
        return False
    upper, lower = (
        all(term.is_met_by(_sample(term, reading)[0]) for term in level.terms)
        for reading in readings
    )
    return upper if upper == lower else None


def _counted(
    figures: Mapping[str, Figure], latency: Histogram, other_end: Histogram
) -> PacketSample:
    """Return the packets of a run at one end of the times that they took."""
    from tailscope.engine.analysis import Distribution
    from tailscope.verdict.evidence import PacketSample
    from tailscope.verdict.taken import Taken

    def count(name: str) -> int:
        return int(figures.get(name) or 0)

    lost = count("lost") - count("lost_in_instrument") - count("dropped_by_dut")
    came = Distribution()
    came.record_many(latency.bucket_ns, latency.counts)
    counts = {"lost": lost, "dropped": count("dropped_by_dut")}
    counts |= {name: count(name) for name in ("reordered", "duplicated", "corrupt", "late")}
    fastest = float(other_end.bucket_ns[0]) if len(other_end.bucket_ns) else None
    taken = Taken(came, lost + count("late") + count("corrupt"))
    return PacketSample(taken, lost, counts, fastest)


def _judge_term(term: Term, evidence: RunSample, error: float) -> TermVerdict:
    as_is = _find(term, evidence.as_is, error)
    least = None if evidence.least is None else _find(term, evidence.least, error)
    findings = [as_is] if least is None else [as_is, least]
    outcome, reasons, more = _within(as_is, least), [], None
    if least is not None and least.outcome != as_is.outcome and outcome is Outcome.INCONCLUSIVE:
        reasons.append(
            f"it depends on {evidence.spoilt}: {least.outcome} without them,"
            f" {as_is.outcome} with them"
        )
    if not as_is.packets:
        reasons.append(NO_PACKETS)
    elif outcome is Outcome.INCONCLUSIVE and (
        undecided := [finding for finding in findings if finding.outcome is Outcome.INCONCLUSIVE]
    ):
        more, why = _to_settle(undecided, findings, term, evidence)
        if more is not None and (against := _against_more(undecided[-1], term, evidence)):
            more, why = None, "; ".join(against)
        reasons.append(why)
    doubts = [doubt.reason for doubt in evidence.doubts_of(term) if _is_against(doubt, outcome)]
    drift = _drift_decides(term, evidence, error, outcome)
    if outcome is Outcome.INCONCLUSIVE:
        doubts = [doubt.reason for doubt in evidence.doubts]
    elif drift:
        doubts.append(drift)
    elif outcome is Outcome.FAIL and APART.reason in doubts:
        doubts.remove(APART.reason)
        reasons.append(
            "the clocks are apart, but latencies above that of the fastest packet, and packets that"
            " never came, exceed the limit already: an offset can only add to them"
        )
    if doubts and outcome is not Outcome.INCONCLUSIVE:
        outcome, more = Outcome.INCONCLUSIVE, None
    return TermVerdict(term, outcome, as_is, least, (*doubts, *reasons), more)


def _drift_decides(term: Term, evidence: RunSample, error: float, outcome: Outcome) -> str:
    """Say why an outcome does not hold if the clocks drift, as they may; nothing where it does."""
    drift = evidence.drift
    if drift is None or not term.is_time or outcome is Outcome.INCONCLUSIVE:
        return ""
    off_ns = drift.off_ns if outcome is Outcome.FAIL else -drift.off_ns
    shifted = replace(term, limit=max(0.0, term.limit + off_ns))
    readings = [evidence.as_is, evidence.least or evidence.as_is]
    if _within(*(_find(shifted, reading, error) for reading in readings)) is outcome:
        return ""
    return f"{drift.reason}: times may be off by {duration_text(drift.off_ns)}, which decides"


def _within(as_is: Finding, least: Finding | None) -> Outcome:
    """Pass if even all that packets took meets a term, fail if even the least does not."""
    lower = as_is if least is None else least
    if as_is.outcome is Outcome.PASS:
        return Outcome.PASS
    return Outcome.FAIL if lower.outcome is Outcome.FAIL else Outcome.INCONCLUSIVE


def _is_against(doubt: Doubt, outcome: Outcome) -> bool:
    return (outcome is Outcome.PASS and doubt.of_pass) or (
        outcome is Outcome.FAIL and doubt.of_fail
    )


def _against_more(undecided: Finding, term: Term, evidence: RunSample) -> list[str]:
    """Return the doubts about latencies that would leave it open with more packets, too."""
    assert undecided.share is not None and term.allowed is not None
    outcome = Outcome.PASS if undecided.share.estimate < term.allowed else Outcome.FAIL
    return [
        doubt.reason
        for doubt in evidence.doubts_of(term)
        if doubt not in evidence.doubts
        and _is_against(doubt, outcome)
        and not (outcome is Outcome.FAIL and doubt is APART)
    ]


def _to_settle(
    undecided: list[Finding], findings: list[Finding], term: Term, evidence: RunSample
) -> tuple[int | None, str]:
    """Return the number of further packets that would decide, and a sentence about it."""
    shares = [each.share.estimate for each in findings if each.share is not None]
    if term.allowed is not None and shares and min(shares) < term.allowed < max(shares):
        return None, (
            f"what is allowed lies between the shares with and without {evidence.spoilt}: no number"
            " of packets decides"
        )
    sent = len(evidence.as_is.taken)
    totals = []
    for finding in undecided:
        if not finding.packets:
            return None, NO_PACKETS
        if finding.to_settle is None:
            return None, "the share beyond equals what is allowed: no number of packets decides"
        # Of all packets sent, only some count where those that could not be sent are left out.
        totals.append(math.ceil(finding.to_settle * sent / finding.packets))
    more = max(1, max(totals) - sent)
    rate_pps = evidence.rate_pps
    lasts = f", {long_text(more / rate_pps)} at this rate" if rate_pps else ""
    return more, f"about {count_text(more)} more packets would settle it{lasts}"


def _find(term: Term, reading: PacketSample, error: float) -> Finding:
    n = len(reading.taken)
    if not n:
        return Finding(Outcome.INCONCLUSIVE, None, None, 0)
    value, beyond = _sample(term, reading)
    shown = value if math.isfinite(value) else None
    if term.allowed is None:
        outcome = Outcome.PASS if term.is_met_by(value) else Outcome.FAIL
        return Finding(outcome, shown, beyond, n)
    assert beyond is not None
    marked = [*map(reading.taken.in_stretches, _marked_from(term, reading))]
    if term.kind == "loss":
        # Which of the packets that have no latency were lost is not known.
        marked = [closest(counts, reading.lost) for counts in marked]
    design = design_effect_of(marked)
    share = share_beyond(beyond, n, design=design, error=error)
    tolerated = total = None
    if share.ci_high < term.allowed:
        outcome = Outcome.PASS
        tolerated = tolerated_design_effect(beyond, n, term.allowed, error=error)
    elif share.ci_low > term.allowed:
        outcome = Outcome.FAIL
    else:
        outcome = Outcome.INCONCLUSIVE
        total = packets_to_settle(beyond, n, term.allowed, design=design, error=error)
    between = _between(term, reading, design, error) if term.is_time else None
    return Finding(outcome, shown, beyond, n, share, design, tolerated, total, between)


def _between(term: Term, reading: PacketSample, design: float, error: float) -> tuple[float, float]:
    """Return the limits between which a term neither passes nor fails, as its share decides."""
    taken, allowed = reading.taken, term.allowed
    assert allowed is not None
    n, base_ns = len(taken), _base_ns(term, reading)

    def fails(beyond: int) -> bool:
        return share_beyond(beyond, n, design=design, error=error).ci_low > allowed

    def passes_not(beyond: int) -> bool:
        return share_beyond(beyond, n, design=design, error=error).ci_high >= allowed

    fewest_failing = bisect_left(range(n + 1), True, key=fails)
    fewest_open = bisect_left(range(n + 1), True, key=passes_not)
    low = taken.at_rank(n - fewest_failing + 1) - base_ns if fewest_failing <= n else 0.0
    high = taken.at_rank(n - fewest_open + 1) - base_ns if fewest_open else math.inf
    return max(low, 0.0), max(high, 0.0)


def _sample(term: Term, reading: PacketSample) -> tuple[float, int | None]:
    """Return the figure of a term, and the packets beyond its limit, if it has one."""
    taken = reading.taken
    if term.kind == "count":
        return reading.counts[term.name], None
    if term.kind == "loss":
        return reading.lost / len(taken), reading.lost
    beyond = taken.at_least(_beyond_ns(term, reading))
    if term.kind == "max":
        late, longest_ns = reading.counts["late"], taken.longest_ns
        beyond += late - taken.failed
        return math.inf if late or longest_ns is None else float(longest_ns), beyond
    assert term.allowed is not None
    # The rank of the tool: of the decimal that was written, not of the binary fraction beside it.
    rank = len(taken) - math.floor(round(term.allowed * len(taken), 6))
    return max(taken.at_rank(rank) - _base_ns(term, reading), 0.0), beyond


def _beyond_ns(term: Term, reading: PacketSample) -> int:
    """Return the time from which on packets are beyond the limit of a term."""
    if term.kind == "loss":
        return reading.taken.never_ns
    limit = term.limit + _base_ns(term, reading)
    return math.floor(limit) + 1 if term.operator == "<=" else math.ceil(limit)


def _marked_from(term: Term, reading: PacketSample) -> list[int]:
    """Return the times from which on packets are marked; their bursts tell a design effect."""
    taken, beyond_ns = reading.taken, _beyond_ns(term, reading)
    if term.kind == "loss":
        # How lost packets would come in bursts, those that came, or came late, do not tell.
        return [beyond_ns] if reading.lost else []
    n = len(taken)
    worst = [taken.at_rank(n - each + 1) for each in worst_beside(taken.at_least(beyond_ns), n)]
    return [beyond_ns, *(int(ns) if math.isfinite(ns) else taken.never_ns for ns in worst)]


def _base_ns(term: Term, reading: PacketSample) -> float:
    """Return the latency that others are counted from: variation counts from the fastest packet."""
    if term.kind != "pdv":
        return 0.0
    least = reading.fastest_ns
    least = reading.taken.at_rank(1) if least is None else least
    return least if math.isfinite(least) else 0.0
