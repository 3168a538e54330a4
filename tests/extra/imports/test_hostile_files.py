"""What fuzzing found in the parsers written in Python: these ended otherwise than in an error."""

from __future__ import annotations

import base64
import gzip
import struct
import zlib
from typing import TYPE_CHECKING

import pyarrow
import pytest
from errors import raises

from tailscope.exceptions import CaptureError
from tailscope.extra.imports import hdr, moongen
from tailscope.store.authors import read_columns

if TYPE_CHECKING:
    from pathlib import Path

MANY_DIGITS = "9" * 5_000


def interval(inner: bytes, *, version: int = 0x1C849302) -> str:
    """A line of a log with this histogram."""
    stream = zlib.compress(inner)
    content = base64.b64encode(struct.pack(">II", version | 0x10, len(stream)) + stream)
    return f"0,1,2,{content.decode()}\n"


def header(length: int, digits: int, *, word: int = 8) -> bytes:
    return struct.pack(">IIIIqqd", 0x1C849301 | word << 4, length, 0, digits, 1, 2**62, 1.0)


@pytest.mark.parametrize(
    ("line", "code", "place"),
    [
        ("1e999999999,1", "latency-range", "line 1: "),
        ("5,99999999999999999999", "count-range", "line 1: "),
        (f"5,{MANY_DIGITS}", "count-range", "line 1: "),
        ("1e-99999,1", "latency-range", "line 1: "),
        ("5,4000000000000000000\n6,4000000000000000000", "count-range", " 8000000000000000000"),
    ],
)
def test_numbers_of_moongen_are_bounded(tmp_path: Path, line: str, code: str, place: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(line)
    with raises(CaptureError, code) as refused:
        moongen.read(path, None)
    assert place in str(refused.value)


@pytest.mark.parametrize("total", [MANY_DIGITS, str(2**63)])
def test_numbers_of_percentile_output_are_bounded(tmp_path: Path, total: str) -> None:
    path = tmp_path / "x.hgrm"
    path.write_text(f"1.0 1.0 3\n#[Max = 1.0, Total count = {total}]\n")
    with raises(CaptureError, "count-range") as refused:
        hdr.read_percentiles(path, "ns")
    assert "Total count: " in str(refused.value)


@pytest.mark.parametrize(
    ("line", "code", "bound"),
    [
        (interval(bytes(80 << 20)), "histogram", "67108864"),
        (interval(header(8, 9)), "histogram", "got 9"),
        (interval(header(8, 2) + struct.pack(">q", -1), version=0x1C849302), "histogram", "got -1"),
        (interval(header(16, 2) + struct.pack(">qq", 2**62, 2**62)), "count-range", "packets"),
        (interval(header(4 << 20, 5, word=1) + b"\1" * (4 << 20)), "histogram", "524288"),
    ],
)
def test_histograms_of_logs_are_bounded(tmp_path: Path, line: str, code: str, bound: str) -> None:
    path = tmp_path / "x.hlog"
    path.write_text(line)
    with raises(CaptureError, code) as refused:
        hdr.read_log(path, "ns")
    assert bound in str(refused.value)


def test_tables_are_bounded_and_whole(tmp_path: Path) -> None:
    """Once they are decompressed; a stream that was cut off is named."""
    table = b"latency,prets\n5,6\n"
    cut, large = tmp_path / "x.csv.gz", tmp_path / "y.csv.zst"
    cut.write_bytes(gzip.compress(table)[:-9])
    large.write_bytes(pyarrow.compress(table + b"1,1\n" * (17 << 20), codec="zstd", asbytes=True))
    for path, code in ((cut, "csv"), (large, "file-too-large")):
        with raises(CaptureError, code) as raised:
            read_columns(path, ("latency", "prets"))
        assert str(raised.value).startswith(f"{path}: ")
