"""The incomplete beta function and its inverse, and what follows from them; scalars only.

Names and arguments are those of `scipy.special`. The relative error is below 1e-10 for parameters
from 1e-3 to 1e9 and probabilities down to 1e-300; SciPy's own is not.

In the log-odds u = ln(x / (1 - x)) the density of every beta law, x^a (1 - x)^b / B(a, b), is
log-concave, with one mode at x = a / (a + b). Hence three steps:

- the density, by its deviance from the mode and Stirling's errors (C. Loader, *Fast and Accurate
  Computation of Binomial Probabilities*, 2000), so that nothing large cancels;
- the integral from there outwards, away from the mode, in units of that density, by the double
  exponential rule for integrals of exponential decay (H. Takahasi, M. Mori, *Publ. RIMS* 9, 1974);
- the inverse by Newton's method on the logarithm of the integral, which is concave as well: after
  the first step it approaches the root from one side, so that no bracket is needed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Values = NDArray[np.float64]

_NODES = np.linspace(-3.7, 4.6, 256)
_PLACES = np.exp(_NODES - np.exp(-_NODES))
_WEIGHTS = _PLACES * (1 + np.exp(-_NODES)) * (_NODES[1] - _NODES[0])
"""Places and weights of an integral from 0 to infinity whose integrand falls within about 1."""
_UNIT = int(np.searchsorted(_PLACES, 1))
_FALLS = 4.0

_NEAR = 0.3
_FEW = 16.0
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)
_CLOSE = 1e-8
"""Error of a logarithm that Newton's next step squares."""
_MOST_STEPS = 100
_LARGEST_EXPONENT = 700.0


def betainc(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function, the share of a beta law up to x."""
    if not 0 < x < 1:
        return 0.0 if x <= 0 else 1.0
    return math.exp(_tails(a, b, _Place(x, 1 - x, math.log(x), math.log1p(-x))).log_below)


def betaincinv(a: float, b: float, p: float) -> float:
    """Return the place up to which a beta law has the share p."""
    return _at(_log_odds(a, b, p, 1 - p)).x


def stdtrit(df: float, p: float) -> float:
    """Return the quantile of Student's law with `df` degrees of freedom, at least 1."""
    if p > 0.5:
        return -stdtrit(df, 1 - p)
    return -math.sqrt(df) * math.exp(-_log_odds(df / 2, 0.5, 2 * p, 1 - 2 * p) / 2)


def bdtr(k: int, n: int, p: float) -> float:
    """Return the probability of at most k, fewer than n, of n independent events."""
    return math.exp(_tails(n - k, k + 1, _Place(1 - p, p, math.log1p(-p), math.log(p))).log_below)


class _Place(NamedTuple):
    """A place between 0 and 1."""

    x: float
    y: float
    """Its distance from 1."""
    log_x: float
    log_y: float

    def mirrored(self) -> _Place:
        """Return the place as far from 1 as this one is from 0."""
        return _Place(self.y, self.x, self.log_y, self.log_x)


class _Tails(NamedTuple):
    """Logarithms of the shares of a beta law on both sides of a place, and of its density."""

    log_below: float
    log_above: float
    log_density: float


def _at(log_odds: float) -> _Place:
    """Return a place by its log-odds."""
    odds = math.exp(-abs(log_odds))
    more = math.log1p(odds)
    place = _Place(odds / (1 + odds), 1 / (1 + odds), -abs(log_odds) - more, -more)
    return place if log_odds < 0 else place.mirrored()


def _log_odds(a: float, b: float, below: float, above: float) -> float:
    """Return the log-odds of the place that parts a beta law into two shares."""
    if below > above:
        return -_log_odds(b, a, above, below)
    if below <= 0:
        return -math.inf
    wanted, log_odds = math.log(below), math.log(a) - math.log(b)
    for _ in range(_MOST_STEPS):
        tails = _tails(a, b, _at(log_odds))
        lacking = wanted - tails.log_below
        log_odds += lacking * math.exp(tails.log_below - tails.log_density)
        if abs(lacking) < _CLOSE:
            break
    return log_odds


def _tails(a: float, b: float, at: _Place) -> _Tails:
    """Integrate the smaller share; the other one is the rest."""
    density = _log_density(a, b, at)
    if b * at.x <= a * at.y:
        below = min(0.0, density + math.log(_outwards(a, b, at.x, at.y)))
        return _Tails(below, _log_rest(below), density)
    above = min(0.0, density + math.log(_outwards(b, a, at.y, at.x)))
    return _Tails(_log_rest(above), above, density)


def _log_rest(log_share: float) -> float:
    return math.log(-math.expm1(log_share)) if log_share < 0 else -math.inf


def _outwards(a: float, b: float, x: float, y: float) -> float:
    """Integrate a density in log-odds from x, below its mode, down to 0, over the density at x."""
    slope = a * y - b * x
    steep = slope + math.sqrt(slope * slope + 2 * (a + b) * x * y)
    scale = max(2 / steep, 1 / a) if steep > 0 else 1 / a
    change = _change(a, b, x, y, scale * _PLACES)
    while change[_UNIT] < -_FALLS:
        scale /= 2
        change = _change(a, b, x, y, scale * _PLACES)
    return scale * float(np.exp(change) @ _WEIGHTS)


def _change(a: float, b: float, x: float, y: float, w: Values) -> Values:
    """Return by how much the logarithm of a density changes where log-odds are lower by w.

    The density is multiplied by exp(-a w) (y + x exp(-w))^-(a + b); neither x nor y may be rounded.
    """
    if x < y:
        return -a * w - (a + b) * np.log1p(x * np.expm1(-w))
    near = np.minimum(w, _LARGEST_EXPONENT)
    return b * near - a * (w - near) - (a + b) * np.log1p(y * np.expm1(near))


def _log_density(a: float, b: float, at: _Place) -> float:
    """Return the logarithm of a beta law's density in log-odds."""
    n = a + b
    from_mode = b * at.x - a * at.y
    deviance = -a * _bend(from_mode / a, at.log_x - math.log(a / n)) - b * _bend(
        -from_mode / b, at.log_y - math.log(b / n)
    )
    at_mode = math.log(a / n * b / (2 * math.pi)) / 2
    errors = _stirling_error(n) - _stirling_error(a) - _stirling_error(b)
    return at_mode + errors - deviance


def _bend(z: float, log1p_z: float) -> float:
    """Return ln(1 + z) - z, without cancellation where z is small."""
    if abs(z) > _NEAR:
        return log1p_z - z
    ratio = z / (2 + z)
    total, term, odd = 0.0, ratio**3, 3
    while total + term / odd != total:
        total, term, odd = total + term / odd, term * ratio * ratio, odd + 2
    return 2 * total - ratio * z


def _stirling_error(z: float) -> float:
    """Return the logarithm of the gamma function less Stirling's formula."""
    if z < _FEW:
        return math.lgamma(z) - (z - 0.5) * math.log(z) + z - math.log(2 * math.pi) / 2
    power, total = 1 / z, 0.0
    for coefficient in _STIRLING:
        total += coefficient * power
        power /= z * z
    return total
