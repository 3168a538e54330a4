"""Two set-ups that were measured by turns: which of them is slower, and by how much."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.compare.figures import LOST
from tailscope.extra.duet.paired import error_of_look, pairs_of_look, pairs_to_settle, shift
from tailscope.models.differences import Bounds
from tailscope.models.estimate import LEVEL
from tailscope.verdict.verdict import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tailscope.compare.limits import Limit
    from tailscope.extra.duet.paired import Pair

_OWN_SHARE = 0.5
"""A block is set aside if so much of a figure is the instrument's own."""
_MOST_PROGRAMS, _NOTED = 3, 0.01
"""Programs that are named, and the share of a CPU from which one is."""
_BUSY = 0.1
"""Share of the time that a generator stands still, from which a machine is busy."""
_LOOKS, _TIMES_LEFT = 6, 2
"""Looks before a duet is given up, and how many times the pairs that are left it would need."""


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
    compared_share: float = 0.0
    """Share of the packets that were compared; other programs held a CPU soon after the rest."""
    undiscounted: int = 0
    """Number of pairs of which all packets were compared, as too few met no other program."""

    @property
    def is_real(self) -> bool:
        """True if there is a difference at all."""
        return self.difference.low > 0 or self.difference.high < 0

    @property
    def pairs_at_best(self) -> float:
        """Number of pairs that would decide the limit if the difference were none, or twice it.

        If what was found is farther from the limit than these, it is that.
        """
        at = self.limit.share or self.limit.added
        away = max(abs(at), abs(self.difference.value - at))
        reach = (self.difference.high - self.difference.low) / 2
        if not self.pairs or not away or not math.isfinite(reach):
            return math.inf
        return self.pairs * (reach / away) ** 2

    def record(self) -> dict[str, object]:
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
            "compared_share": self.compared_share,
            "undiscounted": self.undiscounted,
        }


class _Compared(NamedTuple):
    """What a pair says of a limit: the difference of B from A, its logarithm if it is relative."""

    difference: float
    least: float
    """As measured, and without the instrument's stalls."""
    share: float
    """Share of the packets that were compared."""
    is_undiscounted: bool
    """True if all were, though some met another program."""


