"""Equations 1 and 2 of noms2020 with intervals, compared with packets that queued."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tailscope.exceptions import EvidenceError, ModelError
from tailscope.models.estimate import Estimate

NS_PER_S = 1e9

FEWEST_SAMPLES = 6
"""Smallest number of samples whose extremes hold the median with 95 % probability."""

AGREE = 0.25
"""Largest distance of the intervals of two estimates of the CPU time that agree; the longer one
may also be up to the whole latency."""

_METHOD = "ends of the inputs' intervals"
_UNKNOWN = "none: no packets were seen that queued"


@dataclass(frozen=True)
class Prediction:
    """The prediction of the model."""

    transfer_ns: Estimate
    """The forwarder's median, which stands for twice the transfer."""
    e2e_ns: Estimate
    """The function's median."""
    cpu_ns: Estimate | None
    """CPU time of the function per packet, by the medians; None if it was overloaded."""
    queued_cpu_ns: Estimate | None
    """CPU time per packet, by packets that queued; None if too few did."""
    noise_ns_per_s: Estimate | None
    """Time that interrupts take; None if it is unknown."""
    rate_max_pps: Estimate
    """The highest rate. Without packets that queued it has no interval: the function may hold
    packets in parallel, and a median is no mean."""
    rate_alone_pps: Estimate
    """The highest rate of a function that works on one packet at a time. Its time for a packet is
    at least the lesser of the differences of the medians and of the means, and at most the greater
    of the function's median and mean: the forwarder's own work counts as transfer."""

    @property
    def is_bounded(self) -> bool:
        """Return True if the rate has an interval, whatever the function."""
        return math.isfinite(self.rate_max_pps.ci_high)


def predict(
    forwarder: Estimate,
    function: Estimate,
    noise: Estimate | None = None,
    queued: Estimate | None = None,
    *,
    is_queued_net: bool = True,
    means_ns: tuple[float, float] | None = None,
) -> Prediction:
    """Predict the highest rate of a function.

    `means_ns` are the mean latencies of the forwarder and the function.
    """
    cpu = cpu_time(forwarder, function)
    by_medians = highest_rate(cpu, noise)
    if queued is None:
        rate = replace(by_medians, ci_low=0.0, ci_high=math.inf, method=_UNKNOWN)
    else:
        _check_agreement(cpu, function, queued)
        by_queues = highest_rate(queued, noise if is_queued_net else None)
        rate = replace(
            by_queues,
            ci_low=min(by_medians.ci_low, by_queues.ci_low),
            ci_high=max(by_medians.ci_high, by_queues.ci_high),
        )
    alone = _one_at_a_time(by_medians, highest_rate(function, noise), means_ns)
    return Prediction(forwarder, function, cpu, queued, noise, rate, alone)


def _one_at_a_time(
    by_medians: Estimate, by_latency: Estimate, means_ns: tuple[float, float] | None
) -> Estimate:
    """Widen the rate by medians to what a function may need that works on one packet at a time.

    Work that the forwarder does, too, is not in the difference, but in the whole latency.
    """
    ends = [by_medians.ci_low, by_medians.ci_high, by_latency.ci_low]
    if means_ns is not None:
        # Means hold the noise already, as far as packets met it.
        forwarder_ns, function_ns = means_ns
        times_ns = (function_ns - forwarder_ns, function_ns)
        ends += [NS_PER_S / time_ns for time_ns in times_ns if time_ns > 0]
    return replace(
        by_medians, ci_low=min(ends), ci_high=max(ends), method="medians, means, whole latencies"
    )


