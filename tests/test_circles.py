"""The check for circles of imports, on trees with a circle and without."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CIRCLES = Path(__file__).parent.parent / "scripts" / "circles"

# Arrows point down, though tests look up and a comment names what lies above.
RUST = {
    "lib.rs": "mod matcher;\nmod part;\npub use part::{Part, whole};\n",
    "part.rs": "//! As [`crate::matcher::find`].\nmod half;\npub use half::Half;\n"
    "pub struct Part;\n"
    "#[cfg(test)]\nmod tests {\n    use super::*;\n    use crate::matcher::find;\n}\n",
    "part/half.rs": 'const TEXT: &str = "use super::Part;";\nconst MARK: char = \'"\';\n',
    "matcher.rs": "use crate::part::{self, half::Half};\nmod inner {\n    use super::find;\n}\n",
    "matcher/tests.rs": "use crate::matcher::*;\n",
}
PYTHON = {
    "__init__.py": '"""A package."""\n',
    "_engine.pyi": "VERSION: str\n",
    "pair.py": "from tailscope import _engine\nfrom tailscope.plan import Plan\n",
    "plan/__init__.py": "from .steps import Step\n",
    "plan/steps.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"
    "    from tailscope.pair import Pair\n",
    "plan/words.py": "from tailscope import store\n",
    "store/__init__.py": '"""A face that imports nothing."""\n',
    "store/run.py": "from tailscope.plan.words import text\n"
    "from tailscope.store.records.run import Record\n",
    "store/records/run.py": "",
    "store/records/base.py": "",
}


def _checked(root: Path, rust: dict[str, str], python: dict[str, str], *options: str) -> list[str]:
    """Lay out a tree of both and say what the check prints; nothing where it is content."""
    for folder, files in (("crates/pairs/src", rust), ("python/tailscope", python)):
        for name, text in files.items():
            file = root / folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    command = [sys.executable, CIRCLES, *options, root]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == (1 if done.stdout else 0), done.stderr
    return done.stdout.splitlines()


def test_a_tree_without_a_circle_passes(tmp_path: Path) -> None:
    assert _checked(tmp_path, RUST, PYTHON) == []


@pytest.mark.parametrize(
    ("name", "text", "circle"),
    [
        ("part/half.rs", "use super::Part;\n", "part/half.rs -> part.rs -> part/half.rs"),
        ("part/half.rs", "use crate::Part;\n", "lib.rs -> part.rs -> part/half.rs -> lib.rs"),
        ("part.rs", "fn f() { crate::matcher::find() }\n", "matcher.rs -> part.rs -> matcher.rs"),
        (
            "part/half.rs",
            "use crate::{\n    other::A,\n    matcher::{Found as F, find},\n};\n",
            "matcher.rs -> part/half.rs -> matcher.rs",
        ),
    ],
)
def test_a_circle_of_a_crate_is_shown(tmp_path: Path, name: str, text: str, circle: str) -> None:
    printed = _checked(tmp_path, {**RUST, name: RUST[name] + text}, PYTHON)
    assert f"pairs: {circle}" in printed
    assert any(line.startswith("    ") and f"{name}:" in line for line in printed)


@pytest.mark.parametrize("text", ["import tailscope.pair\n", "def f():\n    from .. import pair\n"])
def test_a_circle_of_the_package_is_shown(tmp_path: Path, text: str) -> None:
    printed = _checked(tmp_path, RUST, {**PYTHON, "plan/steps.py": text})
    assert printed[0] == "tailscope: pair.py -> plan/__init__.py -> plan/steps.py -> pair.py"
    assert [line.split(":")[-1].strip() for line in printed[1:4]] == [
        "from tailscope.plan import Plan",
        "from .steps import Step",
        text.splitlines()[-1].strip(),
    ]


@pytest.mark.parametrize("options", [(), ("--types",)])
@pytest.mark.parametrize(
    ("name", "imported", "circle"),
    [
        ("plan/steps.py", "store.records.base", "plan -> store -> plan"),
        ("store/records/base.py", "store.run", "store/run.py -> store/records -> store/run.py"),
    ],
)
def test_a_circle_of_folders_is_shown(
    tmp_path: Path, name: str, imported: str, circle: str, options: tuple[str, ...]
) -> None:
    """No module of it imports itself."""
    planted = f"def f():\n    from tailscope.{imported} import Found\n"
    printed = _checked(tmp_path, RUST, {**PYTHON, name: PYTHON[name] + planted}, *options)
    at = printed.index(f"tailscope: {circle}")
    assert sum(f"{name}:" in line for line in printed[at + 1 : at + 3]) == 1


def test_imports_for_types_count_when_they_are_asked_for(tmp_path: Path) -> None:
    (first, *_) = _checked(tmp_path, RUST, PYTHON, "--types")
    assert first == "tailscope: pair.py -> plan/__init__.py -> plan/steps.py -> pair.py"
