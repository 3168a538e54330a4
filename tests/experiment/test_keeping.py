"""The last copy of a measurement is removed by a successful analysis alone, or by the user."""

from __future__ import annotations

import errno
import json
import os
import signal
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from errors import advice_of, code_of, commands_in
from measurements import children, quick
from msgspec.structs import replace
from runs import sound
from wording import assert_wording

from tailscope.experiment.plan import RunPlan
from tailscope.experiment.run.execute import execute
from tailscope.store import atomic

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tailscope.store.records.messages import GeneratorProgress

pytestmark = pytest.mark.usefixtures("dataplane")

PLAN = RunPlan(dut="l2fwd", rate_pps=20_000, duration_ns=100_000_000, warm_up_ns=0, noise="stalls")
ANALYSIS = "tailscope.experiment.run.evaluate.analyze_recording"


def woken(pid: int) -> None:
    """Let a process go on, if it is still there."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def finished(tailscope: Callable[..., Any], path: Path) -> None:
    """What is kept becomes a run."""
    assert not (path / "summary.json").exists()
    done = tailscope("runs", "finish", path)
    assert done.returncode == 0, done.stderr
    sound(path)
    assert not (path / "recording").exists()


def test_a_killed_analysis_costs_no_measurement(
    monkeypatch: pytest.MonkeyPatch, tailscope: Callable[..., Any], tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(ANALYSIS, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
    out = tmp_path / "out"
    pid = os.fork()
    if pid == 0:
        try:
            execute(PLAN, PLAN.cores(), out=out)
        finally:
            os._exit(1)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    refused = tailscope("run", "--dut", "l2fwd", *quick("--out", out))
    assert code_of(refused) == "run-recorded"
    assert f"tailscope runs finish {out}" in advice_of(refused)
    finished(tailscope, out)


def test_ctrl_c_waits_for_what_is_being_written(
    tailscope: Callable[..., Any], tmp_path: Path
) -> None:
    """The first one lets the run be finished, and the second one leaves out the analysis."""
    plan = replace(PLAN, rate_pps=1_000_000, duration_ns=2_000_000_000)
    own, out, stopped = os.getpid(), tmp_path / "out", []

    def progress(event: GeneratorProgress) -> None:
        if event.state != "writing" or stopped:
            return
        stopped.append(children(own)["gen"])
        os.kill(stopped[0], signal.SIGSTOP)
        for later_s in (0.1, 0.8):
            threading.Timer(later_s, os.kill, [own, signal.SIGINT]).start()
        threading.Timer(1.6, woken, stopped).start()

    with pytest.raises(KeyboardInterrupt) as interrupted:
        execute(plan, plan.cores(), out=out, progress=progress)
    assert f"tailscope runs finish {out}" in commands_in(str(interrupted.value))
    assert stopped
    finished(tailscope, out)


def test_what_may_not_outlast_a_power_cut_is_whole_all_the_same(
    monkeypatch: pytest.MonkeyPatch, tailscope: Callable[..., Any], tmp_path: Path
) -> None:
    """The last name was written, and the disk failed to say that it is safe."""
    out = tmp_path / "out"
    sync = atomic.sync_folder

    def sync_folder(folder: Path) -> None:
        mark = folder / "run.json"
        if mark.exists() and json.loads(mark.read_text())["complete"]:
            raise OSError(errno.EIO, "Input/output error", str(folder))
        sync(folder)

    with monkeypatch.context() as patch:
        patch.setattr(atomic, "sync_folder", sync_folder)
        [measured] = execute(PLAN, PLAN.cores(), out=out)
    assert measured.lacks[0].code == "run-not-lasting"
    assert tailscope("runs", "show", out, "--verify").returncode == 0
    done = tailscope("runs", "finish", out)
    assert done.returncode == 0, done.stderr
    sound(out)
    assert not (out / "recording").exists()
    again = tailscope("runs", "finish", out)
    assert_wording("finish/nothing", again.stdout.replace(str(out), "RUN").rstrip())
