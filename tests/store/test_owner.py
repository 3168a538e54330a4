"""A directory has one owner: no two processes write into it, and each takes back only its own."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import sys
import time
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import captures
import pytest
from errors import raises

from tailscope.cli import main
from tailscope.engine.analysis import analyze
from tailscope.exceptions import RunExistsError
from tailscope.store.atomic import sync_folder
from tailscope.store.directory import RunWriter, refuse_foreign
from tailscope.store.owner import LOCK, is_vacant, owned
from tailscope.store.provenance import analysis_info
from tailscope.store.records.plan import AnalysisPlan
from tailscope.store.records.run import RunMark

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LATENCIES = [1_000 + at * 7 % 500 for at in range(300)]


@pytest.fixture
def pair(tmp_path: Path) -> list[Path]:
    return [*captures.pair(tmp_path, LATENCIES)]


def writing(out: Path) -> RunWriter:
    """What writes a run with a page."""
    return RunWriter(out, draw=lambda _: "")


def complete(writer: RunWriter, pair: list[Path]) -> list[str]:
    """Write the run of a pair; what it lacks."""
    analysis = analyze(*pair, sink=writer.sink)
    plan = AnalysisPlan(
        pre=str(pair[0]),
        post=str(pair[1]),
        match_on="auto",
        clocks="same",
        trim_ns=0,
        window_ns=5_000_000_000,
        bucket_ns=100,
        worst=10,
    )
    info = analysis_info(plan, analysis.summary, None)
    return writer.finish(analysis, info=info, bucket_ns=100)


def finish(writer: RunWriter, pair: list[Path]) -> None:
    """Write the run of a pair, which lacks nothing."""
    assert not complete(writer, pair)


def assert_whole(run: Path) -> None:
    """A run is complete, every file is the one that was written, and no other is there."""
    mark = json.loads((run / "run.json").read_text())
    assert mark["complete"] is True
    sizes = {name: (run / name).stat().st_size for name in mark["files"]}
    assert sizes == {name: file["size_bytes"] for name, file in mark["files"].items()}
    names = {path.name for path in run.iterdir()}
    assert names == {"run.json", "report.html", *mark["files"]}


def in_child(work: Callable[[], Any]) -> int:
    """Do something in a process of its own; its number."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(1)
    return pid


def test_a_second_writer_is_refused_and_harms_nothing(pair: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "run"
    with writing(out) as first:
        with raises(RunExistsError, "run-in-use") as refused:
            RunWriter(out).__enter__()
        assert refused.value.hint is not None
        finish(first, pair)
    assert_whole(out)


def test_a_writer_that_fails_leaves_a_later_one_alone(pair: list[Path], tmp_path: Path) -> None:
    """The directory that the first one has left is made anew by the second."""
    out = tmp_path / "run"
    with pytest.raises(KeyError), RunWriter(out):
        raise KeyError
    assert not out.exists()
    with writing(out) as second:
        finish(second, pair)
    assert_whole(out)


def test_a_recording_that_does_not_fit_leaves_nothing_in_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    out = tmp_path / "run"
    with pytest.raises(OSError, match="No space"), RunWriter(out) as writer:
        monkeypatch.setattr("tailscope.store.directory.write_text", full)
        writer.record()
        writer.keep(RunMark(format=3, complete=False))  # type: ignore[arg-type]
    assert not out.exists()


def test_the_name_is_free_again_when_its_owner_was_killed(pair: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "run"

    def write() -> None:
        with RunWriter(out):
            signal.pause()

    pid = in_child(write)
    try:
        deadline_s = time.monotonic() + 60
        while not (out / "run.json").exists():
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
        with raises(RunExistsError, "run-in-use"):
            RunWriter(out).__enter__()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    refuse_foreign(out)
    with writing(out) as second:
        finish(second, pair)
    assert_whole(out)


def test_a_writer_that_begins_while_another_one_looks_is_named(
    pair: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the first one has just begun is no strange directory."""
    out = tmp_path / "run"
    out.mkdir()
    first = writing(out)

    def begun_meanwhile(path: Path) -> bool:
        monkeypatch.undo()
        stack.enter_context(first)
        return is_vacant(path)

    monkeypatch.setattr("tailscope.store.directory.is_vacant", begun_meanwhile)
    with ExitStack() as stack:
        with raises(RunExistsError, "run-in-use"):
            RunWriter(out).__enter__()
        finish(first, pair)
    assert_whole(out)


def test_ctrl_c_behind_each_file_leaves_nothing_or_a_whole_run(
    pair: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file has its name, and its folder is being synced: that takes milliseconds."""
    left = 0

    def interrupted(folder: Path) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            signal.raise_signal(signal.SIGINT)
        sync_folder(folder)

    monkeypatch.setattr("tailscope.store.atomic.sync_folder", interrupted)
    names: list[set[str]] = []
    for at in range(1, 20):
        left, out = at, tmp_path / f"run {at}"
        with suppress(KeyboardInterrupt), writing(out) as writer:
            complete(writer, pair)
        names.append({path.name for path in out.iterdir()} if out.exists() else set())
        if left > 0:
            break
    else:
        raise AssertionError("a run has not that many files")
    begun, whole = [each for each in names if not each], [each for each in names if each]
    assert names == begun + whole and len(begun) > 5 and len(whole) > 1
    assert_whole(out)
    assert all(names[-1] - {"report.html"} <= each for each in whole)


def test_a_directory_that_was_there_stays(tmp_path: Path) -> None:
    made, there = tmp_path / "made", tmp_path / "there"
    there.mkdir()
    for path in (made, there):
        with owned(path):
            assert (path / LOCK).exists()
    assert not made.exists()
    assert [*there.iterdir()] == []


@pytest.mark.parametrize("writers", [2, 6])
def test_of_several_commands_with_one_name_one_wins(
    pair: list[Path], tmp_path: Path, writers: int
) -> None:
    chance = random.Random(writers)
    for round_ in range(3):
        out = tmp_path / f"run{round_}"
        delays_s = [chance.random() * 0.05 for _ in range(writers)]

        def command(number: int, delay_s: float, out: Path = out) -> None:
            log = os.open(f"{out}.{number}", os.O_CREAT | os.O_WRONLY, 0o600)
            for stream in (1, 2):
                os.dup2(log, stream)
            sys.stdout, sys.stderr = (os.fdopen(at, "w", closefd=False) for at in (1, 2))
            time.sleep(delay_s)
            status = main(["analyze", *map(str, pair), "--out", str(out)])
            sys.stderr.flush()
            os._exit(status)

        pids = [
            in_child(lambda at=at, delay_s=delay_s: command(at, delay_s))
            for at, delay_s in enumerate(delays_s)
        ]
        statuses = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        said = [(tmp_path / f"run{round_}.{at}").read_text() for at in range(writers)]
        assert sorted(statuses) == [0, *[1] * (writers - 1)], said
        for status, text in zip(statuses, said, strict=True):
            refused = ("another process is working on it", "already holds a complete run")
            assert status == 0 or (any(each in text for each in refused) and "hint: " in text)
        assert_whole(out)
