"""Connections to machines leave nothing behind, however they end."""

from __future__ import annotations

import gc
import os
import signal
import socket
import threading

import pytest

from tailscope.extra.laboratory.agents import SshAgent


def test_ctrl_c_while_a_machine_does_not_answer_leaves_nothing_waiting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = threading.active_count()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        agent = SshAgent("dut", "127.0.0.1", port=silent.getsockname()[1], command="tailscope")
        interrupt = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
        interrupt.start()
        with pytest.raises(KeyboardInterrupt), agent:
            pytest.fail("nobody answers")
    interrupt.join()
    del agent
    gc.collect()
    assert not [record for record in caplog.records if "destroyed" in record.getMessage()]
    assert threading.active_count() == before
