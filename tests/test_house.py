"""What a room of the package may know of others; `docs/architecture.md` draws it."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tailscope
from tailscope import extra
from tailscope.registry import additions, extras

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tailscope.registry import Extra

PACKAGE = Path(tailscope.__file__).parent
MODELS = (PACKAGE / "models", *sorted(PACKAGE.glob("extra/*/models")))
MODELS_KNOW = (
    "tailscope.exceptions",
    *(".".join(path.relative_to(PACKAGE.parent).parts) for path in MODELS),
)
READERS = {"csv", "json", "os", "pathlib", "pyarrow", "pandas", "yaml"}
EXTRAS = [
    ("report/drawing.py", extras()["plot"]),
    *((f"extra/{name}/", added.extra) for name, added in additions().items() if added.extra),
]


def imported(source: str) -> Iterator[str]:
    """Every name that a module imports, wherever in it: ``tailscope.testbed``, ``os.path``."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "relative imports are not followed"
            yield from (f"{node.module}.{each.name}" for each in node.names)


@cache
def imports(path: Path) -> tuple[str, ...]:
    """Every name that a file imports."""
    return tuple(imported(path.read_text()))


def of_a_model(source: str) -> list[str]:
    """Imports that a model must not have."""
    return [
        name
        for name in imported(source)
        if name.split(".")[0] in READERS
        or (name.split(".")[0] == "tailscope" and not f"{name}.".startswith(dotted(MODELS_KNOW)))
    ]


def dotted(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{name}." for name in names)


def sources(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


@pytest.mark.parametrize(
    "path", [path for folder in MODELS for path in sources(folder)], ids=lambda path: path.name
)
def test_a_model_is_numbers_in_numbers_out(path: Path) -> None:
    """It knows no file, no engine and no testbed."""
    assert not of_a_model(path.read_text())


@pytest.mark.parametrize(
    "line",
    [
        "from tailscope import testbed",
        "from tailscope import _engine",
        "import tailscope.store.run",
        "import tailscope",
        "def later():\n    from tailscope.testbed.places import Here",
        "from tailscope.exceptions_of_others import Error",
        "from pyarrow import csv",
        "from pathlib import Path",
    ],
)
def test_what_a_model_must_not_import_is_seen(line: str) -> None:
    assert of_a_model(line)


def test_what_a_model_may_import_is_let_pass() -> None:
    allowed = "import numpy\nfrom tailscope.exceptions import ModelError\n"
    assert not of_a_model(allowed + "from tailscope.models.overload.noise import Interruption")


@pytest.mark.parametrize(("place", "extra"), EXTRAS)
def test_only_one_place_imports_the_packages_of_an_extra(place: str, extra: Extra) -> None:
    packages = dotted(tuple(extra.packages))
    knows = {
        path.relative_to(PACKAGE).as_posix()
        for path in sources(PACKAGE)
        if any(f"{name}.".startswith(packages) for name in imports(path))
    }
    assert knows
    assert not {path for path in knows if not path.startswith(place)}


def test_the_core_imports_nothing_of_the_wing() -> None:
    wing = f"{extra.__name__}."
    wanted = {
        f"{path.relative_to(PACKAGE)}: {name}"
        for path in sources(PACKAGE)
        if not path.is_relative_to(PACKAGE / "extra")
        for name in imports(path)
        if name.startswith(wing)
    }
    assert not wanted


@pytest.mark.parametrize("folder", sorted(additions()))
def test_a_folder_of_the_wing_imports_no_other(folder: str) -> None:
    own = f"{extra.__name__}.{folder}."
    wanted = {
        f"{path.relative_to(PACKAGE)}: {name}"
        for path in sources(PACKAGE / "extra" / folder)
        for name in imports(path)
        if f"{name}.".startswith(f"{extra.__name__}.") and not f"{name}.".startswith(own)
    }
    assert not wanted
