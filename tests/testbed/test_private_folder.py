"""The folder of a measurement is private to its owner."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest
from nobody import as_nobody

from tailscope.testbed.folder import LOCK, RunFolder

if TYPE_CHECKING:
    from pathlib import Path

IN_MEMORY = "/dev/shm"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return RunFolder()


def test_the_folder_of_a_measurement_is_its_owners(folder: RunFolder) -> None:
    before = os.umask(0)
    try:
        with folder:
            made = (folder.path, folder.make("one"), folder.part("two").path)
            assert {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o700}
            assert stat.S_IMODE((folder.path / LOCK).stat().st_mode) == 0o600
    finally:
        os.umask(before)
    assert not folder.path.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_others_cannot_look_into_the_folder_of_a_measurement(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch.chmod(0o755)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(scratch))
    with RunFolder() as folder:
        assert as_nobody(lambda: [path.name for path in scratch.iterdir()]) == str([folder.name])
        assert as_nobody(lambda: [*folder.path.iterdir()]).startswith("PermissionError: ")


@pytest.mark.skipif(not os.access(IN_MEMORY, os.W_OK), reason="there is no folder in memory")
def test_a_folder_is_in_memory_only_if_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    fits, too_much = RunFolder(memory_bytes=1), RunFolder(memory_bytes=1 << 60)
    assert str(fits.path.parent) == IN_MEMORY
    assert too_much.path.parent == tmp_path
