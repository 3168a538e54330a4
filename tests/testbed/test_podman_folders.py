"""Where podman keeps the state of running containers, whose path it wants short."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tailscope.testbed.podman import own_podman, remove_podman

if TYPE_CHECKING:
    import pytest


def test_the_path_is_short_wherever_folders_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path / ("long" * 12)
    mark = "tailscope-0-0123abcd"
    folder = base / mark
    folder.mkdir(parents=True)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(base))
    monkeypatch.setattr(tempfile, "tempdir", str(base))
    [option] = [word for word in own_podman(folder, mark, "crun") if "--runroot=" in word]
    run = Path(option.partition("=")[2])
    assert run.is_dir()
    assert len(str(run)) <= 50
    remove_podman(folder, mark)
    assert not run.exists()
    assert not run.parent.exists()
