"""The worst packets over time, measured above predicted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tailscope.report.picture import Axis, Layer, Picture
from tailscope.units import count_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

WORST = 5_000
"""As many packets as the papers draw."""

_NS_PER_US = 1e3
_NS_PER_S = 1e9


def worst_of(
    arrival_ns: NDArray[np.int64], latency_ns: dict[str, NDArray[np.int64]]
) -> list[Picture]:
    """The worst packets of several series, a figure each."""
    time_s = (arrival_ns - arrival_ns[0]) / _NS_PER_S
    found = []
    for colour, (name, series_ns) in enumerate(latency_ns.items()):
        worst = np.sort(np.argsort(-series_ns, kind="stable")[:WORST])
        columns = {"x": time_s[worst], "y": series_ns[worst] / _NS_PER_US}
        found.append(
            Picture(
                f"worst-{name}",
                f"{name}, worst {count_text(len(worst))} packets",
                "",
                Axis("time since the first packet [s]", "time_s", starts_at_zero=True),
                Axis("latency [µs]", "latency_us"),
                (Layer("points", name, "", columns, colour=colour),),
            )
        )
    return found
