"""Whether a series keeps its law, by tests of two opposite hypotheses (containers2024, 6.1)."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, NamedTuple

from tailscope.exceptions import EvidenceError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Stationarity", "Tested", "stationarity"]

_CRITICAL = "5%"
_FEWEST = 20
_SEARCH_LAGS_UP_TO = 5000
"""In longer series the number of lags follows from the length alone: to search takes minutes."""


class Tested(NamedTuple):
    """A test of a series.

    Attributes
    ----------
    statistic, critical : float
        What was found, and the value for 5 %.
    p_value : float
        As far as tables reach: 0.01 stands for less, 0.1 for more in that of KPSS.
    lags : int
    """

    statistic: float
    critical: float
    p_value: float
    lags: int


class Stationarity(NamedTuple):
    """What two tests say.

    Attributes
    ----------
    adf : Tested
        Augmented Dickey-Fuller: a statistic below the critical one rejects a unit root.
    kpss : Tested
        Kwiatkowski, Phillips, Schmidt, Shin: one above it rejects that there is none.
    """

    adf: Tested
    kpss: Tested

    @property
    def holds(self) -> bool:
        """Whether both find the series stationary, around a constant."""
        return self.adf.statistic < self.adf.critical and self.kpss.statistic < self.kpss.critical


def stationarity(series: NDArray[np.floating]) -> Stationarity:
    """Test a series in order of time.

    Parameters
    ----------
    series : ndarray of float, shape (n,)

    Raises
    ------
    EvidenceError
        If it is too short, or constant.
    """
    from statsmodels.tsa.stattools import adfuller, kpss

    if len(series) < _FEWEST:
        raise EvidenceError(f"expected a series of at least {_FEWEST} values, got {len(series)}")
    if series.min() == series.max():
        raise EvidenceError(f"expected a series that varies, got {len(series)} times {series[0]:g}")
    how = "AIC" if len(series) <= _SEARCH_LAGS_UP_TO else None
    with warnings.catch_warnings():
        # It warns of each p value that its table does not reach.
        warnings.simplefilter("ignore")
        unit = adfuller(series, autolag=how)
        level = kpss(series, nlags="auto")
    return Stationarity(
        Tested(float(unit[0]), float(unit[4][_CRITICAL]), float(unit[1]), int(unit[2])),
        Tested(float(level[0]), float(level[3][_CRITICAL]), float(level[1]), int(level[2])),
    )
