"""A watch from beginning to end, killed and begun again: nothing of it is missing in its books."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import urllib.request
from itertools import pairwise
from typing import TYPE_CHECKING, NoReturn, Unpack

import pytest
from command import COMMAND
from errors import code_of
from measurements import wait_until
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tailscope.experiment.fields import plan_of
from tailscope.experiment.run.execute import execute
from tailscope.extra.watch.books import Books
from tailscope.extra.watch.runs import Watch
from tailscope.store.reader import read_run

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Tailscope
    from measurements import Place

    from tailscope.experiment.plan import RunPlan
    from tailscope.experiment.run.execute import ExecuteOptions
    from tailscope.testbed.cores import Cores

QUICK = ("--dut", "l2fwd", "--warm-up", "50ms", "--every", "300ms", "--noise", "stalls")


@pytest.fixture
def watch(place: Place, dataplane: Path) -> Path:
    return place.path / "watch"


def begun(place: Place, out: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [COMMAND, "watch", *QUICK, *options, "--listen", "127.0.0.1:0", "--out", out],
        env=place.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def lines(out: Path) -> int:
    return len(Books.read(out)) if (out / "watch.jsonl").exists() else 0


@pytest.mark.long
def test_a_watch_is_killed_and_goes_on(place: Place, tailscope: Tailscope, watch: Path) -> None:
    first = begun(place, watch, "--keep", "1")
    wait_until(lambda: lines(watch) >= 1, first)
    wait_until(lambda: len([*watch.glob("*/run.json")]) > lines(watch), first)
    first.kill()
    first.communicate()
    before = Books.read(watch)

    second = begun(place, watch, "--keep", "1")
    assert second.stderr is not None
    said = ""
    while "metrics at" not in said:
        said = second.stderr.readline()
    address = re.search(r"metrics at 127\.0\.0\.1:(\d+)/metrics", said)
    assert address is not None
    wait_until(lambda: lines(watch) > len(before) + 1, second)
    with urllib.request.urlopen(f"http://127.0.0.1:{address[1]}/metrics", timeout=30) as answer:
        families = {
            family.name: family.samples
            for family in text_string_to_metric_families(answer.read().decode())
        }
    second.send_signal(signal.SIGTERM)
    out, err = second.communicate(timeout=60)
    assert second.returncode == 130, err

    runs = Books.read(watch)
    assert runs[: len(before)] == before
    assert [run.state for run in before] == ["done"] * len(before)
    killed = runs[len(before)]
    assert killed.state == "done" or killed.reason == "the watch was killed"
    for earlier, later in pairwise(runs):
        assert earlier.started_unix_ns <= earlier.ended_unix_ns <= later.started_unix_ns
    done = next(run for run in runs[len(before) + 1 :] if run.state == "done")
    assert done.figures is not None and done.figures.sent > 0
    assert families["tailscope_packets_sent"][0].value >= done.figures.sent
    assert families["tailscope_latency_seconds"][-2].value > 0
    kept = [run.run for run in runs if run.run is not None]
    assert sorted(kept) == sorted(path.name for path in watch.iterdir() if path.is_dir())
    assert [(watch / name / "latency.parquet").exists() for name in kept] == [
        *(False for _ in kept[1:]),
        True,
    ]
    oldest = read_run(watch / kept[0])
    assert oldest.info.left_out == ("latency.parquet",)
    assert len(oldest.worst.latency_ns) > 0
    explained = tailscope("explain", watch / kept[0])
    assert "latency.parquet was left out of this run" in explained.stderr
    assert "watched" in out and "packets" in out


def test_a_signal_behind_a_run_that_is_whole_leaves_it_in_the_books(
    place: Place, watch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(plan: RunPlan, cores: Cores, **how: Unpack[ExecuteOptions]) -> NoReturn:
        execute(plan, cores, **how)
        raise KeyboardInterrupt

    monkeypatch.setattr("tailscope.extra.watch.runs.execute", interrupted)
    for name, value in place.environment.items():
        monkeypatch.setenv(name, value)
    plan = plan_of({"dut": "l2fwd", "duration": "300ms", "warm_up": "50ms", "noise": "stalls"})
    with Books.open(watch) as books:
        watching = Watch(plan, plan.cores(), books, keep=1)
        with pytest.raises(KeyboardInterrupt):
            next(watching.runs(None, lambda: None))
    [run] = Books.read(watch)
    assert run.state == "done" and run.run is not None
    assert run.figures is not None and run.figures.sent > 0
    assert (watch / run.run / "latency.parquet").is_file()


def test_a_watch_of_other_options_is_refused(
    place: Place, tailscope: Tailscope, watch: Path
) -> None:
    ended = tailscope(
        "watch", *QUICK, "--for", "1ms", "--listen", "none", "--out", watch, env=place.environment
    )
    assert ended.returncode == 0, ended.stderr
    other = tailscope(
        *("watch", *QUICK, "--rate", "2k", "--listen", "none", "--out", watch),
        env=place.environment,
    )
    assert other.returncode == 1
    assert code_of(other) == "other-watch" and ": rate_pps " in other.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_on_a_full_disk_it_measures_and_says_so(
    place: Place, tailscope: Tailscope, watch: Path
) -> None:
    watch.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", watch], check=True)
    try:
        done = tailscope(
            *("watch", *QUICK, "--for", "1ms", "--listen", "none", "--out", watch),
            env=place.environment,
        )
        assert done.returncode == 0, done.stderr
        [run] = Books.read(watch)
    finally:
        subprocess.run(["umount", watch], check=True)
    assert (run.run, run.state) == (None, "done")
    assert run.reason is not None
    assert f"not kept: {watch}/" in run.reason and ", got " in run.reason
    assert run.figures is not None and run.figures.sent > 0


@pytest.mark.parametrize("listen", ["9464", ":9464", "localhost:", "localhost:http", "a:1:b"])
def test_what_is_no_address_is_refused(tailscope: Tailscope, listen: str) -> None:
    done = tailscope("watch", "--dut", "l2fwd", "--listen", listen)
    assert done.returncode == 1
    assert code_of(done) == "listen" and repr(listen) in done.stderr


def test_the_first_run_that_fails_ends_it(tailscope: Tailscope, place: Place, watch: Path) -> None:
    done = tailscope(
        *(
            "watch",
            "--dut",
            "command",
            "--dut-option",
            "run=false {eal}",
            "--dut-option",
            "ready=up",
        ),
        *("--every", "1s", "--listen", "none", "--out", watch),
        env=place.environment,
    )
    assert done.returncode == 1
    assert code_of(done) == "program-ended"
    assert "error: false: " in done.stderr and "status 1" in done.stderr
    assert Books.read(watch) == []


def test_what_was_recorded_and_cannot_be_analysed_stops_no_watch(
    place: Place, tailscope: Tailscope, watch: Path
) -> None:
    words = ("watch", *QUICK, "--for", "1ms", "--listen", "none", "--out", watch)
    assert tailscope(*words, env=place.environment).returncode == 0
    unfinished = watch / "20200101T000000Z" / "recording"
    unfinished.mkdir(parents=True)
    (unfinished / "recorded.json").write_text("{}")
    (unfinished.parent / "run.json").write_text('{"format": 3, "complete": false}')
    for _ in range(2):
        done = tailscope(*words, env=place.environment)
        assert done.returncode == 0, done.stderr
    states = [(run.state, run.run) for run in Books.read(watch)]
    assert [state for state, _ in states] == ["done", "failed", "done", "done"]
    assert states[1][1] == unfinished.parent.name
    assert unfinished.is_dir()


@pytest.mark.long
def test_packets_that_cannot_be_left_out_are_tried_again(
    place: Place, tailscope: Tailscope, watch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_path: Path) -> bool:
        raise OSError(28, "No space left on device")

    words = ("watch", *QUICK, "--for", "1ms", "--listen", "none", "--out", watch)
    for _ in range(2):
        assert tailscope(*words, env=place.environment).returncode == 0
    plan = plan_of({"dut": "l2fwd"})
    with Books.open(watch) as books:
        watching = Watch(plan, plan.cores(), books, keep=1)
        with monkeypatch.context() as patched:
            patched.setattr("tailscope.extra.watch.runs.leave_out_packets", full)
            watching._leave_out()
        assert len([*watch.glob("*/latency.parquet")]) == 2
        watching._leave_out()
    assert len([*watch.glob("*/latency.parquet")]) == 1
