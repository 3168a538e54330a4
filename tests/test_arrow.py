"""Arrow columns from NumPy arrays and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tailscope.engine.arrow import column, strings, table, values

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
    for first in (0, 1):
        back = values(made[first:])
        assert back.tolist() == list(cells)[first:]
        assert back.dtype == expected.to_numpy(zero_copy_only=False).dtype


def test_pieces_are_one_array() -> None:
    for kind in (pa.bool_(), pa.uint64(), pa.string()):
        assert values(pa.chunked_array([], kind)).tolist() == []
    pieces = pa.chunked_array([column([1, 2]), column([3])])
    assert values(pieces).tolist() == [1, 2, 3]


def test_what_is_missing_is_none() -> None:
    assert values(pa.array([1, None])).tolist() == [1, None]


def test_a_table_takes_columns_and_arrays() -> None:
    found = table({"a": strings(["x", "x"]).dictionary_encode(), "b": [1, 2]})
    assert found.schema.types == [pa.dictionary(pa.int32(), pa.string()), pa.int64()]
    assert found["b"].to_pylist() == [1, 2]
