"""Two set-ups that were measured by turns: which of them is slower, and by how much."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tailscope.extra.duet.paired import error_of_look, pairs_of_look, pairs_to_settle, shift
from tailscope.models.differences import Bounds
from tailscope.models.estimate import LEVEL
from tailscope.verdict.verdict import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope.compare.limits import Limit
    from tailscope.extra.duet.paired import Pair

_OWN_SHARE = 0.5
"""A block is set aside if so much of a figure is the instrument's own."""


@dataclass(frozen=True)
class Finding:
    """The result of all pairs for one limit."""

    limit: Limit
    outcome: Outcome
    difference: Bounds
    """Difference of B from A: a share of A for a relative limit, else in the figure's unit. It
    includes what the instrument's stalls leave open.
    """
    pairs: int
    set_aside: int
    """Pairs that count, and pairs that are set aside because the instrument stalled too long."""
    pairs_to_settle: int | None
    """Number of pairs that would decide the limit if nothing changes; None if it is decided, or no
    number would.
    """

    @property
    def is_real(self) -> bool:
        """True if there is a difference at all."""
        return self.difference.low > 0 or self.difference.high < 0

    def record(self) -> dict[str, Any]:
        """Return the result as JSON has it."""
        ends = [end if math.isfinite(end) else None for end in self.difference]
        names = ("difference", "difference_ci_low", "difference_ci_high")
        return {
            "limit": self.limit.text,
            "figure": self.limit.figure.name,
            "unit": "share" if self.limit.share else self.limit.figure.unit,
            "verdict": str(self.outcome),
            **dict(zip(names, ends, strict=True)),
            "pairs": self.pairs,
            "set_aside": self.set_aside,
            "pairs_to_settle": self.pairs_to_settle,
        }


class Judge:
    """Looks at pairs as they come, more and more rarely, and judges limits."""

    def __init__(self, limits: Sequence[Limit]) -> None:
        self._limits, self._looks = limits, 0
        self.pairs: list[Pair] = []
        self.findings: list[Finding] = []

    def add(self, pair: Pair) -> None:
        """Take a pair, and look if it is time to."""
        self.pairs.append(pair)
        if not self.left:
            self._looks += 1
            error = error_of_look(self._looks, 1 - LEVEL) / len(self._limits)
            self.findings = [self._find(limit, error) for limit in self._limits]

    @property
    def left(self) -> int:
        """Number of pairs until the next look."""
        return max(0, pairs_of_look(self._looks + 1) - len(self.pairs))

    @property
    def is_decided(self) -> bool:
        """True if one limit is shown to be exceeded, or all are shown to be kept."""
        outcomes = {finding.outcome for finding in self.findings}
        return Outcome.FAIL in outcomes or outcomes == {Outcome.PASS}

    def _find(self, limit: Limit, error: float) -> Finding:
        counted = [pair for pair in self.pairs if not _is_spoilt(pair, limit)]
        set_aside = len(self.pairs) - len(counted)
        if not counted:
            nothing = Bounds(math.nan, -math.inf, math.inf)
            return Finding(limit, Outcome.INCONCLUSIVE, nothing, 0, set_aside, None)
        ends = [
            shift(np.array([_difference(pair, limit, least=least) for pair in counted]), error)
            for least in (False, True)
        ]
        most = math.log1p(limit.share) if limit.share else limit.added
        outcomes = {_outcome(each, most) for each in ends}
        outcome = outcomes.pop() if len(outcomes) == 1 else Outcome.INCONCLUSIVE
        wanted = None
        if outcome is Outcome.INCONCLUSIVE:
            wants = [pairs_to_settle(each, most, len(counted)) for each in ends]
            numbers = [want for want in wants if want is not None]
            wanted = max(numbers) if len(numbers) == len(wants) else None
        low, high = min(each.low for each in ends), max(each.high for each in ends)
        whole = Bounds(ends[0].value, low, high)
        if limit.share:
            whole = Bounds(*(math.expm1(end) if math.isfinite(end) else end for end in whole))
        return Finding(limit, outcome, whole, len(counted), set_aside, wanted)


def _difference(pair: Pair, limit: Limit, *, least: bool) -> float:
    """Return the difference of B from A: the logarithm of their ratio for a relative limit."""
    q = limit.figure.quantile
    if q is None:
        return pair.b.lost_share - pair.a.lost_share
    a, b = (block.quantile(q, least=least) for block in (pair.a, pair.b))
    return math.log(b / a) if limit.share else float(b - a)


def _is_spoilt(pair: Pair, limit: Limit) -> bool:
    """Return whether most of a block's figure is due to the instrument's stalls."""
    q = limit.figure.quantile
    return q is not None and any(
        block.quantile(q, least=True) < (1 - _OWN_SHARE) * block.quantile(q, least=False)
        for block in (pair.a, pair.b)
    )


def _outcome(difference: Bounds, most: float) -> Outcome:
    if difference.low > most:
        return Outcome.FAIL
    return Outcome.PASS if difference.high <= most else Outcome.INCONCLUSIVE
