"""What is worth saying of a run before it starts."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from tailscope.exceptions import TailscopeError
from tailscope.experiment.packets import mean_size_bytes
from tailscope.plan.fields import CAPTURED
from tailscope.units import count_text

if TYPE_CHECKING:
    from tailscope.experiment.plan import RunPlan


def rate_notice(plan: RunPlan) -> str | None:
    """Say that a wire carries less than is to be sent; None if it may carry that."""
    if plan.pattern == CAPTURED:
        return None
    most_pps = plan.device.make_wire().most_pps(mean_size_bytes(plan.traffic))
    if most_pps is None or plan.rate_pps <= most_pps:
        return None
    return (
        f"--rate: {count_text(plan.rate_pps)} packets/s are more than a wire {plan.wire} carries,"
        f" {count_text(most_pps)} at most: the rest will not be sent"
    )


def load_notice(plan: RunPlan) -> str | None:
    """Say who uses the CPUs that will be measured; None if hardly anybody does."""
    from tailscope.noise.load import load_text

    with suppress(TailscopeError):
        return load_text(plan.cores().pollers)
    return None
