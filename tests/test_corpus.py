"""What fuzzing found worth keeping, once more: parsers written in Python take it or say why not."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz.python.targets import TARGETS, survives

CORPUS = Path(__file__).parents[1] / "fuzz" / "corpus"


KINDS = {"run": {b"{"}, "record": {b"b", b"c", b"n", b"s"}}
"""First bytes of inputs that are read whole: of each kind of record there is one of today's."""


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_ends_as_it_should(name: str, tmp_path: Path) -> None:
    """Some of it is what the parser reads."""
    inputs = sorted((CORPUS / name).iterdir())
    taken = [survives(TARGETS[name], path.read_bytes(), tmp_path) for path in inputs]
    assert any(taken)


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_of_record_is_there_in_the_encoding_of_today(name: str, tmp_path: Path) -> None:
    inputs = [path.read_bytes() for path in (CORPUS / name).iterdir()]
    taken = {each[:1] for each in inputs if survives(TARGETS[name], each, tmp_path)}
    assert taken >= KINDS[name]
