"""The same by numpy and DuckDB: parse in bulk, join, aggregate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa

from bench.pair import BUCKET_NS, QUANTILES, TRIM_NS, WINDOW_NS, WORST, Answer

if TYPE_CHECKING:
    from pathlib import Path

MATCH = f"""
CREATE TEMP TABLE match AS
WITH once AS (
    SELECT ts, hdr FROM (SELECT ts, hdr, count(*) OVER (PARTITION BY hdr) AS n FROM pre) WHERE n = 1
), found AS (
    SELECT min(post.ts) - once.ts AS latency, once.ts AS prets, min(post.ts) AS postts
    FROM once JOIN post USING (hdr)
    WHERE post.ts > once.ts AND post.ts < once.ts + {WINDOW_NS}
    GROUP BY once.ts, once.hdr
)
SELECT * FROM found WHERE postts > (SELECT min(ts) + {TRIM_NS} FROM post)
"""


def parse(capture: Path) -> pa.Table:
    """Times and masked bytes 12 to 63 of a capture whose records all have one length."""
    content = np.fromfile(capture, dtype=np.uint8)
    length = int(content[32:36].view("<u4")[0])
    records = content[24:].reshape(-1, 16 + length)
    header = records[:, :16].copy().view("<u4")
    assert (header[:, 2] == length).all(), "records of one length"
    keys = records[:, 28:80].copy()  # all of them IPv4 without options, UDP
    keys[:, 12:14] = 0
    keys[:, 28:30] = 0
    seconds, nanoseconds = header[:, 0].astype(np.int64), header[:, 1].astype(np.int64)
    hdr = pa.FixedSizeBinaryArray.from_buffers(pa.binary(52), len(keys), [None, pa.py_buffer(keys)])
    return pa.table({"ts": seconds * 1_000_000_000 + nanoseconds, "hdr": hdr})


def analyse(pre_path: Path, post_path: Path) -> Answer:
    """Parse both captures, join them, and compute every figure."""
    with duckdb.connect() as database:
        database.register("pre", parse(pre_path))
        database.register("post", parse(post_path))
        database.execute(MATCH)
        ((count, quantiles),) = database.execute(
            f"SELECT count(*), quantile_disc(latency, {list(QUANTILES)}) FROM match"
        ).fetchall()
        worst = database.execute(
            f"SELECT latency, prets FROM match ORDER BY latency DESC, prets LIMIT {WORST}"
        ).fetchall()
        database.execute(
            f"SELECT latency // {BUCKET_NS} * {BUCKET_NS}, count(*) FROM match GROUP BY 1"
        ).fetchall()
        for side in ("pre", "post"):
            gap = f"(ts - lag(ts) OVER (ORDER BY ts)) // {BUCKET_NS} * {BUCKET_NS}"
            database.execute(
                f"SELECT gap, count(*) FROM (SELECT {gap} AS gap FROM {side}) GROUP BY 1"
            ).fetchall()
    return Answer(count, tuple(quantiles), tuple(worst))
