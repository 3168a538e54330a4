"""Tags and notes: what several people say of a run at once is all kept."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from errors import raises

from tailscope.exceptions import RunCorruptError, RunError, UsageError
from tailscope.store.notes import Remarks, add_note, change_tags, read_notes

if TYPE_CHECKING:
    from pathlib import Path

MARK = '{"format": 1, "complete": true}'
_ADD = """
import sys
from pathlib import Path
from tailscope.store.notes import change_tags
for number in range(20):
    change_tags(Path(sys.argv[1]), add=[f"{sys.argv[2]}-{number}"])
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "run.json").write_text(MARK)
    return tmp_path


def test_tags_come_and_go(run: Path) -> None:
    assert read_notes(run) == Remarks()
    assert change_tags(run, add=["paper", "b", "paper"]).tags == ("b", "paper")
    assert change_tags(run, add=["a"], remove=["b", "never there"]).tags == ("a", "paper")
    assert read_notes(run).tags == ("a", "paper")


def test_notes_are_kept_in_order(run: Path) -> None:
    add_note(run, "first\nof two lines")
    notes = add_note(run, " second ").notes
    assert [note.text for note in notes] == ["first\nof two lines", "second"]
    assert notes[0].written_unix_ns < notes[1].written_unix_ns
    content = json.loads((run / "notes.json").read_text())
    assert content["format"] == 1
    assert (run / "run.json").read_text() == MARK


@pytest.mark.parametrize("tag", ["", "two words", "-x", "new\nline", "<b>", "x" * 65])
def test_a_tag_is_one_word(run: Path, tag: str) -> None:
    with raises(UsageError, "tag") as refused:
        change_tags(run, add=[tag])
    assert repr(tag) in str(refused.value)
    assert not (run / "notes.json").exists()


def test_what_cannot_be_noted_is_refused(run: Path) -> None:
    with raises(UsageError, "empty-note"):
        add_note(run, " \n")
    with raises(RunError, "not-a-run"):
        change_tags(run / "nowhere", add=["a"])
    (run / "notes.json").write_text("{")
    with raises(RunCorruptError, "json") as refused:
        change_tags(run, add=["a"])
    assert str(run / "notes.json") in str(refused.value)
    assert (run / "notes.json").read_text() == "{"


def test_processes_lose_no_tag_of_each_other(run: Path) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", _ADD, run, str(number)]) for number in range(3)
    ]
    assert [process.wait(timeout=60) for process in processes] == [0, 0, 0]
    expected = sorted(f"{process}-{number}" for process in range(3) for number in range(20))
    assert list(read_notes(run).tags) == expected
