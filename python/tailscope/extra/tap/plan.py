"""The plan of a tap: everything that is known before it hears its first packet."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailscope.exceptions import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from tailscope.verdict.slo import Level, Term

_KINDS = ("latency", "max", "loss")
_COUNTS = ("lost", "reordered", "duplicated")


@dataclass(frozen=True, kw_only=True)
class TapPlan:
    """What is heard, how it is judged, and where it goes."""

    pre: str
    post: str
    """The interfaces by which packets come and leave."""
    taps: bool
    """True if packets come in by both of them: taps or mirror ports feed them."""
    card_clock: str | None
    """The clock of the cards that take times; None if the kernel does."""
    filter: str
    program: str
    """The filter, and what it was compiled to."""
    match_on: str
    window_ns: int
    bucket_ns: int
    worst: int
    """Number of worst packets to keep."""
    keep: int
    """Number of the worst packets that captures are kept of."""
    lasts_s: float | None
    """Its duration; None until somebody ends it."""
    level: Level | None
    out: Path | None
    json_file: str | None
    metrics: str | None
    """A file, or ADDRESS:PORT."""

    @property
    def limits_ns(self) -> tuple[int, ...]:
        """The latencies from which on packets are beyond a term: each of a term about times."""
        terms = () if self.level is None else self.level.terms
        return tuple(dict.fromkeys(beyond_ns(term) for term in terms if term.is_time))

    @property
    def lines(self) -> list[tuple[str, str]]:
        """The plan as rows of names and values."""
        way = "comes in on both" if self.taps else "comes in on the first, leaves by the second"
        rows = {
            "interfaces": f"{self.pre} and {self.post}: what {way}",
            "times": f"the cards', by {self.card_clock}" if self.card_clock else "the kernel's",
            "filter": self.filter or "none",
            "matching": f"on {self.match_on}, window {self.window_ns / 1e9:g} s",
            "duration": "until Ctrl-C" if self.lasts_s is None else f"{self.lasts_s:g} s",
            "service level": "none" if self.level is None else self.level.text,
            "run": "none" if self.out is None else str(self.out),
            "captures": f"around the {self.keep} worst packets" if self.out else "none",
            "metrics": self.metrics or "none",
        }
        return list(rows.items())


def beyond_ns(term: Term) -> int:
    """Return the latency from which on packets are beyond the limit of a term."""
    return math.floor(term.limit) + 1 if term.operator == "<=" else math.ceil(term.limit)


def refuse_unknown_terms(level: Level) -> None:
    """Refuse terms about what a tap does not see."""
    for term in level.terms:
        if term.kind in _KINDS or term.name in _COUNTS:
            continue
        raise UsageError(
            f"--slo: {term.text}: a tap does not know {term.name}",
            code="slo-figure",
            hint=f"expected terms about pQ, max, loss, {', '.join(_COUNTS)}",
        )
