"""Histograms of MoonGen (``histogram:save`` of libmoon): ``latency,count`` on each line."""

from __future__ import annotations

import re
from decimal import Decimal
from itertools import pairwise
from math import ceil, floor
from typing import TYPE_CHECKING

from tailscope.exceptions import CaptureError
from tailscope.extra.imports.foreign import ForeignRun, buckets_of, count_of, ns_of

if TYPE_CHECKING:
    from pathlib import Path

LINE = re.compile(rb"[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?,[0-9]+", re.IGNORECASE)
"""A line of the file."""


def read(path: Path, unit: str | None) -> ForeignRun:
    """Read a histogram.

    The clocks of cards are coarser than a nanosecond, and keys are differences of their times: the
    smallest distance between two of them is taken for the width of a bucket around each.
    """
    unit = unit or "ns"
    found: dict[Decimal, int] = {}
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        where = f"{path}: line {number}"
        if not LINE.fullmatch(line):
            raise CaptureError(
                f"{where}: expected latency,count, got {line[:40].decode(errors='replace')!r}",
                code="histogram-row",
            )
        latency, count = line.decode().split(",")
        key = ns_of(latency, unit, where)
        if key in found:
            raise CaptureError(
                f"{where}: expected each latency once, got {latency} again", code="latency-twice"
            )
        found[key] = count_of(count, where)
    found = {key: count for key, count in found.items() if count}
    if not found:
        raise CaptureError(f"{path}: expected latencies, got none", code="no-latencies")
    keys = sorted(found)
    width = min((b - a for a, b in pairwise(keys)), default=Decimal(1))
    buckets = buckets_of(
        path,
        [max(0, floor(key - width / 2)) for key in keys],
        [ceil(key + width / 2) for key in keys],
        [found[key] for key in keys],
    )
    return ForeignRun(
        kind="moongen",
        name=path.name.removesuffix(".csv"),
        source=str(path),
        unit=unit,
        files={"histogram": path},
        count=buckets.count,
        bucket_ns=ceil(width),
        buckets=buckets,
        warnings=(
            "MoonGen timestamps samples of the packets: the count is theirs, not that of all"
            " packets",
            f"the clock's resolution is taken to be {width.normalize():f} ns, the smallest distance"
            " of two latencies",
        ),
    )