def _check_agreement(cpu: Estimate, e2e: Estimate, queued: Estimate) -> None:
    """See that both estimates speak of the same time.

    Work that the forwarder does, too, counts as transfer in one of them and as work in the other:
    up to all of the latency may be time on the CPU.
    """
    estimates = (
        f"the medians give {_interval_text(cpu)} on the CPU for a packet, packets that queued"
        f" {_interval_text(queued)}"
    )
    if queued.ci_high * (1 + AGREE) < cpu.ci_low:
        raise EvidenceError(
            f"{estimates}: packets leave faster than one after the other",
            code="queues-faster",
            hint="a device that holds several packets at the same time, waits before it works, or"
            " works on several CPUs has no R_max by this model, nor has one that is faster than the"
            " instrument: measure the rate with `tailscope search`",
        )
    if queued.ci_low > max(cpu.ci_high * (1 + AGREE), e2e.ci_high):
        raise EvidenceError(
            f"{estimates}: a packet takes more of the CPU than its latency shows",
            code="queues-slower",
            hint="work after a packet has left, or packets of which some take much longer than the"
            " median one: measure the rate with `tailscope search`",
        )


def _interval_text(value: Estimate) -> str:
    return f"{value.estimate:,.0f} ns ({value.ci_low:,.0f} to {value.ci_high:,.0f})"


def cpu_time(forwarder: Estimate, function: Estimate) -> Estimate:
    """Return the function's CPU time for a packet in ns, by Equation 1."""
    for role, median in (("forwarder", forwarder), ("function", function)):
        _check(f"{role}: median latency in ns", median)
        if median.estimate == 0:
            raise ModelError(
                f"{role}: median latency in ns: got 0, expected more", code="median-zero"
            )
        if median.n < FEWEST_SAMPLES:
            raise EvidenceError(
                f"{role}: got {median.n} samples, expected at least {FEWEST_SAMPLES}",
                code="samples-few",
                hint="fewer samples give no interval of the median: measure for longer",
            )
    low, high = function.ci_low - forwarder.ci_high, function.ci_high - forwarder.ci_low
    if low <= 0:
        raise EvidenceError(
            f"the function is not measurably slower than the forwarder: its median is"
            f" {function.estimate:,.0f} ns ({function.ci_low:,.0f} to {function.ci_high:,.0f}), the"
            f" forwarder's {forwarder.estimate:,.0f} ns ({forwarder.ci_low:,.0f} to"
            f" {forwarder.ci_high:,.0f})",
            code="function-not-slower",
            hint="the model has no time on the CPU to divide by: measure for longer,"
            " use a simpler forwarder, or check whether the two runs are swapped",
        )
    return Estimate(
        estimate=function.estimate - forwarder.estimate,
        ci_low=low,
        ci_high=high,
        n=min(forwarder.n, function.n),
        method=_METHOD,
    )


def highest_rate(cpu: Estimate, noise: Estimate | None = None) -> Estimate:
    """Return the rest of a second divided by the time of a packet, by Equation 2.

    It falls as either grows, so the ends of its interval are at theirs.
    """
    _check("time on the CPU in ns", cpu)
    if cpu.ci_low <= 0:
        raise ModelError(
            f"time on the CPU in ns: got an interval from {cpu.ci_low:g}, above 0",
            code="cpu-time-zero",
        )
    if noise is None:
        noise = Estimate(estimate=0.0, ci_low=0.0, ci_high=0.0, n=0, method="not counted")
    _check("noise in ns per second", noise)
    if noise.estimate >= NS_PER_S:
        raise ModelError(
            f"noise in ns per second: got {noise.estimate:g}, expected less than {NS_PER_S:g}",
            code="noise-too-high",
            hint="interrupts take all of the CPU's time: no packet could be processed",
        )
    return Estimate(
        estimate=(NS_PER_S - noise.estimate) / cpu.estimate,
        ci_low=max(0.0, NS_PER_S - noise.ci_high) / cpu.ci_high,
        ci_high=(NS_PER_S - noise.ci_low) / cpu.ci_low,
        n=cpu.n,
        method=_METHOD,
    )


def _check(name: str, value: Estimate) -> None:
    """See that a figure and its interval are numbers of at least 0, in order."""
    if not 0 <= value.ci_low <= value.estimate <= value.ci_high < math.inf:
        raise ModelError(
            f"{name}: got {value.estimate:g} ({value.ci_low:g} to {value.ci_high:g}),"
            " expected numbers of at least 0 in an interval around the first",
            code="interval",
        )
