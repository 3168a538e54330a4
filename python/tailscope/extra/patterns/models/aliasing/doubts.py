"""Tests of a clock that was found: a permutation test, and signs that contradict the clock."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tailscope.extra.patterns.models.aliasing.search import Delayed

if TYPE_CHECKING:
    from tailscope.extra.patterns.models.aliasing.comb import Comb, Floats
    from tailscope.extra.patterns.models.aliasing.prediction import Prediction
    from tailscope.extra.patterns.models.aliasing.search import FoundComb
    from tailscope.extra.patterns.models.aliasing.simulation import Times

LEAST_AGREEMENT = 0.6
"""Smallest share of the delayed packets that credible sources explain."""

_PERMUTATIONS = 1999
_ENOUGH_ROWS = 1000
_SEED = 0
_MULTIPLES = 64
_STEADY = 0.5
_ENOUGH_PACKETS = 20_000
_TOO_MANY = 1.5
_SIGMAS = 3.0
_TOO_WIDE = 0.5


def p_value(clock: FoundComb, arrival_ns: Times, wait_ns: Times) -> float:
    """Return the probability that packets without a clock look as much like one.

    There are two ways without a clock. Packets may be delayed at random: `FoundComb.chance` is a
    bound. Or delays may recur with the packets, as work with every 32nd of them: then the waits
    could as well be exchanged among those who waited, and as many would leave together.
    """
    delayed = Delayed(arrival_ns, wait_ns, clock.threshold_ns)
    leave_ns, waited_ns = delayed.departures(_ENOUGH_ROWS)
    came_ns = leave_ns - waited_ns
    together = _together(clock.comb, leave_ns)
    rng = np.random.default_rng(_SEED)
    as_many = sum(
        _together(clock.comb, came_ns + rng.permutation(waited_ns)) >= together
        for _ in range(_PERMUTATIONS)
    )
    return max(min(1.0, clock.chance), (1 + as_many) / (1 + _PERMUTATIONS))


def _together(comb: Comb, leave_ns: Floats) -> int:
    """Return the most departures that a window as wide as a tooth catches, wherever it lies."""
    _, group, away_ns = comb.nearest(leave_ns)
    away_ns = np.sort(away_ns[group >= 0])
    until = np.searchsorted(away_ns, away_ns + 2 * comb.reach_ns, "right")
    return int(np.max(until - np.arange(len(away_ns)), initial=0))


def in_step(period_ns: float, arrival_ns: Times) -> int | None:
    """Find out whether packets keep to this period themselves, or to a multiple of its rate.

    Then nothing tells a clock from work that comes with every so many packets.
    """
    rng = np.random.default_rng(_SEED)
    if len(arrival_ns) > _ENOUGH_PACKETS:
        arrival_ns = rng.choice(arrival_ns, _ENOUGH_PACKETS, replace=False)
    turn = np.exp(2j * np.pi * (arrival_ns / period_ns % 1.0))
    turned = np.ones(len(turn), complex)
    for multiple in range(1, _MULTIPLES + 1):
        turned *= turn
        if abs(turned.mean()) > _STEADY:
            return multiple
    return None


def too_many(predicted: int, measured: int) -> str | None:
    """Say why sources are none that would delay far more than was delayed; None if they do not."""
    if predicted <= _TOO_MANY * measured + _SIGMAS * math.sqrt(measured):
        return None
    return f"it would delay {predicted} packets, and {measured} were delayed"


def mismatch(prediction: Prediction) -> str | None:
    """Say why the packets of a run contradict the sources found in it; None if they do not."""
    agreement = prediction.agreement or 0.0
    if agreement < LEAST_AGREEMENT:
        return (
            f"only {agreement:.1%} of the delayed packets took what it predicts, expected at least"
            f" {LEAST_AGREEMENT:.0%}"
        )
    if doubt := too_many(prediction.predicted["delayed"], prediction.measured["delayed"]):
        return doubt
    tolerance_ns, delay_ns = prediction.tolerance_ns, prediction.delay_ns_p50
    if tolerance_ns >= _TOO_WIDE * delay_ns:
        return (
            f"packets without delay scatter by {tolerance_ns / 1e3:.3f} µs, half the delayed ones"
            f" were late by less than {delay_ns / 1e3:.3f} µs: any prediction would meet them"
        )
    return None
