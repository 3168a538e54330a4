"""Pages of a checkout: whoever installed a wheel has none, so no message cites them."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import pytest
from pages import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CITED = re.compile(r"\bdocs/[\w./-]+")


def python_texts(source: str) -> Iterator[str]:
    """Strings of a module that are no docstrings."""
    tree = ast.parse(source)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and id(node) not in docstrings:
            yield node.value


def texts(path: Path) -> list[str]:
    source = path.read_text()
    if path.suffix == ".py":
        return list(python_texts(source))
    if path.suffix == ".rs":
        return [re.sub(r"^\s*//.*", "", source, flags=re.M)]
    return [source]


@pytest.mark.parametrize("pattern", ["python/**/*.py", "python/**/*.j2", "crates/*/src/**/*.rs"])
def test_no_message_cites_a_page_of_a_checkout(pattern: str) -> None:
    paths = list(ROOT.glob(pattern))
    assert paths
    found = {
        str(path.relative_to(ROOT)): pages
        for path in paths
        if (pages := [page for text in texts(path) for page in CITED.findall(text)])
    }
    assert not found


def test_a_citation_is_found() -> None:
    assert CITED.findall(*python_texts('"""See docs/one.md."""\nhint = "see docs/two.md"')) == [
        "docs/two.md"
    ]
