"""The command that measures or analyses a run once more."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from tailscope.units import typed_duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["command_of"]

_PLAIN = {
    "dut": "--dut",
    "platform": "--platform",
    "kernel": "--kernel",
    "boot": "--boot",
    "wire": "--wire",
    "cpus": "--cpus",
    "instances": "--instances",
    "load": "--load",
    "neighbour_cpus": "--neighbour-cpus",
    "rate_pps": "--rate",
    "pattern": "--pattern",
    "burst": "--burst",
    "size_bytes": "--size",
    "flows": "--flows",
    "seed": "--seed",
    "noise": "--noise",
    "power": "--power",
    "match_on": "--match-on",
    "worst": "--worst",
}
_NAMED = {
    "dut_options": "--dut-option",
    "platform_options": "--platform-option",
    "wire_options": "--wire-option",
    "neighbours": "--neighbour",
}
_DURATIONS = {
    "duration_ns": "--duration",
    "warm_up_ns": "--warm-up",
    "counter_interval_ns": "--counter-interval",
    "power_phase_ns": "--power-phase",
    "trim_ns": "--trim",
    "window_ns": "--window",
    "bucket_ns": "--bucket-size",
}
_SWITCHES = {"captures": "--captures", "tune": "--tune"}
_OF_ANALYSES = ("match_on", "worst", "trim_ns", "window_ns", "bucket_ns")


def command_of(info: Mapping[str, Any]) -> str | None:
    """The command, for a shell; None where a laboratory is part of it, which only a file names.

    All options are spelled out: defaults may change.

    Parameters
    ----------
    info : Mapping
        The content of ``run.json``.
    """
    if "hosts" in info:
        return None
    plan = info["plan"]
    if plan["command"] == "analyze":
        ours = {name: plan[name] for name in _OF_ANALYSES}
        return shlex.join(["tailscope", "analyze", plan["pre"], plan["post"], *_options(ours)])
    ours = {name: value for name, value in plan.items() if name not in _OF_ANALYSES}
    return shlex.join(["tailscope", "run", *_options(ours)])


def _options(plan: Mapping[str, Any]) -> Iterator[str]:
    for name, value in plan.items():
        if value is None:
            continue
        if name in _PLAIN:
            yield from (_PLAIN[name], str(value))
        elif name in _NAMED:
            for each, one in value.items():
                yield from (_NAMED[name], f"{each}={one}")
        elif name in _DURATIONS:
            yield from (_DURATIONS[name], typed_duration(value))
        elif value and name in _SWITCHES:
            yield _SWITCHES[name]
