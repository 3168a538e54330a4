"""Arrow columns from NumPy arrays and back, without pandas.

``pyarrow.array`` and ``to_numpy`` import pandas wherever it is installed, only to ask whether they
were given something of it. A short command spent more time on that than on its work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray


def table(columns: Mapping[str, pa.Array | NDArray[np.generic] | Sequence[object]]) -> pa.Table:
    """Make a table of columns, which may be Arrow's already."""
    made = [each if isinstance(each, pa.Array) else column(each) for each in columns.values()]
    return pa.Table.from_arrays(made, names=list(columns))


def column(
    cells: NDArray[np.generic] | Sequence[object], missing: NDArray[np.bool_] | None = None
) -> pa.Array:
    """Make a column of numbers, booleans or strings; numbers share the memory of an array."""
    is_typed = isinstance(cells, np.ndarray) or len(cells) > 0
    array = np.asarray(cells, None if is_typed else np.int64)
    if array.dtype.kind in "OU":
        return strings(array.tolist())
    is_bool = array.dtype == np.bool_
    data = np.packbits(array, bitorder="little") if is_bool else np.ascontiguousarray(array)
    kind = pa.from_numpy_dtype(array.dtype)
    valid = None if missing is None else pa.py_buffer(np.packbits(~missing, bitorder="little"))
    return pa.Array.from_buffers(kind, len(array), [valid, pa.py_buffer(data)])


def strings(texts: list[str]) -> pa.Array:
    """Make a column of strings."""
    encoded = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.large_string(), len(texts), buffers).cast(pa.string())


def values(cells: pa.Array | pa.ChunkedArray) -> NDArray[Any]:
    """Return what a column holds: numbers share its memory if they are in one piece."""
    array = cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells
    if pa.types.is_boolean(array.type) and not array.null_count:
        bits = np.unpackbits(np.frombuffer(array.buffers()[1], np.uint8), bitorder="little")
        return bits[array.offset : array.offset + len(array)].view(np.bool_)
    if pa.types.is_primitive(array.type) and not array.null_count:
        return np.from_dlpack(array)
    if pa.types.is_string(array.type) or pa.types.is_dictionary(array.type):
        return _shared_texts(array)
    return np.array([*array.to_pylist(), None], object)[:-1]


def _shared_texts(array: pa.Array) -> NDArray[Any]:
    """Texts of which equal ones are one object: few are told from each other, of many rows."""
    encoded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    texts = np.array([*encoded.dictionary.to_pylist(), None], object)
    places = encoded.indices.fill_null(len(texts) - 1) if encoded.null_count else encoded.indices
    shared: NDArray[Any] = texts[np.from_dlpack(places)]
    return shared
