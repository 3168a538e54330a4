"""Ctrl-C and SIGTERM at any time: no traceback, whatever Python is doing just then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import captures
import pytest
from command import COMMAND

if TYPE_CHECKING:
    from pathlib import Path

AT_IMPORT = """
import atexit, os, sys

def kill():
    # In evaluated text, after whose interruption Python would end as by SIGINT.
    exec("os.kill(os.getpid(), int(os.environ['SIGNAL']))")

class Named:
    def __set_name__(self, owner, name):
        kill()

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["AT"] and "NAMED" in os.environ:
            type("Owner", (), {"named": Named()})
        elif name == os.environ["AT"]:
            kill()

if os.environ["AT"] == "exit":
    atexit.register(kill)
sys.meta_path.insert(0, Finder())
"""
"""A signal comes when a module is imported, or when Python exits."""

MODULE = [sys.executable, "-m", "tailscope"]
SIGNALS = pytest.mark.parametrize(
    "signum", [signal.SIGINT, signal.SIGTERM], ids=lambda one: one.name
)
ENTRIES = pytest.mark.parametrize("entry", [[COMMAND], MODULE], ids=["tailscope", "python -m"])


def killed(
    folder: Path, entry: list[str], signum: int, at: str, *words: object, **more: str
) -> subprocess.CompletedProcess[str]:
    (folder / "sitecustomize.py").write_text(AT_IMPORT)
    told = {"PYTHONPATH": str(folder), "SIGNAL": str(int(signum)), "AT": at, **more}
    return subprocess.run(
        [*entry, *map(str, words)], env={**os.environ, **told}, capture_output=True, text=True
    )


@SIGNALS
@ENTRIES
@pytest.mark.parametrize("at", ["tailscope.cli", "typer.core"])
def test_while_the_program_is_imported(
    tmp_path: Path, entry: list[str], signum: int, at: str
) -> None:
    done = killed(tmp_path, entry, signum, at, "--help")
    assert (done.returncode, done.stderr) == (130, "error: interrupted\n")


@SIGNALS
@pytest.mark.parametrize("at", ["tailscope.cli.analyze", "numpy"])
def test_while_the_command_imports_what_it_needs(tmp_path: Path, signum: int, at: str) -> None:
    pair = captures.pair(tmp_path / "pair", [1_000] * 5)
    done = killed(tmp_path, MODULE, signum, at, "analyze", *pair, "--out", tmp_path / "out")
    assert (done.returncode, done.stderr) == (130, "error: interrupted\n")
    assert not (tmp_path / "out").exists()


def test_while_a_class_names_its_attributes(tmp_path: Path) -> None:
    """Python makes a RuntimeError of an interruption there."""
    pair = captures.pair(tmp_path / "pair", [1_000] * 5)
    words = ("analyze", *pair)
    done = killed(tmp_path, MODULE, signal.SIGINT, "tailscope.engine.analysis", *words, NAMED="1")
    assert (done.returncode, done.stderr) == (130, "error: interrupted\n")


@SIGNALS
def test_while_python_exits_the_result_stands(tmp_path: Path, signum: int) -> None:
    done = killed(tmp_path, [COMMAND], signum, "exit", "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("tailscope ")


def test_nothing_is_imported_before_signals_are_handled() -> None:
    """But what Python itself has imported, or has within it and need not read."""
    report = "print(*{*sys.modules} - before)"
    program = f"import sys; before = {{*sys.modules}}; import tailscope.__main__; {report}"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    imported = {*done.stdout.split()} - {*sys.builtin_module_names}
    assert imported == {"tailscope", "tailscope.__main__"}
