"""Arrow's columns and tables of those of the engine, for whoever asks for them: extra ``arrow``.

``pyarrow.array`` imports pandas wherever it is installed, only to ask whether it was given
something of it; buffers do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tailscope.engine.columns import Texts, column_of
from tailscope.registry import require

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from tailscope.engine.columns import Column


def arrow() -> Any:
    """Import pyarrow, or say which extra has it."""
    require("arrow")
    import pyarrow

    return pyarrow


def table(columns: Mapping[str, Column | Sequence[object]]) -> pa.Table:
    """Make a table of columns."""
    made = [column(each) for each in columns.values()]
    return arrow().Table.from_arrays(made, names=list(columns))


def column(cells: Column | Sequence[object]) -> pa.Array:
    """Make a column of numbers, booleans or strings; numbers share the memory of an array."""
    pa, made = arrow(), column_of(cells)
    if isinstance(made, Texts):
        names = pa.array(made.names, pa.string())
        return pa.DictionaryArray.from_arrays(column(made.places), names).cast(pa.string())
    array = np.ma.getdata(made)
    is_bool = array.dtype == np.bool_
    data = np.packbits(array, bitorder="little") if is_bool else np.ascontiguousarray(array)
    kind = pa.from_numpy_dtype(array.dtype)
    valid = None
    if isinstance(made, np.ma.MaskedArray):
        valid = pa.py_buffer(np.packbits(~np.ma.getmaskarray(made), bitorder="little"))
    return pa.Array.from_buffers(kind, len(array), [valid, pa.py_buffer(data)])
