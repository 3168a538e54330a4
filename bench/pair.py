"""The pair of captures that is measured, and what every contender must find in it."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

REAL = Path(__file__).resolve().parents[2] / "shared" / "data" / "noms2020" / "snort-filter" / "hw"
QUANTILES = (0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999)
SECOND_NS = 1_000_000_000
TRIM_NS = SECOND_NS
WINDOW_NS = 5 * SECOND_NS
WORST = 5000
BUCKET_NS = 100


@dataclass(frozen=True)
class Answer:
    """Every figure, as integers; tables as rows of columns."""

    counts: ArrayLike  # matches, packets kept before the device, and behind it
    quantiles: ArrayLike
    worst: ArrayLike  # latency, time before the device
    latencies: ArrayLike  # time before the device, latency
    histogram: ArrayLike  # bucket, count
    gaps_pre: ArrayLike  # bucket, count
    gaps_post: ArrayLike
    rate_pre: ArrayLike  # second, count
    rate_post: ArrayLike

    def assert_equals(self, other: Answer, who: str) -> None:
        """Stop when two contenders do not find the same: their times could not be compared."""
        for field in fields(self):
            ours, theirs = getattr(self, field.name), getattr(other, field.name)
            same = np.array_equal(np.asarray(ours, np.int64), np.asarray(theirs, np.int64))
            assert same, f"{who}: {field.name} differs"


def tailscope(*arguments: object) -> None:
    """Run tailscope as a whole process."""
    subprocess.run(["tailscope", *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)


def simulate(folder: Path, *options: object) -> tuple[Path, Path]:
    """Simulate a pair and return its two captures."""
    tailscope("simulate", folder, "--seed", 1, *options)
    (pre,), (post,) = folder.glob("*-pre-*"), folder.glob("*-post-*")
    return pre, post


def plain_pair(folder: Path) -> tuple[str, Path, Path]:
    """300 000 packets a side as plain pcap: the papers' where they are, else simulated ones."""
    if not REAL.is_dir():
        return "simulated", *simulate(folder / "small", "--packets", 300_000)
    paths = []
    for side in ("pre", "post"):
        (source,) = REAL.glob(f"*-{side}-*.pcap.zst")
        path = folder / source.name.removesuffix(".zst")
        with pyarrow.input_stream(str(source), compression="zstd") as content:
            path.write_bytes(content.read())
        paths.append(path)
    return "noms2020 snort-filter/hw", paths[0], paths[1]
