"""Signals wait where they have to."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from tailscope.signals import uninterrupted


def test_ctrl_c_waits_until_the_end_of_the_block() -> None:
    before = signal.getsignal(signal.SIGINT)
    done = []
    with pytest.raises(KeyboardInterrupt), uninterrupted():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        done.append("whole")
    assert done == ["whole"]
    assert signal.getsignal(signal.SIGINT) is before


def test_without_ctrl_c_nothing_happens_and_other_threads_are_let_be() -> None:
    with uninterrupted():
        pass
    failures: list[BaseException] = []

    def work() -> None:
        try:
            with uninterrupted():
                pass
        except BaseException as error:  # noqa: BLE001
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not failures
