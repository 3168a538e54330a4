"""How a clock strays from even ticking, slowly, as crystals do when they warm up."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from numpy.polynomial import legendre

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]

_LOOKED_AT = 101


class Wander(NamedTuple):
    """A smooth curve: how late ticks are against even ones. Beyond its ends it is level."""

    first_ns: float
    last_ns: float
    """When it begins and ends, counted from the first packet."""
    coefficients: tuple[float, ...]
    """Of Legendre polynomials, in nanoseconds, from the second degree on: the first is the rate."""

    @property
    def largest_ns(self) -> float:
        """The most that a tick is early or late."""
        return float(np.max(np.abs(self.at(np.linspace(self.first_ns, self.last_ns, _LOOKED_AT)))))

    def at(self, time_ns: Floats) -> Floats:
        """How late ticks are at these times."""
        if not self.coefficients:
            return np.zeros(len(time_ns))
        place = _place(time_ns, self.first_ns, self.last_ns)
        return np.asarray(legendre.legval(place, (0.0, 0.0, *self.coefficients)), np.float64)


STEADY = Wander(0.0, 1.0, ())
"""No wander at all."""


def curves(time_ns: Floats, first_ns: float, last_ns: float, degree: int) -> Floats:
    """Columns to fit a wander with: Legendre polynomials from the second degree to `degree`."""
    columns = legendre.legvander(_place(time_ns, first_ns, last_ns), degree)[:, 2:]
    return np.asarray(columns, np.float64)


def _place(time_ns: Floats, first_ns: float, last_ns: float) -> Floats:
    """Times between -1 and 1."""
    place = (2 * time_ns - first_ns - last_ns) / (last_ns - first_ns)
    return np.asarray(np.clip(place, -1.0, 1.0), np.float64)
