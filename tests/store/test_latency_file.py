"""`latency.parquet` is the same file in whatever pieces the matches came."""

from __future__ import annotations

import io

import numpy as np
import pyarrow.parquet as pq
import pytest

from tailscope.analysis import Series
from tailscope.store.latency import LatencyFile, read_chunks

ROWS = 1_000


def written(columns: list[np.ndarray], cuts: list[int]) -> bytes:
    file = io.BytesIO()
    with LatencyFile(file) as latency:
        for pieces in zip(*(np.split(column, cuts) for column in columns), strict=True):
            latency.write(Series(*pieces))
    return file.getvalue()


@pytest.mark.parametrize("cuts", [[], [1], [64, 128, 129], [500, 500, 900], [999], [640]])
def test_pieces_leave_no_trace(monkeypatch: pytest.MonkeyPatch, cuts: list[int]) -> None:
    monkeypatch.setattr(LatencyFile, "ROWS_PER_GROUP", 64)
    random = np.random.default_rng(1)
    columns = [random.integers(0, 1 << 40, ROWS).astype(np.uint64) for _ in range(3)]
    expected = written(columns, list(range(7, ROWS, 7)))
    got = written(columns, cuts)
    assert got == expected
    groups = pq.ParquetFile(io.BytesIO(got)).metadata
    sizes = [groups.row_group(at).num_rows for at in range(groups.num_row_groups)]
    assert sizes == [64] * (ROWS // 64) + [ROWS % 64]


def test_chunks_are_what_was_written(tmp_path) -> None:
    columns = [np.arange(ROWS, dtype=np.uint64) * factor for factor in (1, 2, 3)]
    path = tmp_path / "latency.parquet"
    path.write_bytes(written(columns, [10, 300]))
    chunks = list(zip(*read_chunks(path), strict=True))
    for column, pieces in zip(columns, chunks, strict=True):
        assert np.array_equal(np.concatenate(pieces), column)
