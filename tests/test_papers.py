"""The tables of noms2020, to the nanosecond, from every kind of file."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import captures
import numpy as np
import pytest

import tailscope

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NAMES = ("p50", "p90", "p99", "p999", "p9999", "p99999", "max")


class Table(NamedTuple):
    """What a pair of captures says with a trim of 1 s."""

    count: int
    latency_ns: tuple[int, ...]


PAIRS = {
    "dpdk-l2fwd/hw": Table(289_992, (3_137, 3_174, 3_362, 7_712, 12_162, 13_412, 13_550)),
    "snort-filter/hw": Table(289_992, (17_387, 20_262, 28_150, 33_100, 35_750, 36_412, 36_575)),
    "motivation": Table(
        289_986, (68_937, 74_162, 88_087, 106_699, 1_673_450, 2_518_062, 2_654_950)
    ),
}
FIRST, LONG = ("dpdk-l2fwd/hw", "pcap.gz"), pytest.mark.long
BURSTS = {"burst-32batch/vm": 484_300, "burst-4batch/vm": 280_013}


def pair_of(data: Path, name: str) -> tuple[Path, Path]:
    folder = data / "noms2020" / name
    (pre,), (post,) = folder.glob("*-pre-*"), folder.glob("*-post-*")
    return pre, post


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param(
            name, kind, marks=[] if kind == "pcap.zst" or (name, kind) == FIRST else [LONG]
        )
        for name in PAIRS
        for kind in ("pcap.zst", "pcap.gz", "pcap", "pcapng")
    ],
)
def test_tables_are_reproduced(data: Path, scratch: Path, name: str, kind: str) -> None:
    pre, post = pair_of(data, name)
    if kind != "pcap.zst":
        pre, post = (captures.rewritten(path, scratch, kind) for path in (pre, post))
    summary = tailscope.analyze(pre, post, trim="1s", series=False).summary
    table = PAIRS[name]
    assert summary["count"] == table.count
    assert tuple(summary[f"latency_ns_{q}"] for q in NAMES) == table.latency_ns
    assert summary["pre_packets"] == summary["post_packets"] == 300_000
    assert summary["lost"] == summary["ambiguous"] == summary["negative"] == 0
    assert summary["match_on"] == "frame"


@pytest.mark.parametrize("name", BURSTS)
def test_figure_5_is_reproduced(data: Path, name: str) -> None:
    summary = tailscope.analyze(*pair_of(data, name), trim="1s", series=False).summary
    assert summary["latency_ns_p50"] == BURSTS[name]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name == FIRST[0] else [LONG]) for name in (*PAIRS, *BURSTS)],
)
def test_every_packet_equals_a_dictionary_join(data: Path, name: str) -> None:
    pre, post = (captures.packets(captures.unzstd(path)) for path in pair_of(data, name))
    place_of = {captures.frame_key(packet.data): place for place, packet in enumerate(pre)}
    assert len(place_of) == len(pre), "every key is unique"
    cut = post[0].ts + captures.SECOND
    joined = sorted(
        (at, packet.ts - pre[at].ts)
        for packet in post
        if packet.ts > cut
        for at in [place_of[captures.frame_key(packet.data)]]
    )
    series = tailscope.analyze(*pair_of(data, name), trim="1s").series
    assert series is not None
    seq, latency = (np.array(column, dtype=np.uint64) for column in zip(*joined, strict=True))
    assert np.array_equal(series.seq, seq)
    assert np.array_equal(series.latency_ns, latency)
    assert np.array_equal(series.pre_ns, np.array([packet.ts for packet in pre])[seq.astype(int)])


def test_the_command_says_the_same(data: Path, figures: Callable[..., dict[str, object]]) -> None:
    pair = pair_of(data, "dpdk-l2fwd/hw")
    said = figures(*pair, "--trim", "1s")
    summary = dict(tailscope.analyze(*pair, trim="1s", series=False).summary)
    assert {**summary, "warnings": []} == said


def test_microseconds_are_read_as_such(data: Path, scratch: Path) -> None:
    """A capture in µs, big-endian: latencies are those of the times without their fraction."""
    pair = pair_of(data, "dpdk-l2fwd/hw")
    coarse = []
    for path in pair:
        packets = captures.packets(captures.unzstd(path))[:20_000]
        coarse.append(scratch / path.name.removesuffix(".zst"))
        coarse[-1].write_bytes(captures.pcap(packets, order=">", ns=False))
    result = tailscope.analyze(*coarse)
    fine = tailscope.analyze(*pair).series
    assert result.series is not None
    assert fine is not None
    pre, post = fine.pre_ns[:20_000], (fine.pre_ns + fine.latency_ns)[:20_000]
    in_both = np.flatnonzero(post <= post[len(result.series.seq) - 1])
    expected = post[in_both] // 1000 * 1000 - pre[in_both] // 1000 * 1000
    assert np.array_equal(result.series.latency_ns, expected)
    assert "us" in str(result.summary["pre_resolution"]).replace("µ", "u")
