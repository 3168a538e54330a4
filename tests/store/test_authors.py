"""The files of the papers' authors: names, columns, rows."""

from __future__ import annotations

import csv
import math
from typing import TYPE_CHECKING, Any

import captures
import pytest
from errors import raises

from tailscope.exceptions import CaptureError
from tailscope.store.authors import read_worst

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BASE = 1_600_000_000 * captures.SECOND
LATENCIES = [150, 199, 200, 1_250, 950, 950]
GAP = 400_000_000  # six packets in two seconds and one after


@pytest.fixture
def folder(tailscope: Callable[..., Any], tmp_path: Path) -> Path:
    pre, post = captures.pair(tmp_path, LATENCIES, gap=GAP)
    packets = captures.packets(post.read_bytes())
    post.write_bytes(captures.pcap(packets[:2] + packets[3:]))
    done = tailscope("analyze", pre, post, "--csv", tmp_path / "csv")
    assert done.returncode == 0, done.stderr
    return tmp_path / "csv"


def rows(folder: Path, *parts: str) -> list[dict[str, str]]:
    with (folder / ".".join(("x-pre-1.pcap", *parts, "csv"))).open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_files_are_theirs(folder: Path) -> None:
    bucketed, trimmed = "x-pre-1.pcap.bucket_size100.trim_ms0", "x-pre-1.pcap.trim_ms0"
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        [f"{bucketed}.{kind}.csv" for kind in ("hist", "jitterpre", "jitterpost")]
        + [
            f"{trimmed}.{kind}.csv"
            for kind in ("percentiles", "num_worst5000.worst", "transferrate", "packetratepre")
        ]
        + [f"{trimmed}.{kind}.csv" for kind in ("packetratepost", "stats", "latency-ts")]
    )


def test_latencies_fall_into_buckets(folder: Path) -> None:
    found = rows(folder, "bucket_size100", "trim_ms0", "hist")
    assert [tuple(row.values()) for row in found] == [("100", "2"), ("900", "2"), ("1200", "1")]
    assert list(found[0]) == ["latency_bucket", "count"]


def test_the_worst_come_first_and_say_who_they_are(folder: Path) -> None:
    found = rows(folder, "trim_ms0", "num_worst5000", "worst")
    sent = [BASE + at * GAP for at in range(6)]
    order = [3, 4, 5, 1, 0]
    keys = [captures.udp(at) for at in order]
    masked = [key[12:24] + b"\0\0" + key[26:40] + b"\0\0" + key[42:] for key in keys]
    assert [tuple(row.values()) for row in found] == [
        (str(LATENCIES[at]), str(sent[at]), str(sent[at] + LATENCIES[at]), key.hex())
        for at, key in zip(order, masked, strict=True)
    ]
    assert list(found[0]) == ["latency", "prets", "postts", "encode"]


def test_percentiles_are_those_of_the_samples(folder: Path) -> None:
    found = rows(folder, "trim_ms0", "percentiles")
    assert list(found[0]) == ["percentile", "value", "onefraconeminuspercentile"]
    samples = sorted(LATENCIES[:2] + LATENCIES[3:])
    for row in found:
        q = float(row["percentile"])
        below = sum(sample <= int(row["value"]) for sample in samples)
        assert below >= q * 5 - 1e-9
        assert sum(sample < int(row["value"]) for sample in samples) < max(q * 5, 1)
        assert math.isclose(float(row["onefraconeminuspercentile"]), 1 / (1 - q), rel_tol=1e-6)
    assert found[0]["percentile"] == "0.0"
    assert [float(row["percentile"]) for row in found] == sorted(
        float(row["percentile"]) for row in found
    )


def test_every_latency_has_its_time(folder: Path) -> None:
    found = rows(folder, "trim_ms0", "latency-ts")
    assert [tuple(map(int, row.values())) for row in found] == [
        (LATENCIES[at], BASE + at * GAP, BASE + at * GAP + LATENCIES[at]) for at in (0, 1, 3, 4, 5)
    ]
    assert list(found[0]) == ["latency", "prets", "postts"]


