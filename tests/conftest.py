"""What all tests share: the installed command, the captures of the papers, a place to work in."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from command import COMMAND, run

if TYPE_CHECKING:
    import subprocess

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"

Tailscope = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder of the papers' captures."""
    if not DATA.is_dir() and not os.environ.get("CI"):
        pytest.skip(f"no captures in {DATA}")
    return DATA


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that is gone after the test: captures are large."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def tailscope() -> Tailscope:
    """Runs the installed command."""
    assert COMMAND.exists(), f"{COMMAND}: the package is not installed"
    return run


@pytest.fixture(scope="session")
def figures(tailscope: Tailscope) -> Callable[..., dict[str, Any]]:
    """Analyses a pair and returns the figures that `--json -` prints."""

    def figures(pre: Path, post: Path, *options: object) -> dict[str, Any]:
        done = tailscope("analyze", pre, post, "--json", "-", *options)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    return figures
