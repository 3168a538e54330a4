"""What most people do first: tshark writes fields, pandas joins them."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from bench.pair import QUANTILES, TRIM_NS, WINDOW_NS

if TYPE_CHECKING:
    from pathlib import Path

TSHARK = "tshark"
PAYLOAD = "udp.payload"
TIME = "frame.time_epoch"


def analyse(pre_path: Path, post_path: Path) -> list[int]:
    """Find the quantiles of latencies, for packets whose payloads are their names."""
    pre, post = (_fields(path) for path in (pre_path, post_path))
    begin = post.time.min() + TRIM_NS
    pre = pre.drop_duplicates("name", keep=False)
    found = pre.merge(post.drop_duplicates("name"), on="name", suffixes=("_pre", "_post"))
    latency = found.time_post - found.time_pre
    latency = latency[(latency > 0) & (latency < WINDOW_NS) & (found.time_post > begin)]
    return [int(each) for each in np.quantile(latency, QUANTILES, method="inverted_cdf")]


def _fields(path: Path) -> pd.DataFrame:
    fields = ("-e", TIME, "-e", PAYLOAD)
    command = [TSHARK, "-n", "-r", str(path), "-T", "fields", *fields]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        table = pd.read_csv(process.stdout, sep="\t", names=["time", "name"], dtype=str)
    assert process.returncode == 0, TSHARK
    seconds, _, fraction = table.time.str.partition(".").to_numpy().T
    table.time = seconds.astype(np.int64) * 10**9 + fraction.astype(np.int64)
    return table
