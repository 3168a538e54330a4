"""Supervision of a laboratory's traffic until its end."""

from __future__ import annotations

import json
import os
import signal
import threading
from typing import TYPE_CHECKING

import pytest
from errors import raises

from tailscope.exceptions import HostError
from tailscope.extra.laboratory.agents import Agent
from tailscope.extra.laboratory.control import _send
from tailscope.extra.laboratory.protocol import AgentError, as_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class LoadGenerator(Agent):
    """A load generator that reacts to orders by functions."""

    def __init__(self, **does: Callable[[LoadGenerator], None]) -> None:
        super().__init__("loadgen", "there")
        self.does, self.orders = does, list[str]()

    def fails(self) -> None:
        error = AgentError(
            message="was ended by SIGINT", code="program-ended", hint=None, other_kernel=False
        )
        self._receive(as_line(error))

    def _write(self, line: str) -> None:
        self.orders.append(json.loads(line)["do"])
        self.does.get(self.orders[-1], lambda _: None)(self)

    def _open(self) -> None: ...

    def _copy(self, remote: str, target: Path) -> None: ...

    def _close(self) -> None: ...


def test_a_generator_that_ctrl_c_ended_has_not_failed() -> None:
    agent = LoadGenerator(end=LoadGenerator.fails)
    ctrl_c = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    ctrl_c.start()
    with pytest.raises(KeyboardInterrupt):
        _send([agent], 10**9, None)
    ctrl_c.join()
    assert agent.orders == ["send", "end"]


def test_a_generator_that_fails_by_itself_has() -> None:
    agent = LoadGenerator(send=LoadGenerator.fails)
    with raises(HostError, "program-ended") as error:
        _send([agent], 10**9, None)
    assert str(error.value).startswith("loadgen (there): ")
