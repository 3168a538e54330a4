"""The largest latency to expect from what follows."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.extra.tail.models.pareto import Pareto

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tailscope.extra.tail.models.causes import Rare
    from tailscope.extra.tail.models.fit import Fit

    Floats = NDArray[np.float64]

_POINTS, _REACH = 1200, 1e3
_LAWS = 600
_PARETO_OF = 30

NEW_CLASS, NEW_CLASS_TIMES = 0.1, 10.0
"""Probability of a class of bursts that has not been seen, and its largest factor: in a tenth of
the public runs of containers2024, up to 10 times."""

DRIFT = 0.01
"""Change of a tail's scale within minutes."""

_BLOCKS = 30
_FEWER = 2
"""Factor by which fewer events may follow than expected: of rare bursts that the first fifth of
public runs held, the rest had a sixth as many."""


class Outlook(NamedTuple):
    """The expected latencies of what follows."""

    level_ns: float
    """Latency that one burst is expected to exceed."""
    low_ns: float
    """Lower end of the predictive interval of the largest latency."""
    high_ns: float | None
    """Upper end; None if the data give no bound."""
    known_high_ns: float
    """Upper end if only the observed causes act."""
    expected_rare: float
    """Expected number of rare or scheduled bursts above the level."""

    def widened(self, low_ns: float, high_ns: float) -> Outlook:
        """Widen the interval to reach as far as another."""
        return self._replace(
            low_ns=min(self.low_ns, low_ns),
            high_ns=None if self.high_ns is None else max(self.high_ns, high_ns),
            known_high_ns=max(self.known_high_ns, high_ns),
        )


def exchangeable_ns(maxima_ns: Floats, ratio: float, level: float) -> float:
    """Return a latency that what follows exceeds whatever the law is, if times are alike.

    That all maxima of what follows lie below the k-th largest of n in what was seen has the
    probability 1/(1 + ratio)^k, about; half the ratio is taken, for rates drift.
    """
    rank = int(np.ceil(np.log((1 - level) / 2) / -np.log1p(ratio / _FEWER)))
    ordered = np.sort(maxima_ns)[::-1]
    return float(ordered[min(rank, len(ordered)) - 1])


def block_maxima(sent_ns: Floats, worst_ns: Floats, duration_ns: float, floor_ns: float) -> Floats:
    """Return the maximum of each of 30 blocks of equal duration; the floor for an empty block."""
    maxima = np.full(_BLOCKS, float(floor_ns))
    place = np.minimum((sent_ns * (_BLOCKS / max(duration_ns, 1))).astype(int), _BLOCKS - 1)
    np.maximum.at(maxima, place, worst_ns)
    return maxima


def look_ahead(
    fit: Fit,
    classes: Sequence[Rare | None],
    ratio: float,
    floor_ns: float,
    worst_ns: float,
    level: float,
) -> Outlook:
    """Put the law, rare bursts and what has not been seen yet together."""
    rare = [rare_class for rare_class in classes if rare_class is not None]
    latency = np.geomspace(max(fit.threshold_ns, 1), _REACH * worst_ns, _POINTS)
    survival = _survivals(fit, latency)
    seen = len(fit.bursts)
    # The rate is as uncertain as so many bursts leave it: a gamma law, not a number.
    below = ((1 + ratio * survival) ** -float(seen)).mean(0)
    bulk = np.maximum(seen * ratio * survival.mean(0), _in_logs(fit, ratio, latency))
    more = np.zeros_like(latency)
    for rare_class in rare:
        larger = rare_class.larger(latency)
        below = below * (1 + ratio * larger) ** -float(len(rare_class))
        more += len(rare_class) * ratio * larger
    expected = _where_one(latency, bulk + more / _FEWER)
    if not rare:
        expected = max(expected, worst_ns if ratio >= 1 else 0.0) * (1 + DRIFT)
    return Outlook(
        expected,
        min(floor_ns, _quantile(latency, below, (1 - level) / 2), worst_ns),
        _with_new(latency, below, sum(map(len, rare)), worst_ns, level),
        max(_quantile(latency, below, (1 + level) / 2), worst_ns),
        float(np.interp(expected, latency, more)),
    )


def _with_new(
    latency: Floats, below: Floats, rare: int, worst_ns: float, level: float
) -> float | None:
    """Return the upper end with unseen causes; None if one burst is all that is known of a class.

    Where a class of rare bursts is known, the next one is of it.
    """
    if rare == 1:
        return None
    if not rare:
        times = np.log(np.maximum(latency / worst_ns, 1)) / np.log(NEW_CLASS_TIMES)
        below = below * (1 - NEW_CLASS * (1 - np.minimum(times, 1)))
    return max(_quantile(latency, below, (1 + level) / 2), worst_ns)


def _survivals(fit: Fit, latency: Floats) -> Floats:
    """Return survivals of laws drawn by their weights, shape (n_laws, n_latencies)."""
    weight = np.bincount(fit.laws.which, fit.laws.weight, len(fit.laws.distinct.xi))
    steps = (np.arange(_LAWS) + 0.5) / _LAWS
    drawn = np.searchsorted(np.cumsum(weight) / weight.sum(), steps)
    drawn = np.minimum(drawn, len(weight) - 1)
    laws = Pareto(fit.laws.distinct.xi[drawn, None], fit.laws.distinct.sigma[drawn, None])
    return laws.survival(np.maximum(latency - fit.threshold_ns, 0))


def _in_logs(fit: Fit, ratio: float, latency: Floats) -> Floats:
    """Return the bursts expected above a latency, if the largest follow a power law.

    The mean over all its plausible indices (Hill's, of the 30 largest). Such a law has no end, and
    guards against one that ends too early.
    """
    ordered = np.sort(fit.bursts.worst_ns.astype(float))[::-1]
    count = min(_PARETO_OF, len(ordered) - 1)
    base = ordered[count]
    index = max(float(np.log(ordered[:count] / base).mean()), 1e-9)
    beyond = np.log(np.maximum(latency / base, 1))
    return np.asarray(count * ratio * (1 + beyond / (count * index)) ** -float(count))


def _quantile(latency: Floats, below: Floats, share: float) -> float:
    return float(np.interp(share, below, latency))


def _where_one(latency: Floats, expected: Floats) -> float:
    """Return the latency above which one is expected; the first one if fewer are anywhere."""
    return float(np.exp(np.interp(0, -np.log(expected + 1e-300), np.log(latency))))
