"""A figure of what several instruments saw of one device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tailscope.report.picture import Axis, Layer, Picture

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailscope.engine.analysis import Analysis

_BUCKET_NS = 100
_NS_PER_US = 1e3


def instruments(found: Mapping[str, Analysis], truth: Sequence[tuple[float, float]]) -> Picture:
    """The complementary distribution that each instrument saw, and the truth."""
    layers = []
    for colour, (name, analysis) in enumerate(found.items()):
        bucket_ns, counts = analysis.histogram(_BUCKET_NS)
        beyond = 1 - np.cumsum(counts) / counts.sum()
        seen = beyond > 0
        columns = {"x": bucket_ns[seen] / _NS_PER_US, "y": beyond[seen]}
        layers.append(Layer("steps", name, "", columns, name, colour))
    true_ns, share = (np.array(each, np.float64) for each in zip(*truth, strict=True))
    columns = {"x": true_ns / _NS_PER_US, "y": share}
    layers.append(Layer("line", "truth", "", columns, "truth", len(layers), "dashed"))
    return Picture(
        "instruments",
        "What each instrument saw of a device of known latency",
        "",
        Axis("latency [µs]", "latency_us", "log"),
        Axis("share of packets beyond", "share_above", "log"),
        tuple(layers),
    )
