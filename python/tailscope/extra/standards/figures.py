"""A figure of the variation of delays, as RFC 5481 defines it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tailscope.report.figures.common import NS_PER_US, dash_of, unless_empty
from tailscope.report.figures.latency import ODDS
from tailscope.report.picture import Axis, Layer, Picture
from tailscope.units import QUANTILES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope.report.material import Material
    from tailscope.store.run import Run

_FORMS = {"PDV": "pdv_ns", "IPDV": "ipdv_abs_ns"}


def variation(runs: Sequence[Material]) -> Picture | None:
    """Variation of the delay by percentile, in both forms of RFC 5481."""
    layers = [
        _layer(each.run, form, f"{each.label}, {form}" if len(runs) > 1 else form, number)
        for number, (each, form) in enumerate((each, form) for each in runs for form in _FORMS)
    ]
    return unless_empty(
        Picture(
            "delay-variation",
            "Variation of the delay by percentile",
            "PDV: the latency of a packet less the smallest one. IPDV: its change from the packet"
            " that was sent immediately before, without its sign (RFC 5481).",
            ODDS,
            Axis("variation [µs]", "variation_us", "auto"),
            tuple(layers),
        )
    )


FIGURES = (variation,)


def _layer(run: Run, form: str, label: str, number: int) -> Layer:
    """Draw the supported quantiles of one form."""
    found = {
        1 / (1 - float(name.removeprefix("p")) / 100): float(value) / NS_PER_US
        for quantile, name in QUANTILES.items()
        if (value := run.summary.get(f"{_FORMS[form]}_{quantile}")) is not None
    }
    columns = {"x": np.array([*found]), "y": np.array([*found.values()])}
    return Layer("line", run.label, form, columns, label, number, dash_of(number))
