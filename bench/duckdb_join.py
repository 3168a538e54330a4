"""The same by numpy and DuckDB: parse in bulk, join, aggregate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa

from bench.pair import BUCKET_NS, QUANTILES, SECOND_NS, TRIM_NS, WINDOW_NS, WORST, Answer

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Found = dict[str, NDArray[np.int64]]

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
KEPT = """
CREATE TEMP TABLE kept_{side} AS
SELECT ts FROM {side} WHERE ts > (SELECT min(ts) + {trim} FROM {side})
"""
_GAPS = """
SELECT (ts - before) // {bucket} * {bucket} AS bucket, count(*)
FROM (SELECT ts, lag(ts) OVER (ORDER BY ts) AS before FROM kept_{side}) WHERE before IS NOT NULL
GROUP BY 1 ORDER BY 1
"""
_RATE = """
SELECT (ts - (SELECT min(ts) FROM kept_{side})) // {second} AS second, count(*) FROM kept_{side}
GROUP BY 1 ORDER BY 1
"""
QUERIES = {
    "counts": "SELECT (SELECT count(*) FROM match), (SELECT count(*) FROM kept_pre),"
    " (SELECT count(*) FROM kept_post)",
    "quantiles": f"SELECT unnest(quantile_disc(latency, {list(QUANTILES)})) FROM match",
    "worst": f"SELECT latency, prets FROM match ORDER BY latency DESC, prets LIMIT {WORST}",
    "latencies": "SELECT prets, latency FROM match ORDER BY prets",
    "histogram": f"SELECT latency // {BUCKET_NS} * {BUCKET_NS}, count(*) FROM match"
    " GROUP BY 1 ORDER BY 1",
    "gaps_pre": _GAPS.format(bucket=BUCKET_NS, side="pre"),
    "gaps_post": _GAPS.format(bucket=BUCKET_NS, side="post"),
    "rate_pre": _RATE.format(second=SECOND_NS, side="pre"),
    "rate_post": _RATE.format(second=SECOND_NS, side="post"),
}


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
    return pa.table({"ts": seconds * SECOND_NS + nanoseconds, "hdr": hdr})


def analyse(pre_path: Path, post_path: Path) -> dict[str, Found]:
    """Parse both captures, join them, and compute every figure."""
    with duckdb.connect() as database:
        database.register("pre", parse(pre_path))
        database.register("post", parse(post_path))
        database.execute(MATCH)
        for side in ("pre", "post"):
            database.execute(KEPT.format(side=side, trim=TRIM_NS))
        return {name: database.execute(query).fetchnumpy() for name, query in QUERIES.items()}


def answer(found: dict[str, Found]) -> Answer:
    """Bring what was found into the common form."""
    tables = {name: np.column_stack(list(columns.values())) for name, columns in found.items()}
    flat = {name: tables[name].ravel() for name in ("counts", "quantiles")}
    return Answer(**(tables | flat))
