"""The papers' way: a converter, an import into PostgreSQL, nine queries.

Converter and queries are our own and do what ``docs/analyze.md`` defines; the tables are those of
the papers.
"""

from __future__ import annotations

import struct
import subprocess
from typing import TYPE_CHECKING

from bench.pair import BUCKET_NS, QUANTILES, SECOND_NS, TRIM_NS, WINDOW_NS, WORST, Answer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench.postgres_server import Server

SCHEMA = """
CREATE TABLE capture (capture_id int PRIMARY KEY, name text, type text);
CREATE TABLE pkt (capture_id int REFERENCES capture, ts bigint, hdr bytea);
INSERT INTO capture VALUES (1, 'pair', 'pre'), (2, 'pair', 'post');
"""

_SIDE = """
{side} AS (
    SELECT ts, hdr FROM pkt JOIN capture USING (capture_id)
    WHERE capture.name = 'pair' AND capture.type = '{side}'
)"""
_KEPT = f"""
kept_{{side}} AS (
    SELECT ts FROM {{side}} WHERE ts > (SELECT min(ts) + {TRIM_NS} FROM {{side}})
)"""
_MATCH = f"""
once AS (
    SELECT ts, hdr FROM (SELECT ts, hdr, count(*) OVER (PARTITION BY hdr) AS n FROM pre) seen
    WHERE n = 1
), found AS (
    SELECT min(post.ts) - once.ts AS latency, once.ts AS prets, min(post.ts) AS postts, once.hdr
    FROM once JOIN post USING (hdr)
    WHERE post.ts > once.ts AND post.ts < once.ts + {WINDOW_NS}
    GROUP BY once.ts, once.hdr
), match AS (SELECT * FROM found WHERE postts > (SELECT min(ts) + {TRIM_NS} FROM post))"""


_BOTH = f"{_SIDE.format(side='pre')}, {_SIDE.format(side='post')}, {_MATCH}"


def _of_matches(select: str) -> str:
    return f"WITH {_BOTH} {select}"


def _of_side(side: str, select: str) -> str:
    return f"WITH {_SIDE.format(side=side)}, {_KEPT.format(side=side)} {select}"


def _gaps(side: str) -> str:
    bucket = f"(ts - lag(ts) OVER (ORDER BY ts)) / {BUCKET_NS} * {BUCKET_NS}"
    return _of_side(
        side,
        f"SELECT bucket, count(*) FROM (SELECT {bucket} AS bucket FROM kept_{side}) gaps"
        " WHERE bucket IS NOT NULL GROUP BY bucket ORDER BY bucket",
    )


def _rate(side: str) -> str:
    second = f"(ts - (SELECT min(ts) FROM kept_{side})) / {SECOND_NS}"
    return _of_side(
        side, f"SELECT {second} AS second, count(*) FROM kept_{side} GROUP BY 1 ORDER BY 1"
    )


_BOTH_KEPT = f"{_KEPT.format(side='pre')}, {_KEPT.format(side='post')}"
_QUANTILE_LIST = ", ".join(map(str, QUANTILES))
QUERIES = {
    "counts": f"WITH {_BOTH}, {_BOTH_KEPT} SELECT (SELECT count(*) FROM match),"
    " (SELECT count(*) FROM kept_pre), (SELECT count(*) FROM kept_post)",
    "quantiles": _of_matches(
        f"SELECT unnest(percentile_disc(ARRAY[{_QUANTILE_LIST}])"
        " WITHIN GROUP (ORDER BY latency)) FROM match"
    ),
    "worst": _of_matches(
        "SELECT latency, prets, postts, encode(hdr, 'hex') FROM match"
        f" ORDER BY latency DESC, prets LIMIT {WORST}"
    ),
    "latencies": _of_matches("SELECT prets, latency, postts FROM match ORDER BY prets"),
    "histogram": _of_matches(
        f"SELECT latency / {BUCKET_NS} * {BUCKET_NS}, count(*) FROM match GROUP BY 1 ORDER BY 1"
    ),
    "gaps_pre": _gaps("pre"),
    "gaps_post": _gaps("post"),
    "rate_pre": _rate("pre"),
    "rate_post": _rate("post"),
}


def convert(capture: Path, capture_id: int) -> Iterator[bytes]:
    """Lines for COPY: capture, time in ns, masked bytes 12 to 63."""
    content = capture.read_bytes()
    assert content[:4] == b"\x4d\x3c\xb2\xa1", "a nanosecond pcap of this byte order"
    at = 24
    while at < len(content):
        seconds, nanoseconds, length, _ = struct.unpack_from("<IIII", content, at)
        frame = bytearray(content[at + 16 : at + 16 + min(length, 64)])
        if frame[12:14] == b"\x08\x00":
            frame[24:26] = b"\0\0"
            if frame[14] == 0x45 and frame[23] == 17:
                frame[40:42] = b"\0\0"
            elif frame[14] == 0x45 and frame[23] == 6:
                frame[50:52] = b"\0\0"
        yield b"%d\t%d\t\\\\x%b\n" % (
            capture_id,
            seconds * SECOND_NS + nanoseconds,
            frame[12:].hex().encode(),
        )
        at += 16 + length


def copy(server: Server, capture: Path, capture_id: int) -> None:
    """Convert a capture and import it, both at once."""
    command = server.psql("-c", "COPY pkt FROM STDIN")
    with subprocess.Popen(command, stdin=subprocess.PIPE, cwd=server.folder) as process:
        assert process.stdin is not None
        process.stdin.writelines(convert(capture, capture_id))
    assert process.returncode == 0


def analyse(server: Server, pre: Path, post: Path) -> dict[str, list[str]]:
    """Import both captures and run the nine queries."""
    server.sql("SET client_min_messages = error; DROP TABLE IF EXISTS pkt, capture")
    server.sql(SCHEMA)
    copy(server, pre, 1)
    copy(server, post, 2)
    server.sql("ANALYZE")
    return {name: server.sql(query).decode().splitlines() for name, query in QUERIES.items()}


def answer(found: dict[str, list[str]]) -> Answer:
    """Bring what was found into the common form."""
    tables = {name: _first_two(rows) for name, rows in found.items()}
    counts = list(map(int, found["counts"][0].split("|")))
    return Answer(**(tables | {"counts": counts, "quantiles": list(map(int, found["quantiles"]))}))


def _first_two(rows: list[str]) -> list[list[int]]:
    return [list(map(int, row.split("|")[:2])) for row in rows]
