"""Timeouts wait for a program as long as it works, and no clock alone judges it."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from command import COMMAND
from measurements import children, wait_until

from tailscope.experiment.plan import RunPlan
from tailscope.experiment.run.cut_off import recorded_packets
from tailscope.experiment.run.execute import execute
from tailscope.store.reader import read_run
from tailscope.testbed import waiting
from tailscope.testbed.places import Here
from tailscope.testbed.waiting import Countdown, Watchdog

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from measurements import Place

    from tailscope.testbed.places import Process

LOOKS = 3
PLAN = RunPlan(
    dut="l2fwd", rate_pps=20_000, duration_ns=1_500_000_000, warm_up_ns=0, noise="stalls"
)
OLD_MARGIN_S = 30.0
"""Former timeout after which a generator was given up, whatever it did, in seconds."""


@pytest.fixture
def few_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_LOOKS", LOOKS)


def worked(process: Process, since: tuple[int, ...]) -> bool:
    deadline_s = time.monotonic() + 60
    while process.work() == since and time.monotonic() < deadline_s:
        time.sleep(0.005)
    return process.work() != since


@pytest.mark.usefixtures("few_looks")
@pytest.mark.parametrize(
    "works", ["while :; do :; done", "sh -c 'while :; do :; done' & wait", "exec yes > /dev/null"]
)
def test_a_silent_program_that_works_is_not_stuck(tmp_path: Path, works: str) -> None:
    """This holds for a program whose child does the work, too."""
    with Here(tmp_path).start("silent", ["sh", "-c", works]) as process:
        watchdog = Watchdog(process.work)
        for _ in range(2 * LOOKS):
            before = process.work()
            assert not watchdog.is_stuck()
            assert worked(process, before)
        os.killpg(process.pid, signal.SIGSTOP)  # type: ignore[attr-defined]
        time.sleep(0.1)
        looks = [watchdog.is_stuck() for _ in range(LOOKS + 2)]
        assert looks[0] is False and looks[-1] is True
        before = process.work()
        os.killpg(process.pid, signal.SIGCONT)  # type: ignore[attr-defined]
        assert worked(process, before) and not watchdog.is_stuck()


def test_time_in_which_nobody_was_awake_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 1000.0
    monkeypatch.setattr(waiting.time, "monotonic", lambda: now_s)
    countdown = Countdown(10.0)
    now_s += 3600.0
    assert not countdown.is_over()
    for _ in range(10):
        now_s += 1.0
        over = countdown.is_over()
    assert over


def stop_once(lasts_s: float | None, record: Path | None = None) -> Callable[[Any], None]:
    """Return a progress function that stops the generator, for a while or for good.

    With a folder, it waits until packets are recorded there.
    """
    stopped: list[int] = []

    def stop(_event: object) -> None:
        if stopped or (record is not None and not recorded_packets(record)):
            return
        stopped.append(children(os.getpid())["gen"])
        os.kill(stopped[0], signal.SIGSTOP)
        if lasts_s is not None:
            threading.Timer(lasts_s, os.kill, [stopped[0], signal.SIGCONT]).start()

    return stop


@pytest.mark.usefixtures("dataplane")
@pytest.mark.parametrize("lasts_s", [1.0, pytest.param(OLD_MARGIN_S + 10, marks=pytest.mark.long)])
def test_a_generator_that_was_stopped_is_waited_for(tmp_path: Path, lasts_s: float) -> None:
    [measured] = execute(PLAN, PLAN.cores(), out=tmp_path / "out", progress=stop_once(lasts_s))
    assert (measured.analysis.summary["count"] or 0) > 0
    assert not measured.info.partial


@pytest.mark.usefixtures("dataplane", "few_looks")
def test_a_generator_that_is_stuck_is_given_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tailscope.experiment.run.traffic.LOOK_S", 0.2)
    stop = stop_once(None, tmp_path / "out/recording")
    [measured] = execute(PLAN, PLAN.cores(), out=tmp_path / "out", progress=stop)
    [why] = measured.info.partial
    assert why.startswith("generator: given up: ")
    assert (measured.analysis.summary["count"] or 0) > 0
    assert read_run(tmp_path / "out").info.partial == measured.info.partial


@pytest.mark.long
@pytest.mark.usefixtures("dataplane")
def test_a_supervisor_that_was_stopped_judges_nobody_by_that(place: Place) -> None:
    out = place.path / "out"
    traffic = ("--rate", "20k", "--warm-up", "0s", "--duration", "5s")
    process = subprocess.Popen(
        [COMMAND, "run", "--dut", "l2fwd", *traffic, "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=place.environment,
    )
    wait_until(lambda: "gen" in children(process.pid), process)
    time.sleep(2)  # It listens by then.
    process.send_signal(signal.SIGSTOP)
    time.sleep(OLD_MARGIN_S + 10)
    process.send_signal(signal.SIGCONT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
