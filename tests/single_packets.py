"""The single packets of a run that has no others."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np

from tailscope.engine.analysis import Series
from tailscope.store.latency import LatencyFile
from tailscope.store.packets import Packets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def packets(
    pre_ns: Sequence[int] | NDArray[np.int64],
    latency_ns: Sequence[int] | NDArray[np.int64],
    tainted: NDArray[np.bool_] | None = None,
    stall_ns: NDArray[np.int64] | None = None,
) -> Packets:
    """Packets as a run keeps them, numbered from 0; tainted where the instrument stalled."""
    file = io.BytesIO()
    columns = np.arange(len(pre_ns)), np.array(pre_ns), np.array(latency_ns)
    series = Series(*(column.astype(np.uint64) for column in columns))
    if tainted is None and stall_ns is not None:
        tainted = stall_ns > 0
    if tainted is not None:
        stalled = np.zeros(len(tainted)) if stall_ns is None else stall_ns
        series = series._replace(
            intended_ns=series.pre_ns,
            tainted=tainted,
            instrument_stall_ns=stalled.astype(np.uint64),
        )
    with LatencyFile(file) as written:
        written.write(series)
    return Packets(io.BytesIO(file.getvalue()), "latency.parquet")
