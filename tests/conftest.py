"""What all tests share: the installed command, the captures of the papers, a place to work in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

COMMAND = Path(sys.executable).with_name("tailscope")
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


def run(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """The installed command, as a process of its own."""
    defaults = {"capture_output": True, "timeout": 120, "stdin": subprocess.DEVNULL}
    if "input" in options:
        del defaults["stdin"]
    done = subprocess.run([COMMAND, *map(os.fspath, map(_text, arguments))], **defaults | options)
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
    )


def _text(argument: object) -> str | os.PathLike[str]:
    return argument if isinstance(argument, os.PathLike) else str(argument)


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