class Judge:
    """Looks at pairs as they come, more and more rarely, and judges limits."""

    def __init__(self, limits: Sequence[Limit]) -> None:
        self._compared: list[tuple[Limit, list[_Compared]]] = [(limit, []) for limit in limits]
        self._looks = self._pairs_looked_at = 0
        self._programs_ns: Counter[str] = Counter()
        self._watched_ns = 0
        self._stalled: list[float] = []
        self._sent, self._lost = np.zeros(2, np.int64), np.zeros(2, np.int64)
        self.pairs = 0
        self.findings: list[Finding] = []

    def add(self, pair: Pair) -> None:
        """Take a pair, and look if it is time to."""
        self.pairs += 1
        self._sent += [len(block.latency_ns) for block in (pair.a, pair.b)]
        self._lost += [block.lost for block in (pair.a, pair.b)]
        for block in (pair.a, pair.b):
            self._programs_ns += block.others.programs_ns
            self._watched_ns += block.others.watched_ns
            self._stalled.append(block.stalled_share)
        for limit, compared in self._compared:
            if (of_pair := _compare(pair, limit)) is not None:
                compared.append(of_pair)
        if not self.left:
            self._look()

    def finish(self) -> None:
        """Look once more at the end, at the pairs that have come since the last look."""
        if self.findings and not self.is_decided and self.pairs > self._pairs_looked_at:
            self._look()

    def _look(self) -> None:
        self._looks += 1
        self._pairs_looked_at = self.pairs
        error = error_of_look(self._looks, 1 - LEVEL) / len(self._compared)
        self.findings = [self._find(*each, error) for each in self._compared]

    @property
    def left(self) -> int:
        """Number of pairs until the next look."""
        return max(0, pairs_of_look(self._looks + 1) - self.pairs)

    @property
    def is_decided(self) -> bool:
        """True if one limit is shown to be exceeded, or all are shown to be kept."""
        outcomes = {finding.outcome for finding in self.findings}
        return Outcome.FAIL in outcomes or outcomes == {Outcome.PASS}

    @property
    def others(self) -> dict[str, float] | None:
        """Shares of a CPU of the programs that held the blocks' CPUs most; None if unknown."""
        if not self._watched_ns:
            return None
        most = self._programs_ns.most_common(_MOST_PROGRAMS)
        shares = {name: ns / self._watched_ns for name, ns in most}
        return {name: share for name, share in shares.items() if share >= _NOTED}

    @property
    def stalled_share(self) -> float:
        """Share of the time that the generators stood still."""
        return float(np.mean(self._stalled))

    @property
    def lost_shares(self) -> tuple[float, float]:
        """Shares of the packets of A and of B that never came back."""
        of_a, of_b = (self._lost / self._sent).tolist()
        return of_a, of_b

    @property
    def is_busy(self) -> bool:
        """Return whether other programs take so much that the machine may be why."""
        return self.stalled_share >= _BUSY

    def is_hopeless(self, pairs_left: float) -> bool:
        """Return whether the machine is too busy for so many more pairs to decide anything."""
        if self._looks < _LOOKS or self.is_decided or not self.is_busy:
            return False
        most = self.pairs + _TIMES_LEFT * pairs_left
        undecided = (each for each in self.findings if each.outcome is Outcome.INCONCLUSIVE)
        return all(finding.pairs_at_best > most for finding in undecided)

    def _find(self, limit: Limit, compared: Sequence[_Compared], error: float) -> Finding:
        set_aside = self.pairs - len(compared)
        if not compared:
            nothing = Bounds(math.nan, -math.inf, math.inf)
            return Finding(limit, Outcome.INCONCLUSIVE, nothing, 0, set_aside, None)
        *differences, shares, undiscounted = np.array(compared).T
        shifts = ends = [shift(of_end, error) for of_end in differences]
        if limit.figure == LOST:
            ends = [_with_mean(end, of) for end, of in zip(shifts, differences, strict=True)]
        most = math.log1p(limit.share) if limit.share else limit.added
        outcomes = {_outcome(each, most) for each in ends}
        outcome = outcomes.pop() if len(outcomes) == 1 else Outcome.INCONCLUSIVE
        wanted = None
        # More pairs bring ends closer that are of the shift, on one side of the limit.
        may_settle = ends == shifts and len({each.value > most for each in ends}) == 1
        if outcome is Outcome.INCONCLUSIVE and may_settle:
            wants = [pairs_to_settle(each, most, len(compared)) for each in ends]
            numbers = [want for want in wants if want is not None]
            wanted = max(numbers) if len(numbers) == len(wants) else None
        low, high = min(each.low for each in ends), max(each.high for each in ends)
        whole = Bounds(ends[0].value, low, high)
        if limit.share:
            whole = Bounds(*(math.expm1(end) if math.isfinite(end) else end for end in whole))
        return Finding(
            limit,
            outcome,
            whole,
            len(compared),
            set_aside,
            wanted,
            float(np.mean(shares)),
            int(undiscounted.sum()),
        )


def _compare(pair: Pair, limit: Limit) -> _Compared | None:
    """Compare the blocks of a pair; None if most of a figure is due to the instrument's stalls."""
    q = limit.figure.quantile
    if q is None:
        lost_more = pair.b.lost_share - pair.a.lost_share
        return _Compared(lost_more, lost_more, 1.0, is_undiscounted=False)
    within_ns = pair.within_ns(q)
    found, least = (
        [block.quantile(q, least=is_least, within_ns=within_ns) for block in (pair.a, pair.b)]
        for is_least in (False, True)
    )
    if any(low < (1 - _OWN_SHARE) * high for low, high in zip(least, found, strict=True)):
        return None
    share = np.mean([block.left_free(within_ns).mean() for block in (pair.a, pair.b)])
    return _Compared(
        _difference(found, limit),
        _difference(least, limit),
        float(share),
        is_undiscounted=not within_ns and pair.met_others,
    )


def _difference(figures: Sequence[int], limit: Limit) -> float:
    a, b = figures
    return math.log(b / a) if limit.share else float(b - a)


def _with_mean(bounds: Bounds, differences: NDArray[np.float64]) -> Bounds:
    """Include the mean: losses in few blocks move no median, and are losses all the same."""
    lost_more = float(np.mean(differences))
    return Bounds(bounds.value, min(bounds.low, lost_more), max(bounds.high, lost_more))


def _outcome(difference: Bounds, most: float) -> Outcome:
    if difference.low > most:
        return Outcome.FAIL
    return Outcome.PASS if difference.high <= most else Outcome.INCONCLUSIVE
