"""Removal of folders that others may have written into."""

from __future__ import annotations

import os
import random
import subprocess
from typing import TYPE_CHECKING

import pytest
from runs import AS_ROOT

from tailscope.testbed.removal import remove_tree

if TYPE_CHECKING:
    from pathlib import Path

DEEP = 1500


def deepen(path: Path, depth: int = DEEP) -> None:
    """Make nested folders, deeper than a path can express, and a file in the last."""
    folder = os.open(path, os.O_DIRECTORY)
    for _ in range(depth):
        os.mkdir("deep", dir_fd=folder)
        inner = os.open("deep", os.O_DIRECTORY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(os.open("file", os.O_CREAT, dir_fd=folder))
    os.close(folder)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Make a folder for removal."""
    path = tmp_path / "tree"
    path.mkdir()
    return path


def test_a_folder_may_be_deeper_than_calls_and_open_files_go(tree: Path) -> None:
    deepen(tree)
    remove_tree(tree)
    assert not tree.exists()


@pytest.mark.parametrize("seed", range(5))
def test_any_tree_goes_and_what_links_lead_to_stays(tree: Path, tmp_path: Path, seed: int) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("kept")
    random_numbers = random.Random(seed)
    folders = [tree]
    for number in range(200):
        path = random_numbers.choice(folders) / str(number)
        kind = random_numbers.choice(("folder", "file", "link to folder", "link to file", "pipe"))
        if kind == "folder":
            path.mkdir()
            folders.append(path)
        elif kind == "file":
            path.touch()
        elif kind == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to(kept if kind == "link to folder" else kept / "file")
    (tree / "last").touch()
    remove_tree(tree, last="last")
    assert not tree.exists()
    assert (kept / "file").read_text() == "kept"


def test_a_folder_that_is_gone_or_a_link_is_none(tree: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        remove_tree(tmp_path / "gone")
    link = tmp_path / "link"
    link.symlink_to(tree)
    with pytest.raises(NotADirectoryError):
        remove_tree(link)
    assert tree.exists()


@AS_ROOT
def test_what_is_mounted_within_is_not_entered_and_the_rest_goes(
    tree: Path, tmp_path: Path
) -> None:
    """The error has one reason, and the file that would go last stays, too."""
    host = tmp_path / "host"
    host.mkdir()
    (host / "precious").touch()
    (tree / "a" / "mount").mkdir(parents=True)
    (tree / "b" / "c").mkdir(parents=True)
    (tree / "lock").touch()
    mount = tree / "a" / "mount"
    subprocess.run(["mount", "--bind", host, mount], check=True)
    try:
        with pytest.raises(OSError, match="busy"):
            remove_tree(tree, last="lock")
        assert (host / "precious").exists()
        assert (tree / "lock").exists()
        assert not (tree / "b").exists()
    finally:
        [left] = [line.split()[4] for line in mounts() if str(tree) in line]
        subprocess.run(["umount", left], check=True)
    remove_tree(tree, last="lock")
    assert not tree.exists()


def mounts() -> list[str]:
    with open("/proc/self/mountinfo") as file:  # noqa: PTH123 - it is no file of a folder
        return file.read().splitlines()
