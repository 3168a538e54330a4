"""What fuzzing found worth keeping, once more: parsers written in Python take it or say why not."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz.python.targets import TARGETS, survives

CORPUS = Path(__file__).parents[1] / "fuzz" / "corpus"


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_ends_as_it_should(name: str, tmp_path: Path) -> None:
    """Some of it is what the parser reads."""
    inputs = sorted((CORPUS / name).iterdir())
    taken = [survives(TARGETS[name], path.read_bytes(), tmp_path) for path in inputs]
    assert any(taken)
