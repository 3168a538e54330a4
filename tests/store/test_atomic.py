"""What is not whole has a temporary name, whose lock tells whether its writer lives."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailscope.store.atomic import (
    SUFFIX,
    remove_leftovers,
    replacing,
    replacing_folder,
    temporary_folder,
    write_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_WRITES = """
import sys, time
from pathlib import Path
from tailscope.store.atomic import replacing, temporary_folder
with {what}(Path(sys.argv[1])) as made:
    print("begun", flush=True)
    time.sleep(60)
"""


def writer(path: Path, what: str) -> subprocess.Popen[str]:
    """A process that is about to write."""
    words = [sys.executable, "-c", _WRITES.format(what=what), str(path)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("what", ["replacing", "temporary_folder"])
def test_the_next_writer_removes_what_a_killed_one_left(tmp_path: Path, what: str) -> None:
    process = writer(tmp_path / "all.json", what)
    [left] = names(tmp_path)
    assert left.startswith(".all.json.") and left.endswith(SUFFIX)
    write_text(tmp_path / "other", "while it lives")
    assert names(tmp_path) == [left, "other"]
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert remove_leftovers(tmp_path, dry_run=True) == [tmp_path / left]
    write_text(tmp_path / "other", "afterwards")
    assert names(tmp_path) == ["other"]


def test_what_only_has_a_similar_name_stays(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in (".x.part", f"x{SUFFIX}", f".x{SUFFIX}.txt"):
        (folder / name).touch()
    (folder / f".link{SUFFIX}").symlink_to(outside)
    before = names(folder)
    assert remove_leftovers(folder) == []
    assert names(folder) == before
    assert (outside / "kept").exists()


def test_a_folder_changes_as_a_whole(tmp_path: Path) -> None:
    """Whoever looks finds the old files or the new ones, and never none."""
    site = tmp_path / "site"
    site.mkdir(mode=0o750)
    (site / "old").touch()
    with replacing_folder(site) as folder:
        (folder / "new").touch()
        assert names(site) == ["old"]
    assert names(site) == ["new"]
    assert stat.S_IMODE(site.stat().st_mode) == 0o750
    assert names(tmp_path) == ["site"]


@pytest.mark.parametrize("fill", [replacing, replacing_folder, temporary_folder])
def test_what_fails_leaves_nothing(tmp_path: Path, fill: Callable[..., object]) -> None:
    with pytest.raises(KeyboardInterrupt), fill(tmp_path / "x"):  # type: ignore[attr-defined]
        raise KeyboardInterrupt
    assert names(tmp_path) == []


def test_writers_that_remove_leftovers_do_not_take_each_others(tmp_path: Path) -> None:
    """Six of them, as fast as they can: none misses its file between its creation and its lock."""
    words = """
import sys
from pathlib import Path
from tailscope.store.atomic import write_text
for number in range(60):
    write_text(Path(sys.argv[1]), str(number))
"""
    started = [
        subprocess.Popen([sys.executable, "-c", words, str(tmp_path / f"{number % 3}")])
        for number in range(6)
    ]
    assert [process.wait() for process in started] == [0] * 6
    assert names(tmp_path) == ["0", "1", "2"]


def test_a_writer_takes_another_name_if_its_own_is_removed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken for a leftover after it was made, and before it was locked."""
    real, taken = os.open, []

    def remove_once(path: Path, *more: int) -> int:
        handle = real(path, *more)
        if not taken and str(path).endswith(SUFFIX):
            taken.append(path)
            Path(path).unlink()
        return handle

    monkeypatch.setattr(os, "open", remove_once)
    write_text(tmp_path / "x", "whole")
    assert len(taken) == 1
    assert (tmp_path / "x").read_text() == "whole"
    assert names(tmp_path) == ["x"]
