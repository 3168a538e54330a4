"""Stationarity of a series, by tests of two opposite hypotheses (containers2024, 6.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.exceptions import EvidenceError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_FEWEST = 20
_SEARCH_LAGS_UP_TO = 5000
"""Longest series for which the number of lags is searched; the search takes minutes in longer
ones."""

_KPSS_CRITICAL = (0.347, 0.463, 0.574, 0.739)
_KPSS_SHARES = (0.10, 0.05, 0.025, 0.01)
_AT_5_PERCENT = 1

_ADF_CRITICAL = (-2.86154, -2.8903, -4.234, -40.040)
"""Critical value at 5 %, in powers of 1/n: J. G. MacKinnon, "Critical values for cointegration
tests" (2010)."""
_ADF_MIDDLE, _ADF_LOWEST, _ADF_HIGHEST = -1.61, -18.83, 2.74
_ADF_SMALL = (2.1659, 1.4412, 0.038269)
_ADF_LARGE = (1.7339, 0.93202, -0.12745, -0.010368)
"""Coefficients of p-values: J. G. MacKinnon, "Approximate asymptotic distribution functions for
unit-root and cointegration tests", J. Bus. Econ. Stat. 12 (1994)."""


class Tested(NamedTuple):
    """A test of a series."""

    statistic: float
    critical: float
    """Statistic of the test, and its critical value at 5 %."""
    p_value: float
    """p-value within the tables: in the KPSS test, 0.01 stands for less and 0.1 for more."""
    lags: int


class Stationarity(NamedTuple):
    """The results of two tests."""

    adf: Tested
    """Augmented Dickey-Fuller test: a statistic below the critical value rejects a unit root."""
    kpss: Tested
    """Kwiatkowski-Phillips-Schmidt-Shin test: a statistic above it rejects stationarity."""

    @property
    def holds(self) -> bool:
        """Return True if both tests find the series stationary around a constant."""
        return self.adf.statistic < self.adf.critical and self.kpss.statistic < self.kpss.critical

    @property
    def denied(self) -> bool:
        """Return True if both tests deny stationarity, or KPSS alone does at 1 %."""
        rejected = self.kpss.statistic >= self.kpss.critical
        unsure = self.adf.statistic >= self.adf.critical
        return (rejected and unsure) or self.kpss.statistic >= _KPSS_CRITICAL[-1]


def stationarity(series: Floats) -> Stationarity:
    """Test a series in order of time."""
    if len(series) < _FEWEST:
        raise EvidenceError(
            f"expected a series of at least {_FEWEST} values, got {len(series)}",
            code="series-short",
        )
    if series.min() == series.max():
        raise EvidenceError(
            f"expected a series that varies, got {len(series)} times {series[0]:g}",
            code="series-constant",
        )
    return Stationarity(_adf(series), _kpss(series))


def _adf(series: Floats) -> Tested:
    """Test with a constant, and with the number of lags of the smallest AIC."""
    from scipy.special import ndtr

    n = len(series)
    lags = min(int(np.ceil(12 * (n / 100) ** 0.25)), n // 2 - 2)
    change = np.diff(series)
    if n <= _SEARCH_LAGS_UP_TO:
        lags = _best_lags(series, change, lags)
    statistic, _ = _regressed(series, change, lags, lags)
    used = len(change) - lags
    critical = float(np.polynomial.polynomial.polyval(1 / used, _ADF_CRITICAL))
    if statistic > _ADF_HIGHEST:
        p_value = 1.0
    elif statistic < _ADF_LOWEST:
        p_value = 0.0
    else:
        terms = _ADF_SMALL if statistic <= _ADF_MIDDLE else _ADF_LARGE
        p_value = float(ndtr(np.polynomial.polynomial.polyval(statistic, terms)))
    return Tested(statistic, critical, p_value, lags)


def _best_lags(series: Floats, change: Floats, most: int) -> int:
    """Choose the number of lags by AIC, all on the same stretch of the series."""
    scores = [_regressed(series, change, lags, most)[1] for lags in range(most + 1)]
    return int(np.argmin(scores))


def _regressed(series: Floats, change: Floats, lags: int, skipped: int) -> tuple[float, float]:
    """Regress each change on the value before it and on the changes before: t, and AIC."""
    n = len(change) - skipped
    columns = [series[skipped:-1]]
    columns += [change[skipped - lag : len(change) - lag] for lag in range(1, lags + 1)]
    given = np.column_stack([*columns, np.ones(n)])
    changes = change[skipped:]
    inverse = np.linalg.pinv(given.T @ given)
    slopes = inverse @ (given.T @ changes)
    left = float(((changes - given @ slopes) ** 2).sum())
    error = np.sqrt(max(left, 1e-300) / (n - given.shape[1]) * inverse[0, 0])
    likelihood = -n / 2 * (np.log(2 * np.pi) + np.log(max(left, 1e-300) / n) + 1)
    return float(slopes[0] / error), float(2 * given.shape[1] - 2 * likelihood)


def _kpss(series: Floats) -> Tested:
    """Test around a constant; lags after B. Hobijn, P. H. Franses, M. Ooms (1998)."""
    n = len(series)
    left = series - series.mean()
    lags = _kpss_lags(left)
    variance = float(left @ left)
    for lag in range(1, lags + 1):
        variance += 2 * float(left[lag:] @ left[:-lag]) * (1 - lag / (lags + 1))
    statistic = float((np.cumsum(left) ** 2).sum()) / (n * variance)
    p_value = float(np.interp(statistic, _KPSS_CRITICAL, _KPSS_SHARES))
    return Tested(statistic, _KPSS_CRITICAL[_AT_5_PERCENT], p_value, lags)


def _kpss_lags(left: Floats) -> int:
    n = len(left)
    most = int(n ** (2 / 9))
    first = float(left @ left) / n
    slope = 0.0
    for lag in range(1, most + 1):
        product = float(left[lag:] @ left[:-lag]) / (n / 2)
        first += product
        slope += lag * product
    factor = 1.1447 * ((slope / first) ** 2) ** (1 / 3)
    return min(int(factor * n ** (1 / 3)), n - 1)
