"""Fixtures of the tests of platforms."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from measurements import measuring

import tailscope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from measurements import Place


@pytest.fixture
def measure_hidden(
    place: Place, tmp_path: Path, dataplane: Path
) -> Iterator[Callable[..., dict[str, Any]]]:
    """Return `measure` for a package in a folder that guests and containers mount over.

    A link whose name has a space leads there.
    """
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        shutil.copytree(Path(tailscope.__file__).parent, Path(folder, "tailscope"))
        link = tmp_path / "a link"
        link.symlink_to(folder)

        def run(*words: object, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-m", "tailscope", *map(str, words)]
            environment = {**env, "PYTHONPATH": str(link)}
            return subprocess.run(
                command, env=environment, cwd=tmp_path, capture_output=True, text=True
            )

        yield measuring(run, place)
