"""Traffic of a laboratory, as it is followed to its end."""

from __future__ import annotations

import json
import os
import signal
import threading
from typing import TYPE_CHECKING

import pytest

from tailscope.exceptions import HostError
from tailscope.extra.laboratory.agents import Agent
from tailscope.extra.laboratory.control import _send
from tailscope.extra.laboratory.protocol import AgentError, as_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class LoadGenerator(Agent):
    """It does something when it is told something."""

    def __init__(self, **does: Callable[[LoadGenerator], None]) -> None:
        super().__init__("loadgen", "there")
        self.does, self.told = does, list[str]()

    def fails(self) -> None:
        error = AgentError(message="was ended by SIGINT", hint=None, other_kernel=False)
        self._hear_line(as_line(error))

    def _write(self, line: str) -> None:
        self.told.append(json.loads(line)["do"])
        self.does.get(self.told[-1], lambda _: None)(self)

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
    assert agent.told == ["send", "end"]


def test_a_generator_that_fails_by_itself_has() -> None:
    agent = LoadGenerator(send=LoadGenerator.fails)
    with pytest.raises(HostError, match="was ended by SIGINT"):
        _send([agent], 10**9, None)
