"""The figure of a kept prediction of the highest rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tailscope.report.picture import Axis, Layer, Picture

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope.report.material import Material


def overload(runs: Sequence[Material]) -> Picture | None:
    """The predicted highest rate, beside that of the run."""
    record = runs[0].run.kept.overload if len(runs) == 1 else None
    if record is None:
        return None
    label, sent = runs[0].label, runs[0].run.summary["pre_second_mean_pps"]
    highest, here = np.array([1.0]), np.array([0.0])
    low, high = record.rate_max_pps_ci_low, record.rate_max_pps_ci_high
    predicted_name = "predicted R_max" if high is not None else "R_max, one at a time"
    predicted = {"x": np.array([record.rate_max_pps]), "y": highest}
    measured = {"x": np.array([float(sent or 0)]), "y": here}
    layers = [
        Layer("bars", label, "prediction", predicted),
        Layer("bars", label, "measurement", measured, colour=1),
    ]
    if high is not None:
        interval = {"x": np.array([low]), "x_end": np.array([high]), "y": highest}
        layers.append(Layer("spans", label, "95 % interval", interval, colour=4))
    return Picture(
        "overload",
        "The highest rate, predicted",
        "R_max of the overload model, if the device works on one packet at a time: none were seen"
        " that queued."
        if high is None
        else "R_max of the overload model, from medians at low load, with its 95 % interval; below"
        " it the rate of this run.",
        Axis("packets per second", "packets_per_s", starts_at_zero=True),
        Axis("", "rate", names=("this run", predicted_name)),
        tuple(layers),
        is_predicted=True,
    )
