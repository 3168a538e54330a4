"""Real proxies, captured on both sides: the truth is computed byte by byte of what tshark reads."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from runs import AS_ROOT, needed

from tailscope.engine.analysis import analyze

from .proxies import PORT, PROGRAMS, SOCKS, captured
from .tools import run

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

FIELDS = (
    *("frame.time_epoch", "tcp.stream", "tcp.dstport", "tcp.seq_raw", "tcp.len"),
    *("tcp.flags.syn", "tcp.payload"),
)
FIRST_QUESTION = re.compile(rb"(\d+)\.0 \d+ ")
FIRST_ANSWER = re.compile(rb"\A(\d+\n.{16})", re.DOTALL)


class Stream(NamedTuple):
    """The bytes that one end of a connection sends, from the first question or answer on."""

    content: bytes
    first_ns: NDArray[np.int64]
    """When each byte was first seen."""
    segments: list[tuple[int, int, int]]
    """Time in ns, first byte, and end of each segment that carries bytes."""


def streams(path: Path, begin: re.Pattern[bytes], port: str) -> dict[bytes, Stream]:
    """What one end of the connections of a capture sends, by what is unique at its beginning."""
    words = [word for field in FIELDS for word in ("-e", field)]
    options = ("-o", "tcp.desegment_tcp_streams:false", "-Y", f"tcp.{port} == {PORT}")
    lines = run("tshark", "-r", path, "-T", "fields", *options, *words).splitlines()
    rows: dict[str, list[tuple[int, int, bytes]]] = {}
    origins: dict[str, int] = {}
    for line in lines:
        when, stream, _, sequence, size, syn, payload = line.split("\t")
        seconds, _, fraction = when.partition(".")
        ts = int(seconds) * 10**9 + int(fraction.ljust(9, "0"))
        if syn in {"1", "True"}:
            origins[stream] = int(sequence) + 1
        elif int(size):
            place = (int(sequence) - origins[stream]) % 2**32
            rows.setdefault(stream, []).append((ts, place, bytes.fromhex(payload)))
    return dict(_from_beginning(sorted(each), begin) for each in rows.values())


def _from_beginning(
    rows: list[tuple[int, int, bytes]], begin: re.Pattern[bytes]
) -> tuple[bytes, Stream]:
    size = max(place + len(data) for _, place, data in rows)
    content, first_ns = bytearray(size), np.full(size, -1, np.int64)
    for ts, place, data in rows:
        content[place : place + len(data)] = data
        part = first_ns[place : place + len(data)]
        part[part < 0] = ts
    assert (first_ns >= 0).all()
    found = begin.search(content)
    assert found is not None
    start = found.start()
    segments = [(ts, max(place - start, 0), place + len(data) - start) for ts, place, data in rows]
    return found[1], Stream(
        bytes(content[start:]), first_ns[start:], [one for one in segments if one[2] > one[1]]
    )


def truth(
    before: Path, behind: Path, begin: re.Pattern[bytes] = FIRST_QUESTION, port: str = "dstport"
) -> list[tuple[int, int]]:
    """Time and latency in ns of each segment that was the first to carry some bytes."""
    sides = streams(before, begin, port), streams(behind, begin, port)
    assert sides[0].keys() == sides[1].keys()
    found = []
    for name, sent in sides[0].items():
        seen = sides[1][name]
        assert sent.content == seen.content
        for ts, start, end in sent.segments:
            is_new = sent.first_ns[start:end] == ts
            if is_new.any():
                found.append((ts, int(seen.first_ns[start:end][is_new].max()) - ts))
    return sorted(found)


@AS_ROOT
@pytest.mark.parametrize(
    "kind",
    [
        "haproxy",
        *(
            pytest.param(kind, marks=pytest.mark.long)
            for kind in ("nginx", "microsocks", "dante", "ssh", "synproxy", "nat", "lossy")
        ),
    ],
)
def test_bytes_through_a_proxy_take_as_long_as_tshark_says(kind: str, scratch: Path) -> None:
    needed("ip", "ethtool", "nft", "tcpdump", "tshark", *PROGRAMS.get(kind, ()))
    links, questions = (4, 20) if kind == "haproxy" else (12, 60)
    before, behind = captured(kind, scratch, links, questions)
    expected = truth(before, behind)
    found = analyze(before, behind, match_on="tcp-bytes" if kind == "nat" else "auto")
    series, summary = found.series, found.summary
    assert summary["match_on"] == "tcp-bytes"
    times = zip(series.pre_ns.tolist(), series.latency_ns.tolist(), strict=True)
    assert sorted(times) == expected
    assert (summary["lost"], summary["ambiguous"], summary["negative"]) == (0, 0, 0)
    # What a SOCKS proxy is told goes no further.
    assert summary["outside"] == (2 * links if kind in SOCKS else 0)
    assert summary["tcp_connections_paired"] == summary["pre_tcp_connections"] == links
    if kind == "lossy":
        assert summary["pre_tcp_retransmitted"] > 0
        assert summary["latency_ns_max"] > 100_000_000


@AS_ROOT
@pytest.mark.long
def test_answers_with_other_sequence_numbers_take_as_long_as_tshark_says(scratch: Path) -> None:
    needed("ip", "ethtool", "nft", "tcpdump", "tshark")
    client_side, server_side = captured("synproxy", scratch, 12, 60)
    expected = truth(server_side, client_side, FIRST_ANSWER, "srcport")
    found = analyze(server_side, client_side)
    assert found.summary["match_on"] == "tcp-bytes"
    times = zip(found.series.pre_ns.tolist(), found.series.latency_ns.tolist(), strict=True)
    assert sorted(times) == expected
    assert (found.summary["lost"], found.summary["ambiguous"]) == (0, 0)
