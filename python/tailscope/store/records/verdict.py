"""``verdict.json``: whether a run meets a service level."""

from __future__ import annotations

from typing import Literal

from tailscope.store.records.base import Count, Section
from tailscope.store.records.kept import KeptRecord

Word = Literal["pass", "fail", "inconclusive"]


class JudgedReading(Section, frozen=True, kw_only=True):
    """A reading of the run for one term."""

    verdict: Word
    """`pass`, `fail` or `inconclusive`."""
    found: float | None
    """The figure that the term limits; null without packets, or if the packet that decides never
    arrived."""
    beyond: Count | None
    """Packets beyond the limit."""
    packets: Count
    """Number of packets in all."""
    share_beyond: float | None
    """Share of the packets beyond the limit; null if the term speaks of this run's packets only."""
    share_beyond_ci_low: float | None
    """Lower end of its interval."""
    share_beyond_ci_high: float | None
    """Upper end of its interval."""
    design_effect: float | None
    """Factor by which bursts widen that interval."""
    tolerated_design_effect: float | None
    """The largest design effect with which the term would still pass; null if it does not."""


class JudgedTerm(JudgedReading, frozen=True, kw_only=True):
    """The verdict on a term of the service level, with its reasons."""

    term: str
    """The term, such as `p99.9<1ms`."""
    kind: Literal["observed", "statistical"]
    """`observed` if it speaks of this run's packets only, else `statistical`."""
    limit: float
    """The limit: nanoseconds, a ratio, or a number."""
    allowed_share: float | None
    """Share of the packets that may lie beyond; null for an observed term."""
    depends_on_instrument: bool
    """True if the verdict differs with the least that packets can have taken."""
    least: JudgedReading | None
    """The same with the least that packets can have taken: without the instrument's stalls
    meanwhile, without what neighbours held the device's CPU, and without packets that the
    instrument lost or could not send, or that the device may have lost because of neighbours. Null
    if that is the same, or not known."""
    more_packets: Count | None
    """Number of further packets that would settle it; null if none would, or it is settled."""
    more_s: float | None
    """Seconds that those take at the rate of the run."""
    reasons: tuple[str, ...]
    """Reasons against a verdict, and what would settle it."""


class JudgedRun(Section, frozen=True, kw_only=True):
    """The verdict on a run: the worst of its terms."""

    run: str
    """Name of the run."""
    verdict: Word
    """The worst verdict of its terms."""
    rate_pps: float | None
    """Rate at which packets were sent."""
    reason: str | None
    """Reason why the run could not be judged; null if it could."""
    neighbours: str | None = None
    """Time that other programs took of the device's CPU; null if none, or if unknown."""
    terms: tuple[JudgedTerm, ...]
    """The terms of the service level."""


class VerdictRecord(KeptRecord, frozen=True, kw_only=True):
    """The result of `tailscope verify`."""

    slo: str
    """The service level."""
    verdict: Word
    """`pass`, `fail` or `inconclusive`: the worst of all runs."""
    level: float
    """Confidence with which all verdicts hold together."""
    as_it_is: bool = False
    """True if the device was judged with the other programs on its CPU (`--as-it-is`)."""
    runs: tuple[JudgedRun, ...]
    """The runs that were judged: in a run directory, this one."""
