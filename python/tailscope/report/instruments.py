"""What several instruments saw of one device, in one figure."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from tailscope.store.atomic import replacing, write_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tailscope.analysis import Analysis

__all__ = ["write_instruments"]

_BUCKET_NS = 100


def write_instruments(
    found: Mapping[str, Analysis], truth: Sequence[tuple[float, float]], out: Path
) -> list[Path]:
    """Write the complementary distribution of each instrument, and the truth.

    Parameters
    ----------
    found : Mapping of str to Analysis
        By the instrument's name.
    truth : sequence of (latency_ns, share)
        Corners of the true complementary distribution.
    out : Path
        Folder for ``instruments.svg`` and ``instruments.csv``.
    """
    import numpy as np
    from matplotlib.figure import Figure

    out.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(7.2, 4.5), layout="constrained")
    axes = figure.add_subplot()
    rows: list[tuple[str, int, int]] = []
    for name, analysis in found.items():
        bucket_ns, counts = analysis.histogram(_BUCKET_NS)
        beyond = 1 - np.cumsum(counts) / counts.sum()
        axes.step(bucket_ns / 1e3, np.maximum(beyond, 0), where="post", label=name)
        rows += [
            (name, int(bucket), int(count)) for bucket, count in zip(bucket_ns, counts, strict=True)
        ]
    true_ns, share = zip(*truth, strict=True)
    axes.plot([ns / 1e3 for ns in true_ns], share, color="black", linestyle="--", label="truth")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(1e-5, 1.2)
    axes.set_xlabel("latency [µs]")
    axes.set_ylabel("share of packets beyond")
    axes.grid(visible=True, alpha=0.4)
    axes.legend()
    drawing, table = io.BytesIO(), io.StringIO()
    figure.savefig(drawing, format="svg")
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(("instrument", "bucket_ns", "count"))
    writer.writerows(rows)
    with replacing(out / "instruments.svg") as file:
        file.write(drawing.getvalue())
    write_text(out / "instruments.csv", table.getvalue())
    return [out / "instruments.svg", out / "instruments.csv"]
