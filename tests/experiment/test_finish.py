"""What was measured is kept, whatever becomes of its explanation and its page."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from errors import advice_of, code_of, raises, unwrapped
from measurements import started, wait_until
from runs import sound, write_mark
from wording import assert_wording

from tailscope.exceptions import RunUnfinishedError
from tailscope.experiment.plan import RunPlan
from tailscope.experiment.run.execute import execute
from tailscope.signals import patient
from tailscope.store.directory import RunWriter
from tailscope.store.records.base import encode

if TYPE_CHECKING:
    from pathlib import Path

    from measurements import Place

    from tailscope.engine.analysis import Analysis
    from tailscope.store.records.run import RunInfo

Run = Callable[..., Any]

STEPS = (
    "tailscope.experiment.run.evaluate.analyze_recording",
    "tailscope.store.directory.RunWriter._write_figures",
    "tailscope.store.directory._checksum",
)
"""Where an analysis may end too early: before there are figures, and behind them."""

SMALL_KIB = 600
"""Room for the files of a small run, and not for its page."""


@pytest.fixture
def pair(tailscope: Run, tmp_path: Path) -> list[Path]:
    made = tmp_path / "pair"
    assert tailscope("simulate", made, "--seed", 1, "--packets", 2000).returncode == 0
    return [next(made.glob(f"*-{side}-*")) for side in ("pre", "post")]


def finish(tailscope: Run, out: Path) -> str:
    """What is said of a run that lacks something, or nothing."""
    done = tailscope("runs", "finish", out)
    assert done.returncode == 0, done.stderr
    return str(done.stdout).replace(str(out), "RUN").rstrip()


def test_a_page_that_does_not_fit_costs_no_analysis(
    tailscope: Run, pair: list[Path], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    limited = ("bash", "-c", f'ulimit -f {SMALL_KIB}; exec "$@"', "-")
    done = subprocess.run(
        [*limited, sys.executable, "-m", "tailscope", "analyze", *pair, "--out", out],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert code_of(done) == "run-without-page"
    named = (f"error: {out}: ", f": {out}/report.html: ", "File too large")
    assert all(text in unwrapped(done.stderr) for text in named)
    assert f"tailscope runs finish {out}" in advice_of(done)
    assert tailscope("runs", "show", out, "--verify").returncode == 0
    assert sorted(path.name for path in out.iterdir() if path.name.startswith(".")) == []
    assert not (out / "report.html").exists()
    assert_wording("finish/page", finish(tailscope, out))
    assert "tailscope" in (out / "report.html").read_text()
    assert_wording("finish/nothing", finish(tailscope, out))


@pytest.mark.usefixtures("dataplane")
def test_what_explains_a_tail_can_be_made_again(
    measure: Callable[..., dict[str, Any]], tailscope: Run
) -> None:
    out: Path = measure("--dut", "delay", "--duration", "1s", "--rate", "20k")["out"]
    own = json.loads((out / "explanation.json").read_text())
    info = json.loads((out / "run.json").read_text())
    del info["files"]["explanation.json"]
    write_mark(out, info)
    (out / "explanation.json").unlink()
    (out / "report.html").unlink()
    assert_wording("finish/explanation", finish(tailscope, out))
    again = json.loads((out / "explanation.json").read_text())
    assert {**again, "kept": None} == {**own, "kept": None}
    shown = json.loads(tailscope("runs", "show", out, "--json", "-").stdout)
    assert shown["explanation"]["causes"] == own["causes"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError("much"), KeyError("defect")])
def test_neither_interrupts_nor_defects_cost_a_measurement(
    monkeypatch: pytest.MonkeyPatch,
    tailscope: Run,
    pair: list[Path],
    tmp_path: Path,
    error: BaseException,
) -> None:
    from tailscope.exceptions import RunUnfinishedError
    from tailscope.experiment.run.pair import PairPlan, analyze_pair
    from tailscope.report.of_run import page_of

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("tailscope.report.page.page", fail)
    out = tmp_path / "run"
    pre, post = map(str, pair)
    plan = PairPlan(pre, post, "auto", 0, 5_000_000_000, 100, 100, None, out)
    with raises(RunUnfinishedError, "run-without-page"):
        analyze_pair(plan, page_of)
    assert tailscope("runs", "show", out, "--verify").returncode == 0


@pytest.mark.usefixtures("dataplane")
def test_a_tail_that_cannot_be_explained_costs_no_measurement(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plan = RunPlan(dut="l2fwd", rate_pps=20_000, duration_ns=300_000_000, warm_up_ns=0)
    monkeypatch.setattr("tailscope.experiment.run.evaluate._explain", raising(KeyError("defect")))
    [measured] = execute(plan, plan.cores(), out=tmp_path / "run")
    assert [lack.code for lack in measured.lacks] == ["run-not-explained"]


def test_what_was_not_whole_is_taken_away(pair: list[Path], tmp_path: Path) -> None:
    from tailscope.engine.analysis import analyze

    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt), RunWriter(out) as writer:
        analyze(*pair, sink=writer.sink)
        raise KeyboardInterrupt
    assert not out.exists()


def test_the_first_signal_waits_and_the_second_does_not() -> None:
    said: list[str] = []
    before = signal.getsignal(signal.SIGTERM)
    with patient(lambda: said.append("in a moment")) as patience:
        os.kill(os.getpid(), signal.SIGINT)
        # Both come where a session ends: one wish.
        os.kill(os.getpid(), signal.SIGINT)
    assert patience.asked
    assert said == ["in a moment"]
    with pytest.raises(KeyboardInterrupt), patient(lambda: said.append("in a moment")) as patience:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.6)
        os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), patient(lambda: said.append("again"), asked=True):
        # Of the same end of a session as the first, which came before.
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.6)
        said.append("waited")
        os.kill(os.getpid(), signal.SIGINT)
    assert said == ["in a moment", "in a moment", "waited"]
    with patient(lambda: said.append("in a moment")) as patience:
        pass
    assert not patience.asked
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.usefixtures("dataplane")
@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)]
)
def test_a_signal_behind_the_traffic_keeps_the_run(
    place: Place, tailscope: Run, number: signal.Signals
) -> None:
    out = place.path / "out"
    arguments = ("run", "--dut", "l2fwd", "--rate", "200k", "--duration", "1s", "--out", str(out))
    process = started(place, *arguments)
    wait_until(lambda: (out / "noise.parquet").exists(), process)
    process.send_signal(number)
    output, errors = process.communicate(timeout=120)
    assert process.returncode in {0, 130}, errors
    if process.returncode:
        assert "the traffic has ended, and the run is being finished" in errors
    sound(out)
    assert (out / "report.html").exists()
    assert (out / "explanation.json").exists()
    assert "partial" not in output
    assert not place.left()
    assert pq.read_table(out / "latency.parquet").num_rows > 0


def test_a_signal_while_the_device_is_being_stopped_keeps_the_run(
    place: Place, dataplane: Path
) -> None:
    """All packets are there, and a device that takes its time is all that is waited for."""
    out, stopping = place.path / "out", place.path / "stopping"
    slow = f"trap 'touch {stopping}; sleep 2; kill $!; exit' INT TERM; \"$@\" & wait"
    words = f"sh -c \"{slow.translate({34: chr(92) + chr(34)})}\" - '{dataplane}' l2fwd -l {{cpus}}"
    run = f"run={words} --no-telemetry {{eal}} -- --die-with-parent"
    given = ("--dut-option", run, "--dut-option", 'ready="event":"ready"')
    arguments = ("--rate", "20k", "--duration", "1s", "--out", str(out))
    process = started(place, "run", "--dut", "command", *given, *arguments, processes=1)
    wait_until(stopping.exists, process)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "the traffic has ended, and the run is being finished" in errors
    assert "ended after" not in output
    sound(out)
    assert (out / "report.html").exists()


def test_what_does_not_fit_is_not_measured(tailscope: Run, place: Place) -> None:
    out = place.path / "out"
    endless = ("--rate", "10M", "--duration", "1000h", "--out", out)
    done = tailscope("run", "--dut", "l2fwd", *endless, env=place.environment)
    assert done.returncode == 1
    assert code_of(done) == "no-room"
    assert " 1,440 TB, " in " ".join(done.stderr.split())
    [hint] = [line for line in done.stderr.splitlines() if line.startswith("hint: ")]
    assert "--out" in hint
    assert not out.exists()
    assert not place.left()


ERRORS = (
    (KeyboardInterrupt(), "`tailscope runs finish "),
    (OSError(errno.ENOSPC, "No space left on device", "x"), ": x: No space left on device"),
    (MemoryError("much"), ": MemoryError: much"),
)


@pytest.mark.usefixtures("dataplane")
@pytest.mark.parametrize(
    ("step", "error", "expected"),
    [
        pytest.param(step, *error, marks=[] if at == of else [pytest.mark.long])
        for at, step in enumerate(STEPS)
        for of, error in enumerate(ERRORS)
    ],
)
def test_what_was_recorded_is_analysed_later(
    monkeypatch: pytest.MonkeyPatch,
    tailscope: Run,
    tmp_path: Path,
    step: str,
    error: BaseException,
    expected: str,
) -> None:
    out = tmp_path / "run"
    plan = RunPlan(
        dut="l2fwd", rate_pps=20_000, duration_ns=300_000_000, warm_up_ns=0, noise="stalls"
    )
    with monkeypatch.context() as patch:
        patch.setattr(step, raising(error))
        with pytest.raises((KeyboardInterrupt, RunUnfinishedError)) as raised:
            execute(plan, plan.cores(), out=out)
    assert str(raised.value).startswith(f"{out}: ") and expected in str(raised.value)
    if isinstance(error, KeyboardInterrupt):
        assert isinstance(raised.value, KeyboardInterrupt)
    else:
        assert isinstance(raised.value, RunUnfinishedError)
        assert raised.value.code == "not-analysed"
    kept = {path.name for path in out.iterdir()}
    recorded = {"noise.parquet", "neighbours.parquet", "interrupts.parquet"}
    assert kept == {"run.json", *recorded, "recording"}
    for arguments in (("runs", "show", out), ("report", out)):
        refused = tailscope(*arguments)
        assert refused.returncode == 1
        assert code_of(refused) == "run-incomplete"
        assert f"tailscope runs finish {out}" in advice_of(refused)
    again = tailscope("run", "--dut", "l2fwd", "--duration", "10ms", "--out", out)
    assert again.returncode == 1
    assert code_of(again) == "run-recorded"
    done = tailscope("runs", "finish", out)
    assert done.returncode == 0, done.stderr
    assert "summary.json" in done.stdout
    assert tailscope("runs", "show", out, "--verify").returncode == 0
    sound(out)
    assert not (out / "recording").exists()
    summary = json.loads((out / "summary.json").read_text())
    assert summary["count"] + summary["lost"] == summary["sent"] > 0
    assert tailscope("explain", out).returncode == 0
    assert_wording("finish/nothing", finish(tailscope, out))


@pytest.mark.usefixtures("dataplane")
def test_what_is_finished_is_what_would_have_been_written(
    monkeypatch: pytest.MonkeyPatch, tailscope: Run, tmp_path: Path
) -> None:
    """The same recording, analysed at once and later."""
    plan = RunPlan(dut="delay", rate_pps=20_000, duration_ns=500_000_000, warm_up_ns=0)
    own: dict[str, Any] = {}

    def finish(_: RunWriter, analysis: Analysis, *, info: RunInfo, **__: object) -> list[str]:
        own.update(analysis=analysis.summary, info=info)
        raise KeyboardInterrupt

    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(RunWriter, "finish", finish)
        with pytest.raises(KeyboardInterrupt):
            execute(plan, plan.cores(), out=out)
    assert tailscope("runs", "finish", out).returncode == 0
    summary = json.loads((out / "summary.json").read_text())
    assert {name: summary[name] for name in own["analysis"]} == own["analysis"]
    info = json.loads((out / "run.json").read_text())
    assert info["instrument"] == json.loads(encode(own["info"].instrument))


def raising(error: BaseException) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


@pytest.mark.usefixtures("dataplane")
def test_a_disk_that_takes_nothing_ends_a_measurement_before_it_begins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    plan = RunPlan(dut="l2fwd", duration_ns=100_000_000, warm_up_ns=0, noise="stalls")
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(RunWriter, "keep", raising(full))
    with pytest.raises(OSError) as raised:
        execute(plan, plan.cores(), out=out)
    assert raised.value.errno == errno.ENOSPC
    assert not out.exists()
