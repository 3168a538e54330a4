"""Prediction of latencies from the fitted sources, to compare with the measured ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tailscope.extra.patterns.models.aliasing.served import as_served
from tailscope.extra.patterns.models.aliasing.simulation import in_window, lateness, simulate
from tailscope.extra.patterns.models.aliasing.sources import median_ns

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailscope.extra.patterns.models.aliasing.simulation import RecordedInterruptions, Times
    from tailscope.extra.patterns.models.aliasing.sources import Fit

_ONE_IN = {"p50": 2, "p99": 100, "p999": 1_000, "p9999": 10_000}


@dataclass(frozen=True)
class Prediction:
    """Predicted and measured figures."""

    latency_ns: Times
    """Predicted latency of each packet."""
    measured: Mapping[str, int]
    predicted: Mapping[str, int]
    """Quantiles, largest latency, and number of delayed packets."""
    tolerance_ns: int
    """Distance of undelayed packets above their median, at least the resolution."""
    delay_ns_p50: int
    """Median delay of the packets measured as delayed, above the median latency; 0 without any."""
    agreement: float | None
    """Share of the packets measured as delayed whose prediction is within the tolerance."""


def predict(fitted: Fit, arrival_ns: Times, latency_ns: Times) -> Prediction:
    """Let the packets of a run meet the sources once more."""
    assert not fitted.in_batches, "the latency of a packet is that of its queue"
    assert fitted.threshold_ns is not None, "only sources tell which packets are delayed"
    came_ns = arrival_ns - arrival_ns[0]
    base_ns, service_ns = fitted.base_latency_ns, fitted.service_ns
    done = as_served(came_ns, latency_ns, base_ns, service_ns)
    waits = [source.periodic for source in fitted.sources if source.window_ns is None]
    longer_ns = np.zeros(len(came_ns), np.int64)
    for source in fitted.sources:
        if source.window_ns is not None:
            is_met = in_window(done.begin_ns + base_ns, source.periodic, source.window_ns)
            longer_ns[is_met] += source.periodic.duration_ns
    predicted_ns = longer_ns + simulate(
        came_ns, waits, base_ns=base_ns, service_ns=service_ns + longer_ns
    )
    late_ns = lateness(done.begin_ns, waits, fitted.crossed_ns) + longer_ns
    return _beside(predicted_ns, latency_ns, late_ns, done.late_ns, fitted.threshold_ns - base_ns)


def predict_recorded(
    recorded: RecordedInterruptions, arrival_ns: Times, latency_ns: Times
) -> Prediction:
    """Let the packets of a run meet interruptions that were recorded beside them.

    As many packets are taken as delayed as the interruptions delay: the slowest.
    """
    base_ns = median_ns(latency_ns)
    predicted_ns = simulate(arrival_ns, [recorded], base_ns=base_ns)
    expected = int(np.count_nonzero(predicted_ns > base_ns))
    late_ns = latency_ns - base_ns
    threshold_ns = int(np.sort(late_ns)[max(0, len(late_ns) - expected - 1)])
    return _beside(predicted_ns, latency_ns, predicted_ns - base_ns, late_ns, max(0, threshold_ns))


def _beside(
    predicted_ns: Times,
    latency_ns: Times,
    predicted_late_ns: Times,
    late_ns: Times,
    threshold_ns: int,
) -> Prediction:
    # Times of microseconds are off by one of them where they are rounded apart.
    tolerance_ns = max(threshold_ns, int(np.gcd.reduce(latency_ns)))
    delayed = late_ns > threshold_ns
    agree = np.abs(predicted_late_ns - late_ns)[delayed] <= tolerance_ns
    as_late = {
        name: {"delayed": int(np.count_nonzero(each > threshold_ns))}
        for name, each in (("measured", late_ns), ("predicted", predicted_late_ns))
    }
    return Prediction(
        latency_ns=predicted_ns,
        measured={**as_late["measured"], **figures(latency_ns)},
        predicted={**as_late["predicted"], **figures(predicted_ns)},
        tolerance_ns=tolerance_ns,
        delay_ns_p50=median_ns(late_ns[delayed]) if delayed.any() else 0,
        agreement=float(np.mean(agree)) if len(agree) else None,
    )


def figures(latency_ns: Times) -> Mapping[str, int]:
    """Return quantiles of a latency, and its largest value."""
    in_order = np.sort(latency_ns)
    quantiles = {
        f"latency_ns_{name}": int(in_order[len(in_order) - len(in_order) // beyond - 1])
        for name, beyond in _ONE_IN.items()
    }
    return {**quantiles, "latency_ns_max": int(in_order[-1])}
