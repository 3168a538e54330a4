"""Packets of a link are steered to the device's CPUs, or it is said why not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from errors import raises

from tailscope.duts.dut import DutContext
from tailscope.duts.kernel import steer
from tailscope.exceptions import TestbedError
from tailscope.testbed.places import Place
from tailscope.testbed.wires import Side

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tailscope.testbed.places import Process


class Refusing(Place):
    """A machine that isolates CPU 1 and refuses to steer packets, as Linux then does."""

    def run(self, command: Sequence[str], *, timeout_s: float = 0) -> str:
        if command[0] == "cat":
            return "1\n"
        raise TestbedError("printf: I/O error", code="command")

    def start(self, *_: Any, **__: Any) -> Process:
        raise NotImplementedError

    def write(self, *_: Any) -> Path:
        raise NotImplementedError

    def read(self, name: str) -> str | None:
        raise NotImplementedError


@pytest.mark.parametrize(("cpus", "code"), [((1,), "isolated-cpus"), ((0, 1), "command")])
def test_isolated_cpus_are_named(cpus: tuple[int, ...], code: str) -> None:
    context = DutContext(Refusing(), Side((), (), ("eth0",)), cpus, (0,), 1)
    with raises(TestbedError, code):
        steer(context)
