"""Signals wait where they have to."""

from __future__ import annotations

import os
import signal
import threading
from typing import NoReturn

import duckdb
import pytest

from tailscope import cli
from tailscope.cli.status import INTERRUPTED
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


def test_ctrl_c_while_duckdb_works_is_no_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Command:
        def main(self, *_: object, **__: object) -> NoReturn:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            # It takes seconds, not more: DuckDB may only say at the end that it was interrupted.
            duckdb.sql("SELECT count(*) FROM range(300_000) a, range(100_000) b").fetchall()
            raise AssertionError("it was not interrupted")

    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "application", Command)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        assert cli.main(["runs", "sql"]) == INTERRUPTED
    finally:
        signal.signal(signal.SIGALRM, before)
    assert capsys.readouterr().err == "error: interrupted\n"
