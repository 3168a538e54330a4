"""The pair of captures that everything is measured on, and what an analysis of it must find."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import pyarrow

REAL = Path(__file__).resolve().parents[2] / "shared" / "data" / "noms2020" / "snort-filter" / "hw"
QUANTILES = (0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999)
TRIM_NS = 1_000_000_000
WINDOW_NS = 5_000_000_000
WORST = 5000
BUCKET_NS = 100


@dataclass(frozen=True)
class Answer:
    """What every contender must find alike."""

    count: int
    quantiles_ns: tuple[int, ...]
    worst_ns: tuple[tuple[int, int], ...]  # latency, time before the device


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