def test_rates_and_counts(folder: Path) -> None:
    (rate,) = rows(folder, "trim_ms0", "transferrate")
    assert list(rate) == (
        [
            "pre_received",
            "post_received",
            "transferrate",
            "pre_pkts_per_second",
            "post_pkts_per_second",
        ]
    )
    assert (rate["pre_received"], rate["post_received"]) == ("6", "5")
    assert math.isclose(float(rate["transferrate"]), 5 / 6)
    assert float(rate["pre_pkts_per_second"]) == 2.0  # 3, 2 and 1
    (stats,) = rows(folder, "trim_ms0", "stats")
    assert stats == {
        "pre_received": "6",
        "post_received": "5",
        "pre_received_trimmed": "6",
        "post_received_trimmed": "5",
    }
    second = captures.SECOND
    assert [tuple(map(int, row.values())) for row in rows(folder, "trim_ms0", "packetratepre")] == [
        (0, 3),
        (second, 2),
        (2 * second, 1),
    ]
    assert list(rows(folder, "trim_ms0", "packetratepost")[0]) == ["ts", "count"]


def test_gaps_fall_into_buckets(folder: Path) -> None:
    found = rows(folder, "bucket_size100", "trim_ms0", "jitterpre")
    assert [tuple(row.values()) for row in found] == [("400000000", "5")]
    assert list(found[0]) == ["bucket", "count"]
    post = rows(folder, "bucket_size100", "trim_ms0", "jitterpost")
    assert sum(int(row["count"]) for row in post) == 4


def test_names_carry_what_was_asked(tailscope: Callable[..., Any], tmp_path: Path) -> None:
    pair = captures.pair(tmp_path, LATENCIES, gap=10_000_000)
    options = ("--trim", "5ms", "--bucket-size", "1us", "--worst", "3")
    assert tailscope("analyze", *pair, "--csv", tmp_path / "csv", *options).returncode == 0
    names = {path.name for path in (tmp_path / "csv").iterdir()}
    assert "x-pre-1.pcap.bucket_size1000.trim_ms5.hist.csv" in names
    assert "x-pre-1.pcap.trim_ms5.num_worst3.worst.csv" in names
    assert len(rows(tmp_path / "csv", "trim_ms5", "num_worst3", "worst")) == 3


def test_the_papers_own_ranks(data: Path, folder: Path) -> None:
    """The grid of percentiles is that of the published tables."""
    name = "rate1000000-repeat0.trim_ms0.percentiles.csv.zst"
    published = captures.unzstd(data / "containers2024/container/rt/optimized" / name).decode()
    theirs = [row["percentile"] for row in csv.DictReader(published.splitlines())]
    ours = [row["percentile"] for row in rows(folder, "trim_ms0", "percentiles")]
    assert ours == theirs


def test_a_table_of_the_worst_is_read(tmp_path: Path) -> None:
    path = tmp_path / "worst.csv"
    path.write_text("latency,prets,postts,encode\n900,5000,5900,aa\n800,1000,1800,bb\n")
    sent_ns, latency_ns = read_worst(path)
    assert sent_ns.tolist() == [5000, 1000]
    assert latency_ns.tolist() == [900, 800]


@pytest.mark.parametrize(
    ("text", "code", "got"),
    [
        ("a,b\n1,2\n", "csv", "latency"),
        (
            "latency,prets\n-4,5\n",
            "not-a-number",
            'line 2: expected latency as a whole number, got "-4"',
        ),
        ("latency,prets\nnan,5\n", "not-a-number", "line 2: expected latency"),
        ("", "csv", "worst.csv"),
    ],
)
def test_what_is_no_such_table_is_refused(tmp_path: Path, text: str, code: str, got: str) -> None:
    path = tmp_path / "worst.csv"
    path.write_text(text)
    with raises(CaptureError, code) as refused:
        read_worst(path)
    assert got in str(refused.value)
