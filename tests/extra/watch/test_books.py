"""The books of a watch: a line for each run, whatever ends the process that writes them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from errors import raises
from msgspec.structs import replace

from tailscope.exceptions import RunCorruptError, RunError, RunExistsError
from tailscope.extra.watch import LOG
from tailscope.extra.watch.books import Account, Books
from tailscope.extra.watch.records import WatchedRun

if TYPE_CHECKING:
    from pathlib import Path


def line(number: int, **changed: object) -> WatchedRun:
    given = {
        "run": f"run-{number}",
        "state": "done",
        "started_unix_ns": 10**9 * 10 * number,
        "ended_unix_ns": 10**9 * (10 * number + 9),
        "watched_s": 8.0,
    }
    return WatchedRun(**{**given, **changed})  # type: ignore[arg-type]


def test_lines_are_there_when_the_books_are_opened_again(tmp_path: Path) -> None:
    for number in (1, 2):
        with Books.open(tmp_path / "watch") as books:
            assert books.write(line(number))
    assert Books.read(tmp_path / "watch") == [line(1), line(2)]
    assert (tmp_path / "watch").stat().st_mode & 0o777 == 0o700
    account = Account.of([line(1), line(2)])
    assert (account.lasted_s, account.watched_s) == (19.0, 16.0)


def test_a_clock_set_back_between_runs_takes_no_time_away() -> None:
    month_ns = 30 * 86400 * 10**9
    runs = [line(1), line(2)]
    earlier = [replace(run, started_unix_ns=run.started_unix_ns + month_ns) for run in runs[:1]]
    earlier = [replace(run, ended_unix_ns=run.ended_unix_ns + month_ns) for run in earlier]
    account = Account.of([*earlier, *runs[1:]])
    assert (account.lasted_s, account.watched_s) == (18.0, 16.0)


def test_a_line_that_was_being_written_is_taken_away(tmp_path: Path) -> None:
    with Books.open(tmp_path) as books:
        books.write(line(1))
    with (tmp_path / LOG).open("ab") as file:
        file.write(b'{"format":1,"run":"run-2","sta')
    with Books.open(tmp_path) as books:
        assert books.runs == [line(1)]
        books.write(line(3))
    assert Books.read(tmp_path) == [line(1), line(3)]


def test_lines_without_room_are_written_with_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_file: int, content: bytes, offset: int) -> int:
        whole(_file, content[:20], offset)
        raise OSError(28, "No space left on device")

    whole = os.pwrite
    with Books.open(tmp_path) as books:
        assert books.write(line(1))
        with monkeypatch.context() as patched:
            patched.setattr(os, "pwrite", full)
            assert not books.write(line(2))
        assert books.write(line(3))
    assert Books.read(tmp_path) == [line(1), line(2), line(3)]


def test_one_process_writes_them(tmp_path: Path) -> None:
    with (
        Books.open(tmp_path / "watch"),
        raises(RunExistsError, "run-in-use"),
        Books.open(tmp_path / "watch"),
    ):
        pass


def test_a_folder_of_others_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with (
        raises(RunExistsError, "not-a-watch"),
        Books.open(tmp_path),
    ):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    with raises(RunError, "not-a-watch"):
        Books.read(tmp_path)


@pytest.mark.parametrize(
    ("content", "kind", "code", "named"),
    [
        (b'{"format": 1, "run": 7}\n', RunCorruptError, "field-value", "line 1: run: "),
        (b"\n", RunCorruptError, "json", "line 1: "),
        (b'{"format": 9}\n', RunError, "format-newer", "line 1: format: expected 1, got 9"),
        (
            b'{"format":1,"run":"../mine","state":"done","started_unix_ns":1,"ended_unix_ns":2}\n',
            RunCorruptError,
            "run-outside-watch",
            "line 1: run: ",
        ),
    ],
)
def test_a_line_that_is_none_is_named(
    tmp_path: Path, content: bytes, kind: type[RunError], code: str, named: str
) -> None:
    (tmp_path / LOG).write_bytes(content)
    with raises(kind, code) as refused:
        Books.read(tmp_path)
    assert named in str(refused.value)
