"""Slow wander of a clock from even ticking, as of a crystal that warms up."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from numpy.polynomial import legendre

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]

_LOOKED_AT = 101


class Wander(NamedTuple):
    """A smooth curve of the lateness of ticks, level beyond its ends."""

    first_ns: float
    last_ns: float
    """Beginning and end of the curve, counted from the first packet."""
    coefficients: tuple[float, ...]
    """Coefficients of Legendre polynomials, in nanoseconds, from the second degree: the first is
    the rate."""

    @property
    def largest_ns(self) -> float:
        """Return the largest deviation of a tick."""
        return float(np.max(np.abs(self.at(np.linspace(self.first_ns, self.last_ns, _LOOKED_AT)))))

    def at(self, time_ns: Floats) -> Floats:
        """Return the lateness of ticks at these times."""
        if not self.coefficients:
            return np.zeros(len(time_ns))
        place = _place(time_ns, self.first_ns, self.last_ns)
        return np.asarray(legendre.legval(place, (0.0, 0.0, *self.coefficients)), np.float64)


STEADY = Wander(0.0, 1.0, ())
"""The absence of wander."""


def curves(time_ns: Floats, first_ns: float, last_ns: float, degree: int) -> Floats:
    """Return columns to fit a wander with: Legendre polynomials from degree 2 to `degree`."""
    columns = legendre.legvander(_place(time_ns, first_ns, last_ns), degree)[:, 2:]
    return np.asarray(columns, np.float64)


def _place(time_ns: Floats, first_ns: float, last_ns: float) -> Floats:
    """Scale times to lie between -1 and 1."""
    place = (2 * time_ns - first_ns - last_ns) / (last_ns - first_ns)
    return np.asarray(np.clip(place, -1.0, 1.0), np.float64)


class Track(NamedTuple):
    """A course of the lateness of ticks that is no smooth curve: a timer that strays."""

    time_ns: Floats
    """Times, counted from the first packet."""
    late_ns: Floats
    """Lateness at these times; straight between them, level beyond."""

    @property
    def largest_ns(self) -> float:
        """Return the largest deviation of a tick."""
        return float(np.max(np.abs(self.late_ns)))

    def at(self, time_ns: Floats) -> Floats:
        """Return the lateness of ticks at these times."""
        return np.asarray(np.interp(time_ns, self.time_ns, self.late_ns), np.float64)
