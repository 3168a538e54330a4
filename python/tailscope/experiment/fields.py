"""A run as people write it: named values, in text or as a file has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tailscope.duts.catalogue import DUTS
from tailscope.exceptions import UsageError
from tailscope.experiment.plan import RunPlan
from tailscope.platforms.catalogue import PLATFORMS
from tailscope.units import positive_duration_ns, rate_pps

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["FIELDS", "plan_of"]


def _duration_ns(text: str, option: str) -> int:
    from tailscope.units import duration_ns

    return duration_ns(text, option)


def _as_it_is(value: Any, option: str) -> Any:  # noqa: ARG001
    return value


def _texts(value: Mapping[str, Any], option: str) -> dict[str, str]:  # noqa: ARG001
    return {name: _text(one) for name, one in value.items()}


def _listed(value: Any, option: str) -> str:  # noqa: ARG001
    """A list of CPUs; a single one may be a number."""
    return str(value)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


FIELDS: dict[str, tuple[str, Callable[[Any, str], Any]]] = {
    "dut": ("dut", _as_it_is),
    "dut_options": ("dut_options", _texts),
    "wire": ("wire", _as_it_is),
    "wire_options": ("wire_options", _texts),
    "platform": ("platform", _as_it_is),
    "platform_options": ("platform_options", _texts),
    "kernel": ("kernel", _as_it_is),
    "boot": ("boot", _as_it_is),
    "cpus": ("cpus", _listed),
    "instances": ("instances", _as_it_is),
    "load": ("load", _as_it_is),
    "neighbours": ("neighbours", _as_it_is),
    "neighbour_cpus": ("neighbour_cpus", _listed),
    "rate": ("rate_pps", rate_pps),
    "pattern": ("pattern", _as_it_is),
    "burst": ("burst", _as_it_is),
    "size": ("size_bytes", _as_it_is),
    "flows": ("flows", _as_it_is),
    "seed": ("seed", _as_it_is),
    "duration": ("duration_ns", positive_duration_ns),
    "warm_up": ("warm_up_ns", _duration_ns),
    "captures": ("captures", _as_it_is),
    "noise": ("noise", _as_it_is),
    "power": ("power", _as_it_is),
    "power_phase": ("power_phase_ns", positive_duration_ns),
    "tune": ("tune", _as_it_is),
    "counter_interval": ("counter_interval_ns", _duration_ns),
}
"""For each field: what `RunPlan` calls it, and what reads its value."""


def plan_of(fields: Mapping[str, Any]) -> RunPlan:
    """Make a plan of fields; those that are missing or None have their defaults.

    Errors name a field as the command line does: ``--warm-up``.

    Raises
    ------
    UsageError
        If a value cannot be understood, or some contradict each other.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    if given.get("dut") is None:
        raise UsageError(f"--dut: got none, expected one of {', '.join(DUTS)}")
    given.setdefault("wire", _usual_wire(given["dut"], given.get("platform", "bare")))
    options = {}
    for name, value in given.items():
        own, read = FIELDS[name]
        options[own] = read(value, f"--{name.replace('_', '-')}")
    return RunPlan(**options)


def _usual_wire(dut: str, platform: str) -> str:
    """The first wire that both can have."""
    if dut not in DUTS or platform not in PLATFORMS:
        return "memif"
    usual = PLATFORMS[platform].wires
    return next((wire for wire in usual if wire in DUTS[dut].wires), usual[0])
