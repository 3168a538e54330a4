"""Rules, and the words for their results."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tailscope.extra.recommend.compare import tails, why_not_above
from tailscope.units import count_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tailscope.extra.recommend.compare import Tail
    from tailscope.extra.recommend.evidence import Case, Evidence, Facts
    from tailscope.models.estimate import Estimate

    Said = Iterator["RunEvidence | NoEvidence"]


@dataclass(frozen=True)
class RunEvidence:
    """A result that runs support."""

    text: str
    """The result in words, with runs cited by their numbers."""
    runs: tuple[int, ...]
    figures: list[dict[str, object]] = field(default_factory=list)
    """Figures that it rests on: `figure`, `runs`, `estimate` with its interval, `level`, `n`,
    `method`.
    """


class NoEvidence(NamedTuple):
    """A reason why a rule is silent."""

    reason: str


@dataclass(frozen=True)
class Recommendation:
    """A rule that runs give evidence for."""

    rule: Rule
    findings: tuple[RunEvidence, ...]

    def record(self) -> dict[str, object]:
        """Return the recommendation as JSON has it."""
        return {
            "id": self.rule.id,
            "title": self.rule.title,
            "source": self.rule.source,
            "advice": self.rule.advice,
            "findings": [
                {"text": finding.text, "runs": list(finding.runs), "figures": finding.figures}
                for finding in self.findings
            ],
        }


class RuleAnswer(NamedTuple):
    """The answer of a rule to the evidence, with the reasons why it says no more."""

    recommendation: Recommendation | None
    unsaid: tuple[str, ...]


@dataclass(frozen=True)
class Rule:
    """A recommendation of the papers."""

    id: str
    """Number of the recommendation in limbo2022, or ``cache``."""
    title: str
    source: str
    advice: str
    """Subject, source and gist of the recommendation."""
    look: Callable[[Evidence], Said]
    """Looks at the evidence."""

    def answer(self, evidence: Evidence) -> RuleAnswer:
        """Look at the evidence, and say what can be said."""
        results = list(self.look(evidence))
        findings = tuple(each for each in results if isinstance(each, RunEvidence))
        unsaid = tuple(
            dict.fromkeys(each.reason for each in results if isinstance(each, NoEvidence))
        )
        return RuleAnswer(Recommendation(self, findings) if findings else None, unsaid)

    def applies(self, evidence: Evidence) -> Recommendation | None:
        """Return the recommendation, if there is evidence for it."""
        return self.answer(evidence).recommendation


def where(facts: Facts) -> str:
    """Say of which runs something is said, without the fact they are compared by."""
    options = ", ".join(f"{name}={value}" for name, value in facts.device_options)
    parts = [f"{facts.device} ({options})" if options else facts.device]
    if facts.technology is not None:
        parts.append(f"on {facts.technology}")
    if facts.kernel is not None:
        parts.append(f"kernel {facts.kernel}")
    if facts.optimised:
        parts.append("optimised")
    parts.append(f"over {facts.cards or facts.wire}")
    if facts.rate_pps is not None:
        pattern = f" {facts.pattern}" if facts.pattern else ""
        parts.append(f"at {count_text(facts.rate_pps)} packets/s{pattern}")
    if facts.burst is not None and facts.burst > 1:
        parts.append(f"bursts of {facts.burst}")
    if facts.size_bytes is not None:
        parts.append(f"{facts.size_bytes} B")
    if facts.co_runners:
        parts.append(f"beside {co_runners_text(facts.co_runners)}")
    return ", ".join(parts)


def co_runners_text(co_runners: tuple[Any, ...]) -> str:
    """Say which co-runners there were."""
    if not co_runners:
        return "no co-runners"
    busy, cpus = co_runners
    named = ", ".join(f"{workers} {kind}" for kind, workers in busy)
    return f"co-runners ({named})" + (f" on CPU {cpus}" if cpus else "")


def lowest_against_highest(
    facts: Facts, groups: dict[str, list[Case]], advice: str
) -> RunEvidence | NoEvidence:
    """Compare the group with the lowest tail with that of the highest."""
    tail_of = dict(zip(groups, tails(*groups.values()), strict=False))
    if not tail_of:
        return NoEvidence(f"{where(facts)}: {' and '.join(groups)} share no supported quantile")
    ordered = sorted(tail_of, key=lambda name: tail_of[name].latency_ns.estimate)
    lower, upper = ordered[0], ordered[-1]
    reason = why_not_above(tail_of[upper], tail_of[lower])
    if reason is not None:
        return NoEvidence(f"{where(facts)}: {lower} and {upper}: {reason}")
    text = (
        f"{where(facts)}: {advice.format(lower=lower, upper=upper)}: {tail_of[lower].text()}"
        f" against {tail_of[upper].text()}."
    )
    return of_tails(text, [tail_of[lower], tail_of[upper]])


def of_tails(text: str, compared: Sequence[Tail]) -> RunEvidence:
    """Return A finding that rests on quantiles alone."""
    runs = tuple(number for tail in compared for number in tail.runs)
    return RunEvidence(text, runs, [record for tail in compared for record in tail.records()])


def numbers(cases: Sequence[Case]) -> tuple[int, ...]:
    """Return the numbers by which runs are cited."""
    return tuple(case.number for case in cases)


def share_text(share: Estimate) -> str:
    """Write a share in percent, with its interval."""
    low, high = 100 * share.ci_low, 100 * share.ci_high
    return f"{100 * share.estimate:.3g} % ({low:.3g} to {high:.3g} %)"


def times_text(times: Estimate) -> str:
    """Write how many times as much, with the interval."""
    return f"{times.estimate:.3g} times ({times.ci_low:.3g} to {times.ci_high:.3g})"
