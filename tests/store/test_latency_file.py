"""`latency.parquet`: the same file in whatever pieces the matches came, and read in pieces."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from errors import raises

from tailscope.engine.analysis import Series
from tailscope.engine.columns import column_of, values
from tailscope.exceptions import RunCorruptError
from tailscope.store import parquet
from tailscope.store.latency import LatencyFile
from tailscope.store.packets import Packets
from tailscope.store.tables import Table, TableColumn

if TYPE_CHECKING:
    from pathlib import Path

MIXED = Table(
    "noise.parquet",
    "",
    (
        TableColumn("source", "string", ""),
        TableColumn("cpu", "int64", ""),
        TableColumn("cause", "string", ""),
        TableColumn("start_ns", "int64", "", may_be_null=True),
    ),
)
ROWS = 1_000


def written(columns: list[np.ndarray], cuts: list[int]) -> bytes:
    file = io.BytesIO()
    with LatencyFile(file) as latency:
        for pieces in zip(*(np.split(column, cuts) for column in columns), strict=True):
            latency.write(Series(*pieces))
    return file.getvalue()


WHOLE = list(range(64, ROWS, 64))
"""Pieces that are groups of rows, which are taken as they are."""


@pytest.mark.parametrize("cuts", [[], [1], [64, 128, 129], [500, 500, 900], [999], [640], WHOLE])
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


def test_packets_are_read_as_they_were_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "_ROWS", 128)
    columns = [np.arange(ROWS, dtype=np.uint64) * factor for factor in (1, 2, 3)]
    with Packets(io.BytesIO(written(columns, [10, 300])), "x") as packets:
        assert len(packets) == ROWS
        batches = [*packets.batches("seq", "tainted", "latency_ns")]
        assert [len(batch[0]) for batch in batches] == [128] * (ROWS // 128) + [ROWS % 128]
        assert all(tainted is None for _, tainted, _ in batches)
        for column, found in zip(
            columns, packets.columns("seq", "pre_ns", "latency_ns"), strict=True
        ):
            assert np.array_equal(column, found)
        known = packets.latencies()
        came, left = packets.beyond(2_994)
    assert (known.distribution.count, known.first_seq, known.last_seq) == (ROWS, 0, ROWS - 1)
    assert (known.first_ns, known.last_ns, known.worst_seq) == (0, 5 * (ROWS - 1), ROWS - 1)
    assert (came.tolist(), left.tolist()) == ([1_998], [4_995])


@pytest.mark.parametrize("every", [1, 2, 3, 8, 100])
def test_some_batches_are_read_without_the_others(
    monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    monkeypatch.setattr(parquet, "_ROWS", 16)
    monkeypatch.setattr(LatencyFile, "ROWS_PER_GROUP", 64)
    columns = [np.arange(ROWS, dtype=np.uint64) * factor for factor in (1, 2, 3)]
    with Packets(io.BytesIO(written(columns, [])), "x") as packets:
        whole = [*packets.batches("seq", "latency_ns")]
        found = [*packets.batches("seq", "latency_ns", every=every)]
        assert packets.batch_count == len(whole) == -(-ROWS // 16)
    assert len(found) == -(-len(whole) // every)
    for some, expected in zip(found, whole[::every], strict=True):
        assert all(map(np.array_equal, some, expected))


def test_a_file_without_packets_has_none() -> None:
    with Packets(io.BytesIO(written([np.zeros(0, np.uint64)] * 3, [])), "x") as packets:
        known = packets.latencies()
        assert (known.distribution.count, known.distribution.at(0.5)) == (0, 0)
        assert [len(column) for column in packets.columns("seq", "pre_ns")] == [0, 0]


def foreign(table: pa.Table) -> io.BytesIO:
    file = io.BytesIO()
    pq.write_table(table, file)
    return io.BytesIO(file.getvalue())


COLUMNS = {name: pa.array([1, 2], pa.uint64()) for name in ("seq", "pre_ns", "latency_ns")}


@pytest.mark.parametrize(
    ("columns", "code", "expected"),
    [
        ({"pre_ns": pa.array([1, 2])}, "column-type", "x: pre_ns: expected uint64, got int64"),
        ({"seq": pa.array(["1", "2"])}, "column-type", "x: seq: expected uint64, got string"),
        ({"seq": pa.array([2, 1], pa.uint64())}, "packet-order", "x: seq: "),
        ({"seq": pa.array([2, 2], pa.uint64())}, "packet-order", "x: seq: "),
        ({"latency_ns": None}, "no-such-column", "x: latency_ns: "),
        (
            {"latency_ns": pa.array([1, None], pa.uint64())},
            "values-missing",
            "x: latency_ns: ",
        ),
        ({"tainted": pa.array([True, None])}, "values-missing", "x: tainted: "),
    ],
)
def test_what_is_no_table_of_packets_is_refused(
    columns: dict[str, pa.Array | None], code: str, expected: str
) -> None:
    whole = {name: each for name, each in {**COLUMNS, **columns}.items() if each is not None}
    names = ("seq", "pre_ns", "latency_ns", "tainted")
    file = foreign(pa.table(whole))
    with raises(RunCorruptError, code) as raised, Packets(file, "x") as packets:
        packets.columns(*names)
    assert str(raised.value).startswith(expected)


def test_what_is_no_parquet_is_refused() -> None:
    with raises(RunCorruptError, "parquet"):
        Packets(io.BytesIO(b"no"), "x")


def test_what_is_written_is_read_by_others(tmp_path: Path) -> None:
    columns = {
        "count": np.arange(3, dtype=np.uint64) + np.uint64(2**63),
        "at_ns": np.ma.MaskedArray(np.arange(3), [False, True, False]),
        "watts": np.array([0.5, -1.0, 2.0]),
        "is": np.array([True, False, True]),
        "cause": ["", "größer", ""],
        "nothing": np.ma.MaskedArray(np.zeros(3, np.uint64), mask=True),
    }
    path = tmp_path / "x.parquet"
    parquet.write_parquet(path, columns)
    expected = {name: values(column_of(column)).tolist() for name, column in columns.items()}
    table = pq.read_table(path)
    assert table.to_pydict() == expected
    kinds = ["uint64", "int64", "double", "bool", "string", "uint64"]
    assert [str(kind) for kind in table.schema.types] == kinds
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).compression == "ZSTD"
    rows = duckdb.sql(f"select * from '{path}'").fetchall()
    assert rows == [*zip(*expected.values(), strict=True)]


@pytest.mark.parametrize("compression", ["zstd", "snappy", "none"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_what_others_have_written_is_read(tmp_path: Path, compression: str, version: str) -> None:
    rows = 70_000
    texts = pa.array([f"task {at % 5}" for at in range(rows)])
    written = pa.table(
        {
            "source": texts.dictionary_encode(),
            "cpu": pa.array(np.arange(rows) % 3),
            "cause": texts,
            "start_ns": pa.array([None if at % 9 == 0 else -at for at in range(rows)], pa.int64()),
        }
    )
    path = tmp_path / "noise.parquet"
    pq.write_table(
        written, path, compression=compression, data_page_version=version, row_group_size=40_000
    )
    with parquet.TableFile(path.open("rb"), "x", MIXED) as file:
        found = file.read()
    assert {name: column.tolist() for name, column in found.items()} == written.to_pydict()


def test_damage_is_an_error_that_says_so(tmp_path: Path) -> None:
    """A byte changed anywhere: what is read has as many rows, or there is an error."""
    content = written([np.arange(ROWS, dtype=np.uint64)] * 3, [])
    random = np.random.default_rng(1)
    for _ in range(300):
        damaged = bytearray(content)
        damaged[int(random.integers(len(content)))] = int(random.integers(256))
        try:
            with Packets(io.BytesIO(damaged), "x") as packets:
                packets.columns("seq", "pre_ns", "latency_ns")
        except RunCorruptError as error:
            assert str(error).startswith("x: ")
