"""Folders of `tailscope.extra` can be deleted, with their tests and pages: what remains works."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tailscope.registry import additions

ROOT = Path(__file__).parents[1]
COPIED = ("python", "tests", "docs", "bench", "experiments", "scripts", "ci", "fuzz", "crates")
FOLDERS = sorted(additions())
QUICK = (
    *("tests/test_house.py", "tests/cli/test_help.py"),
    *(f"tests/docs/test_{name}.py" for name in ("links", "reference", "security", "which_command")),
)
"""Tests of the core that would notice a command, a page or a file that is missed."""


def without(folders: list[str], root: Path) -> Path:
    """Copy the project, and delete folders of the wing."""
    built, results = shutil.ignore_patterns("__pycache__", "target"), shutil.ignore_patterns("runs")

    def left_out(folder: str, names: list[str]) -> set[str]:
        is_package = "__init__.py" in names
        return built(folder, names) | (set() if is_package else results(folder, names))

    for name in COPIED:
        shutil.copytree(ROOT / name, root / name, ignore=left_out)
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, root)
    for kind in ("python/tailscope/extra", "tests/extra", "docs/extra"):
        for folder in folders:
            shutil.rmtree(root / kind / folder)
    return root


def passes(root: Path, *options: str) -> None:
    """Run tests of a copy on the package of the copy."""
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root / "python"), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
    )
    assert tested.returncode == 0, tested.stdout


def test_the_core_works_without_the_wing(scratch: Path) -> None:
    passes(without(FOLDERS, scratch), *QUICK)


@pytest.mark.long
@pytest.mark.parametrize(
    "folders", [FOLDERS, *([folder] for folder in FOLDERS)], ids=["all", *FOLDERS]
)
def test_all_tests_of_the_core_are_collected(scratch: Path, folders: list[str]) -> None:
    chosen = " or ".join(Path(name).name for name in QUICK)
    passes(without(folders, scratch), "-k", chosen, "tests")
