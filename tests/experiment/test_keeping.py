"""The last copy of a measurement is removed by a successful analysis alone, or by the user."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from command import COMMAND
from errors import advice_of, code_of, commands_in, raises
from measurements import children, quick
from msgspec.structs import replace
from runs import sound
from wording import assert_wording

from tailscope.exceptions import RunUnfinishedError
from tailscope.experiment.plan import RunPlan
from tailscope.experiment.run.execute import execute
from tailscope.store import atomic

if TYPE_CHECKING:
    from collections.abc import Callable

    from measurements import Place

    from tailscope.store.records.messages import GeneratorProgress

pytestmark = pytest.mark.usefixtures("dataplane")

PLAN = RunPlan(dut="l2fwd", rate_pps=20_000, duration_ns=100_000_000, warm_up_ns=0, noise="stalls")
ANALYSIS = "tailscope.experiment.run.evaluate.analyze_recording"
FILL = """
mount -t tmpfs -o size=10m,mode=700 none "$1"
(until ls "$2"/tailscope-*/generator.log; do sleep 0.02; done; head -c 20m /dev/zero > "$1/full") \
    > "$2/fill.log" 2>&1 &
shift 2
exec "$@"
"""
"""Runs a command on a small disk, which somebody else fills while packets are on their way."""


def fail(*_: object, **__: object) -> NoReturn:
    raise MemoryError("much")


def finished(tailscope: Callable[..., Any], path: Path) -> None:
    """What is kept becomes a run."""
    assert not (path / "summary.json").exists()
    done = tailscope("runs", "finish", path)
    assert done.returncode == 0, done.stderr
    sound(path)
    assert not (path / "recording").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_disk_that_fills_up_costs_no_measurement(
    tailscope: Callable[..., Any], place: Place
) -> None:
    disk, home = place.path / "disk", place.path / "run"
    disk.mkdir()
    run = ["run", "--dut", "l2fwd", *quick("--duration", "1s", "--out", str(disk / "out"))]
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", FILL, "sh", disk, home, COMMAND, *run],
        env=place.environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1
    assert code_of(done) == "not-analysed", done.stderr
    kept = re.search(r"error: (\S+): .*No space", done.stderr)
    assert kept, done.stderr
    assert f"tailscope runs finish {kept[1]}" in advice_of(done)
    assert Path(kept[1]).parent == home
    cleaned = tailscope("runs", "clean", env=place.environment)
    assert cleaned.returncode == 0
    assert f"left {kept[1]}: " in cleaned.stdout
    finished(tailscope, Path(kept[1]))
    shutil.rmtree(kept[1])


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
        threading.Timer(1.6, os.kill, [stopped[0], signal.SIGCONT]).start()

    with pytest.raises(KeyboardInterrupt) as interrupted:
        execute(plan, plan.cores(), out=out, progress=progress)
    assert f"tailscope runs finish {out}" in commands_in(str(interrupted.value))
    assert stopped
    finished(tailscope, out)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Where measurements are recorded: on another disk than the run directory."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is one disk only")
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder)


def test_a_recording_on_another_disk_stays_there_until_it_is_analysed(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, tailscope: Callable[..., Any], tmp_path: Path
) -> None:
    whole, unfinished = tmp_path / "whole", tmp_path / "unfinished"
    execute(PLAN, PLAN.cores(), out=whole)
    sound(whole)
    assert not (whole / "recording").exists()
    with monkeypatch.context() as patch:
        patch.setattr(ANALYSIS, fail)
        with raises(RunUnfinishedError, "not-analysed") as raised:
            execute(PLAN, PLAN.cores(), out=unfinished)
        assert str(raised.value).startswith(f"{unfinished}: ")
        with raises(RunUnfinishedError, "not-analysed") as raised:
            patch.setattr(shutil, "copyfile", fail_for_want_of_room)
            execute(PLAN, PLAN.cores(), out=tmp_path / "full")
    finished(tailscope, unfinished)
    [left] = elsewhere.iterdir()
    assert str(raised.value).startswith(f"{left}: ")
    assert not (tmp_path / "full").exists()
    finished(tailscope, left)


def fail_for_want_of_room(*_: object) -> NoReturn:
    raise OSError(errno.ENOSPC, "No space left on device")


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
