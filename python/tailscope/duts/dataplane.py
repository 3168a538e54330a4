"""Devices that are programs of the data plane."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailscope.exceptions import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["DUTS", "LOOP", "Dut", "dut_named"]

LOOP = "loop"
"""The generator joined with itself: no device at all."""


@dataclass(frozen=True)
class Dut:
    """A device under test.

    Attributes
    ----------
    name : str
    about : str
        What it does, in a line.
    options : Mapping of str to callable
        For each option, what turns its value into arguments of the program; it raises a
        `UsageError`.
    """

    name: str
    about: str
    options: Mapping[str, Callable[[str, str], list[str]]]

    def arguments(self, given: Mapping[str, str]) -> list[str]:
        """Turn options into arguments.

        Raises
        ------
        UsageError
            If there is no such option, or its value makes no sense.
        """
        arguments: list[str] = []
        for name, value in given.items():
            if name not in self.options:
                known = ", ".join(self.options) or "none"
                raise UsageError(
                    f"--dut-option: got {name!r}, expected one of the options of {self.name}:"
                    f" {known}"
                )
            arguments += self.options[name](name, value)
        return arguments


def _batch(name: str, value: str) -> list[str]:
    size = _number(name, value)
    return [f"--rx-burst={size}", f"--tx-burst={size}"]


def _burst(name: str, value: str) -> list[str]:
    return [f"--{name}={_number(name, value)}"]


def _number(name: str, value: str) -> int:
    if not value.isdecimal() or not 1 <= int(value) <= 512:
        raise UsageError(f"--dut-option {name}: got {value!r}, expected 1 to 512 packets")
    return int(value)


def _drain(name: str, value: str) -> list[str]:
    from tailscope.analysis import duration_ns

    ns = duration_ns(value, f"--dut-option {name}")
    if ns % 1000:
        raise UsageError(f"--dut-option {name}: got {value}, expected whole microseconds")
    return [f"--tx-drain-us={ns // 1000}"]


def _mac_updating(name: str, value: str) -> list[str]:
    if value not in ("on", "off"):
        raise UsageError(f"--dut-option {name}: got {value!r}, expected on or off")
    return [] if value == "on" else ["--no-mac-updating"]


def _times(name: str, value: str) -> list[str]:
    from tailscope.analysis import duration_ns

    times = [duration_ns(each, f"--dut-option {name}") for each in value.split(",")]
    return [f"--{name}={','.join(f'{ns}ns' for ns in times)}"]


def _as_it_is(name: str, value: str) -> list[str]:
    return [f"--{name}={value}"]


_FORWARDING = {"batch": _batch, "rx-burst": _burst, "tx-burst": _burst}

DUTS: dict[str, Dut] = {
    dut.name: dut
    for dut in (
        Dut(LOOP, "no device: the generator joined with itself", {}),
        Dut(
            "l2fwd",
            "forwards between two ports",
            {**_FORWARDING, "tx-drain": _drain, "mac-updating": _mac_updating},
        ),
        Dut(
            "l3fwd",
            "routes by longest-prefix match",
            {**_FORWARDING, "routes": _as_it_is, "lookup": _as_it_is},
        ),
        Dut(
            "delay",
            "holds packets by a known law, and stalls at known times",
            {
                "law": _as_it_is,
                "stall-period": _times,
                "stall-duration": _times,
                "stall-jitter": _times,
                "seed": _as_it_is,
            },
        ),
    )
}
"""Every device by its name."""


def dut_named(name: str) -> Dut:
    """Find a device.

    Raises
    ------
    UsageError
        If there is none of that name.
    """
    if name not in DUTS:
        raise UsageError(f"--dut: got {name!r}, expected one of {', '.join(DUTS)}")
    return DUTS[name]
