"""Arrow's columns and tables of those of the engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tailscope.engine.arrow import column, table
from tailscope.engine.columns import Texts, joined, values

CELLS: dict[str, Any] = {
    "numbers": np.arange(7, dtype=np.uint64)[2:],
    "every other": np.arange(10, dtype=np.int32)[::2],
    "floats": [0.5, 2.0],
    "booleans": np.arange(21) % 3 == 0,
    "texts": np.array(["a", "", "größer"], object),
    "a list of texts": ["x"],
    "nothing": [],
    "no booleans": np.zeros(0, np.bool_),
}


@pytest.mark.parametrize("name", CELLS)
def test_columns_are_those_of_arrow(name: str) -> None:
    cells = CELLS[name]
    made = column(cells)
    made.validate(full=True)
    expected = pa.array(cells, None if len(cells) or isinstance(cells, np.ndarray) else pa.int64())
    assert made.equals(expected)


def test_what_is_missing_is_null_and_none() -> None:
    numbers = np.ma.MaskedArray(np.arange(3), [False, True, False])
    texts = Texts(np.array([1, 0]), ["a", None])
    assert column(numbers).to_pylist() == values(numbers).tolist() == [0, None, 2]
    assert column(texts).to_pylist() == values(texts).tolist() == [None, "a"]


def test_pieces_are_one_column() -> None:
    texts = joined([Texts.of(["a", "b", "a"]), Texts.of([]), Texts.of(["b", "c"])])
    assert isinstance(texts, Texts)
    assert texts.names == ["a", "b", "c"]
    assert values(texts).tolist() == ["a", "b", "a", "b", "c"]
    masked = joined([np.arange(2), np.ma.MaskedArray(np.arange(1), [True])])
    assert values(masked).tolist() == [0, 1, None]


def test_a_table_takes_columns_and_arrays() -> None:
    found = table({"a": Texts.of(["x", "x"]), "b": [1, 2]})
    assert found.schema.types == [pa.string(), pa.int64()]
    assert found.to_pylist() == [{"a": "x", "b": 1}, {"a": "x", "b": 2}]
