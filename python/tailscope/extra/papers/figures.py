"""Figures as the papers draw them, where a page would have them apart."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tailscope.report.figures.common import TIME
from tailscope.report.figures.noise import interrupt_rates
from tailscope.report.picture import Axis, Layer, Picture

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope.report.material import Material


def worst_and_interrupts(runs: Sequence[Material]) -> Picture | None:
    """Draw the worst packets and interrupts of their cores together, as containers2024 does."""
    rates, worst = interrupt_rates(runs), runs[0].run.worst
    if rates is None or not len(worst.latency_ns):
        return None
    packets = {
        "x": runs[0].since_s(worst.pre_ns),
        "y": worst.latency_ns / worst.latency_ns.max(),
    }
    name = "latency of the worst packets"
    return Picture(
        "worst-and-interrupts",
        "Worst packets and interrupts over time",
        "Each as a share of its largest value: latencies, and interrupts per second by counter.",
        TIME,
        Axis("share of the largest", "share_of_largest", starts_at_zero=True),
        (
            Layer("points", runs[0].label, name, packets, name),
            *(_normalised(layer) for layer in rates.layers),
        ),
    )


FIGURES = (worst_and_interrupts,)


def _normalised(layer: Layer) -> Layer:
    """Divide a counter's rates by the highest, and keep the first colour for packets."""
    y = layer.columns["y"]
    return replace(layer, columns={**layer.columns, "y": y / y.max()}, colour=layer.colour + 1)
