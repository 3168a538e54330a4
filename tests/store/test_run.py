"""A run directory: complete, checked, never overwritten."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import shutil
import stat
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import captures
import pyarrow.parquet as pq
import pytest
from errors import code_of

if TYPE_CHECKING:
    from collections.abc import Callable

LATENCIES = [1_000 + at * 7 % 500 for at in range(3_000)]


@pytest.fixture(scope="module")
def original(tailscope: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original")
    pair = captures.pair(folder, LATENCIES)
    done = tailscope("analyze", *pair, "--out", folder / "run", "--worst", "20")
    assert done.returncode == 0, done.stderr
    return folder / "run"


@pytest.fixture
def run(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "run"))


def test_checksums_hold(run: Path) -> None:
    mark = json.loads((run / "run.json").read_text())
    assert mark["complete"] is True
    for name, file in mark["files"].items():
        content = (run / name).read_bytes()
        assert file["size_bytes"] == len(content)
        assert file["sha256"] == hashlib.sha256(content).hexdigest()
    others = {path.name for path in run.iterdir()} - {"run.json", "report.html"}
    assert others == set(mark["files"])
    assert (run / "report.html").is_file()
    assert others >= {
        "summary.json", "latency.parquet", "worst.parquet", "histogram.csv", "histogram.hlog",
    }  # fmt: skip


def test_a_run_is_its_owners(run: Path) -> None:
    assert stat.S_IMODE(run.stat().st_mode) == 0o700


def test_where_it_comes_from_is_said(run: Path) -> None:
    mark = json.loads((run / "run.json").read_text())
    assert mark["tailscope_version"]
    assert mark["plan"]["window_ns"] == 5_000_000_000
    assert mark["inputs"]["pre"]["file"].endswith("x-pre-1.pcap")
    assert mark["clock"]["source"] == "capture-file"
    assert mark["floor"] is None
    assert mark["host"]["kernel"]


def test_the_files_agree(run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text())
    assert summary["count"] == 3_000
    latency = pq.read_table(run / "latency.parquet")
    recorded = ["intended_ns", "tainted", "instrument_stall_ns"]
    flows = ["flow", "size_bytes"]
    assert latency.column_names == ["seq", "pre_ns", "latency_ns", *recorded, *flows]
    assert latency["latency_ns"].to_pylist() == LATENCIES
    assert latency["seq"].to_pylist() == list(range(3_000))
    assert [latency[name].null_count for name in recorded] == [3_000] * 3
    worst = pq.read_table(run / "worst.parquet").to_pydict()
    order = sorted(range(3_000), key=lambda at: (-LATENCIES[at], at))[:20]
    assert worst["latency_ns"] == [LATENCIES[at] for at in order]
    assert worst["pre_seq"] == order
    with (run / "histogram.csv").open(newline="") as file:
        buckets = {int(row["bucket_ns"]): int(row["count"]) for row in csv.DictReader(file)}
    assert buckets == {
        low: sum(low <= ns < low + 100 for ns in LATENCIES) for low in range(1_000, 1_500, 100)
    }


def test_hdr_histogram_tools_can_read_the_log(run: Path) -> None:
    """The log holds one interval whose compressed histogram counts every packet (format V2)."""
    lines = (run / "histogram.hlog").read_text().splitlines()
    (line,) = (line for line in lines if not line.startswith(("#", '"')))
    content = base64.b64decode(line.rsplit(",", 1)[1], validate=True)
    assert int.from_bytes(content[:4], "big") & ~0xF0 == 0x1C849304 & ~0xF0
    length = int.from_bytes(content[4:8], "big")
    assert length == len(content) - 8
    histogram = zlib.decompress(content[8:])
    assert int.from_bytes(histogram[:4], "big") & ~0xF0 == 0x1C849303 & ~0xF0
    counts, at = [], 40
    while at < len(histogram):
        zigzag = shift = 0
        while True:
            byte = histogram[at]
            at += 1
            zigzag |= (byte if shift == 56 else byte & 0x7F) << shift
            shift += 7
            if shift > 56 or not byte & 0x80:
                break
        counts.append(zigzag >> 1 ^ -(zigzag & 1))
    assert sum(count for count in counts if count > 0) == 3_000


def test_a_complete_run_is_not_overwritten(
    tailscope: Callable[..., Any], run: Path, tmp_path: Path
) -> None:
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    pair = captures.pair(tmp_path / "other", LATENCIES[:10])
    done = tailscope("analyze", *pair, "--out", run)
    assert done.returncode == 1
    assert code_of(done) == "run-exists"
    assert "hint: " in done.stderr
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


def test_somebody_elses_folder_is_left_alone(tailscope: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("all of it")
    pair = captures.pair(tmp_path, LATENCIES[:10])
    done = tailscope("analyze", *pair, "--out", tmp_path / "mine")
    assert done.returncode == 1
    assert code_of(done) == "run-exists"
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.tex"]


def test_an_unfinished_run_can_be_done_again(tailscope: Callable[..., Any], tmp_path: Path) -> None:
    pair = captures.pair(tmp_path, LATENCIES[:10])
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text('{"format": 3, "complete": false}')
    refused = tailscope("report", tmp_path / "run", "--out", tmp_path / "page.html")
    assert refused.returncode == 1
    assert code_of(refused) == "run-incomplete"
    assert tailscope("analyze", *pair, "--out", tmp_path / "run").returncode == 0
    assert json.loads((tmp_path / "run" / "run.json").read_text())["complete"] is True


@pytest.mark.parametrize(
    "name", ["summary.json", "histogram.csv", "worst.parquet", "percentiles.csv", "rate.csv"]
)
@pytest.mark.parametrize(
    ("harm", "code"),
    [("changed", "checksum"), ("shortened", "size-differs"), ("gone", "file-missing")],
)
def test_a_damaged_run_is_not_believed(
    tailscope: Callable[..., Any], run: Path, tmp_path: Path, name: str, harm: str, code: str
) -> None:
    content = (run / name).read_bytes()
    if harm == "changed":
        (run / name).write_bytes(content[:20] + bytes([content[20] ^ 1]) + content[21:])
    elif harm == "shortened":
        (run / name).write_bytes(content[:-1])
    else:
        (run / name).unlink()
    done = tailscope("report", run, "--out", tmp_path / "page.html")
    assert done.returncode == 1
    assert code_of(done) == code
    assert name in done.stderr
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("", "json"),
        ("[]", "json-object"),
        ("{", "json"),
        ('{"complete": true}', "format-older"),
        ('{"complete": true, "format": 9}', "format-newer"),
    ],
)
def test_a_mark_that_is_none_is_an_error(
    tailscope: Callable[..., Any], tmp_path: Path, content: str, code: str
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text(content)
    done = tailscope("report", tmp_path / "run", "--out", tmp_path / "page.html")
    assert done.returncode == 1
    assert code_of(done) == code
