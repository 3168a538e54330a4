"""The worst packets over time, measured above predicted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from tailscope.report.drawing import COLOURS, POINT, SETTINGS, VECTORS_UP_TO, WIDTH_IN, save
from tailscope.text import count_text, printable

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["WORST", "write_worst"]

WORST = 5_000
"""As many packets as the papers draw."""

_HEIGHT_IN = 5.4
_NS_PER_US = 1e3
_NS_PER_S = 1e9


def write_worst(
    path: Path,
    kind: str,
    label: str,
    arrival_ns: NDArray[np.int64],
    latency_ns: dict[str, NDArray[np.int64]],
) -> None:
    """Draw the worst packets of several series, one above the other, on the same axes.

    Parameters
    ----------
    path : Path
        Where the figure shall be.
    kind : {"png", "svg", "pdf"}
    label : str
        What the run is called.
    arrival_ns : ndarray of int64, shape (n,)
    latency_ns : dict of str to ndarray of int64, each of shape (n,)
        What each series is called, and its latencies.
    """
    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=(WIDTH_IN, _HEIGHT_IN), layout="constrained")
        panels = figure.subplots(len(latency_ns), sharex=True, sharey=True, squeeze=False)[:, 0]
        time_s = (arrival_ns - arrival_ns[0]) / _NS_PER_S
        for axes, colour, (name, series_ns) in zip(
            panels, COLOURS, latency_ns.items(), strict=False
        ):
            worst = np.sort(np.argsort(-series_ns, kind="stable")[:WORST])
            axes.plot(
                time_s[worst],
                series_ns[worst] / _NS_PER_US,
                ".",
                color=colour,
                rasterized=len(worst) > VECTORS_UP_TO,
                **POINT,
            )
            axes.set_title(f"{name}, worst {count_text(len(worst))} packets", loc="left")
            axes.set_ylabel("latency [µs]")
            axes.grid(visible=True)
            axes.set_axisbelow(True)
        panels[-1].set_xlabel("time since the first packet [s]")
        figure.suptitle(printable(label), x=0.01, ha="left", fontsize="medium")
        save(figure, path, kind)
