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
QUICK = ("house", "help", "links", "reference", "security", "which_command")
"""Tests of the core that would notice a command, a page or a file that is missed."""


def without(folders: list[str], root: Path) -> Path:
    """Copy the project, and delete folders of the wing."""
    caches, results = shutil.ignore_patterns("__pycache__"), shutil.ignore_patterns("runs")

    def left_out(folder: str, names: list[str]) -> set[str]:
        is_package = "__init__.py" in names
        return caches(folder, names) | (set() if is_package else results(folder, names))

    for name in COPIED:
        shutil.copytree(ROOT / name, root / name, ignore=left_out)
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, root)
    for kind in ("python/tailscope/extra", "tests/extra", "docs/extra"):
        for folder in folders:
            shutil.rmtree(root / kind / folder)
    return root


def passes(root: Path) -> None:
    """Collect all tests of a copy on the package of the copy, and run the quick ones."""
    chosen = " or ".join(f"test_{name}.py" for name in QUICK)
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen, "tests"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root / "python"), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
    )
    assert tested.returncode == 0, tested.stdout


def test_the_core_works_without_the_wing(tmp_path: Path) -> None:
    root = without(FOLDERS, tmp_path)
    passes(root)


@pytest.mark.long
@pytest.mark.parametrize("folder", FOLDERS)
def test_the_core_works_without_a_folder(tmp_path: Path, folder: str) -> None:
    root = without([folder], tmp_path)
    passes(root)
