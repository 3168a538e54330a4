"""Pages promise only what a test shows, and say of every command what needs root."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import pytest
from docs.reference.cli import commands
from pages import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGES = [ROOT / "docs" / "security.md", *sorted((ROOT / "docs" / "extra").glob("*/index.md"))]
TEST = re.compile(r"\[`(test_\w+)`\]\(([^)]+\.py)\)")
SHOWN = [
    (name, (page.parent / file).resolve())
    for page in sorted((ROOT / "docs").rglob("*.md"))
    for name, file in TEST.findall(page.read_text())
]


def defined_in(path: Path) -> set[str]:
    """The tests of a file that pytest finds."""
    nodes = ast.parse(path.read_text()).body
    return {
        node.name
        for node in nodes
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def rows(header: str) -> Iterator[list[str]]:
    """The rows of all tables with a header."""
    is_inside = False
    for line in [line for page in PAGES for line in page.read_text().splitlines()]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        is_row = line.startswith("|") and not line.startswith("|---")
        if is_row and is_inside:
            yield cells
        is_inside = line.startswith("|") and (is_inside or cells[0] == header)


@pytest.mark.parametrize(("name", "file"), SHOWN, ids=[name for name, _ in SHOWN])
def test_the_named_test_exists(name: str, file: Path) -> None:
    assert name in defined_in(file), f"{file}: no {name}"


def test_every_promise_has_its_test() -> None:
    promises = [*rows("promise")]
    assert len(promises) > 20
    assert not [promise for promise, shown in promises if not TEST.search(shown)]


def test_tests_are_named_only_as_links_to_them() -> None:
    texts = [page.read_text() for page in PAGES]
    named = [name for text in texts for name in re.findall(r"`(test_\w+)`", text)]
    assert named == [name for text in texts for name, _ in TEST.findall(text)]


def test_root_is_explained_for_every_command() -> None:
    explained = [
        name for command, *_ in rows("command") for name in re.findall(r"`([^`]+)`", command)
    ]
    assert len(explained) == len({*explained})
    assert {*explained} == {name.removeprefix("tailscope ") for name, _ in commands()}
