"""A service level over time: alerts of seconds that do not meet it, and the verdict on them all."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tailscope.extra.tap.plan import beyond_ns
from tailscope.extra.tap.records import Alert
from tailscope.models.counting import design_effect_of, share_beyond
from tailscope.models.estimate import LEVEL
from tailscope.verdict.verdict import Finding, Outcome, RunVerdict, TermVerdict, worst

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailscope.engine.analysis import Figure
    from tailscope.store.records.messages import TappedLink, TapSecond
    from tailscope.verdict.slo import Level, Term

_MOST_STRETCHES = 4096
_MOST_ALERTS = 1000


def missed_by(link: TappedLink) -> int:
    """Return the number of frames that came to a link, and that nobody can judge."""
    return link.dropped + link.late + link.unstamped


@dataclass
class Stretches:
    """Numbers of packets in stretches of equal time; two become one where they are too many."""

    counts: list[int] = field(default_factory=list)
    _length: int = 1
    _filling: int = 0
    _filled: int = 0

    def add(self, count: int) -> None:
        """Add the number of the next second."""
        self._filling += count
        self._filled += 1
        if self._filled < self._length:
            return
        self.counts.append(self._filling)
        self._filling = self._filled = 0
        if len(self.counts) >= _MOST_STRETCHES:
            self.counts = [sum(self.counts[at : at + 2]) for at in range(0, len(self.counts), 2)]
            self._length *= 2


@dataclass
class TermState:
    """What the seconds so far say of a term."""

    term: Term
    place: int | None
    """Place of its limit among those that each second tells; None without one."""
    beyond: int = 0
    """Matched packets beyond its limit; of `loss` and `lost`, packets that were lost."""
    violated_s: int = 0
    stretches: Stretches = field(default_factory=Stretches)
    alert: Alert | None = None

    def take(self, second: TapSecond) -> bool | None:
        """Take a second, and return whether it meets the term; None where it says nothing."""
        slow = 0 if self.place is None else second.beyond[self.place]
        own = second.lost if self.place is None else slow
        self.beyond += own
        self.stretches.add(own if self.place is None else slow + second.lost)
        sent = second.matched + second.lost
        term = self.term
        if term.kind == "count":
            return term.is_met_by(self.beyond) if term.name == "lost" else None
        if term.kind == "max" and second.late:
            return False
        if not sent:
            return None
        if term.kind == "max":
            return not slow
        if term.kind == "loss":
            return term.is_met_by(second.lost / sent)
        assert term.allowed is not None
        return slow + second.lost <= math.floor(round(term.allowed * sent, 6))


class Judge:
    """Hears every second, alerts, and judges in the end."""

    def __init__(self, level: Level, limits_ns: tuple[int, ...]) -> None:
        self.level = level
        self.states = [
            TermState(term, limits_ns.index(beyond_ns(term)) if term.is_time else None)
            for term in level.terms
        ]
        self.alerts: list[Alert] = []

    def take(self, second: TapSecond) -> list[tuple[str, bool]]:
        """Take a second; return the terms that it is the first not to meet, or to meet again."""
        changes = []
        for state in self.states:
            is_met = state.take(second)
            if is_met is False:
                state.violated_s += 1
                is_new = state.alert is None
                state.alert = _longer(state.alert, state.term, second)
                if is_new:
                    changes.append((state.term.text, True))
            elif is_met and state.alert is not None:
                self._close(state)
                changes.append((state.term.text, False))
        return changes

    def end(self) -> list[Alert]:
        """Return all alerts that are kept, once no second follows."""
        for state in self.states:
            self._close(state)
        return self.alerts

    def _close(self, state: TermState) -> None:
        if state.alert is not None:
            self.alerts.append(state.alert)
            del self.alerts[:-_MOST_ALERTS]
            state.alert = None

    def judge(self, name: str, summary: Mapping[str, Figure], missed_pre: int) -> RunVerdict:
        """Judge all packets: each term holds whatever became of those that nobody can judge."""
        packets = _Packets.of(summary)
        statistical = sum(not term.is_observed for term in self.level.terms)
        error = (1 - LEVEL) / max(1, statistical)
        terms = tuple(_judged(state, packets, summary, error, missed_pre) for state in self.states)
        rate = summary.get("pre_rate_pps")
        return RunVerdict(
            name,
            worst(term.outcome for term in terms),
            terms,
            float(rate) if isinstance(rate, int | float) and rate > 0 else None,
        )


def _longer(alert: Alert | None, term: Term, second: TapSecond) -> Alert:
    if alert is None:
        return Alert(term=term.text, start_unix_ns=second.start_unix_ns, seconds=1)
    return Alert(term=alert.term, start_unix_ns=alert.start_unix_ns, seconds=alert.seconds + 1)


@dataclass(frozen=True)
class _Packets:
    """The packets of a tap by what became of them."""

    matched: int
    lost: int
    late: int
    unknown: int
    """Packets that nobody can judge, or tell apart."""

    @classmethod
    def of(cls, summary: Mapping[str, Figure]) -> _Packets:
        def count(name: str) -> int:
            return int(summary.get(name) or 0)

        unknown = count("outside") + count("ambiguous")
        return cls(count("count"), count("lost"), count("late"), unknown)

    @property
    def known(self) -> int:
        return self.matched + self.lost + self.late


def _judged(
    state: TermState,
    packets: _Packets,
    summary: Mapping[str, Figure],
    error: float,
    missed_pre: int,
) -> TermVerdict:
    """Judge a term twice: all unknown packets met it, and none of them did."""
    term = state.term
    if not packets.known:
        return _verdict(term, Finding(Outcome.INCONCLUSIVE, None, None, 0), "no packet crossed")
    least, most = (
        _found(state, packets, summary, error, unknown) for unknown in (0, packets.unknown)
    )
    if least.outcome is not most.outcome:
        finding = Finding(Outcome.INCONCLUSIVE, most.found, most.beyond, most.packets)
        why = f"it depends on {packets.unknown:,} packets that nobody can judge"
        return _verdict(term, finding, why)
    if missed_pre and most.outcome is Outcome.PASS:
        finding = Finding(Outcome.INCONCLUSIVE, most.found, most.beyond, most.packets)
        return _verdict(term, finding, f"{missed_pre:,} packets were missed as they came")
    return _verdict(term, most)


def _verdict(term: Term, finding: Finding, *reasons: str) -> TermVerdict:
    return TermVerdict(term, finding.outcome, finding, None, reasons, None)


def _found(
    state: TermState,
    packets: _Packets,
    summary: Mapping[str, Figure],
    error: float,
    unknown: int,
) -> Finding:
    """Judge a term where so many unknown packets did not meet it."""
    term, n = state.term, packets.known + unknown
    if term.kind == "count":
        count = int(summary.get(term.name) or 0) + unknown
        return Finding(_met(term.is_met_by(count)), float(count), None, n)
    if term.kind == "max":
        beyond = state.beyond + packets.late + unknown
        longest = summary.get("latency_ns_max")
        found = float(longest) if isinstance(longest, int) and not packets.late else None
        return Finding(_met(not beyond), found, beyond, n)
    failed = packets.lost + unknown
    beyond = failed if term.kind == "loss" else state.beyond + failed + packets.late
    assert term.allowed is not None
    design = design_effect_of([np.array(state.stretches.counts, np.int64)])
    share = share_beyond(beyond, n, design=design, error=error)
    outcome = Outcome.INCONCLUSIVE
    if share.ci_high < term.allowed:
        outcome = Outcome.PASS
    elif share.ci_low > term.allowed:
        outcome = Outcome.FAIL
    found = failed / n if term.kind == "loss" else None
    return Finding(outcome, found, beyond, n, share, design)


def _met(is_met: bool) -> Outcome:
    return Outcome.PASS if is_met else Outcome.FAIL
