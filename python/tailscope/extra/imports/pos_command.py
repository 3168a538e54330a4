"""``tailscope runs pos``: runs as a result tree of pos, which its users' scripts draw."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tailscope.cli.options import argument, option
from tailscope.cli.terminal import say_named

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy as np
    from numpy.typing import NDArray

    from tailscope.store.run import Run

EXAMPLE = "tailscope runs pos runs/* --out results"

NODE = "loadgen"
"""The node that sends and takes timestamps."""
_NS_PER_MS = 1_000_000
_COUNTED = ("packets", "trimmed")
_ATTRIBUTES = {"rate": "rate_pps", "size": "size_bytes"}
"""Labels whose field has another name."""


def command(
    runs: Annotated[list[Path], argument("RUN...", "Run directories.")],
    out: Annotated[Path, option("--out -o", "DIR", "The result tree, a new folder.")],
) -> int:
    """Each run is one of its loop: NODE/TIME_tailscope_runN.loop has the settings.

    Beside them lie the tables of the papers' authors, as far as the run has what is in them.
    """
    from tailscope.extra.imports.loops import SUFFIX
    from tailscope.store.atomic import replacing_folder
    from tailscope.store.reader import read_run

    _check_free(out)
    with replacing_folder(out) as folder:
        node = folder / NODE
        node.mkdir()
        written = [read_run(path) for path in runs]
        digits = max(3, len(str(len(written) - 1)))
        stamp = _stamp(min(run.info.written_unix_ns or 0 for run in written))
        for number, run in enumerate(written):
            name = f"run{number:0{digits}d}"
            loop = json.dumps(_variables(run, number))
            (node / f"{stamp}_tailscope_{name}{SUFFIX}").write_text(loop)
            for kind, header, rows in _tables(run):
                with (node / f"latencies-pre-{name}.pcap.{kind}.csv").open("w") as file:
                    file.write(f"{header}\n")
                    file.writelines(",".join(map(str, row)) + "\n" for row in rows)
        # Reading takes a while, in which others may have written there.
        _check_free(out)
    say_named("written", f"{out / NODE}: {len(written)} runs")
    return 0


def _check_free(out: Path) -> None:
    """See that nothing is replaced."""
    from tailscope.exceptions import RunExistsError

    if out.is_symlink() or (out.exists() and not (out.is_dir() and not any(out.iterdir()))):
        raise RunExistsError(
            f"{out}: expected a new or an empty directory",
            code="not-empty",
            hint="choose another directory",
        )


def _stamp(unix_ns: int) -> str:
    """Return a time as pos writes it."""
    return datetime.fromtimestamp(unix_ns / 1e9, UTC).strftime("%Y-%m-%d_%H-%M-%S_%f")


def _variables(run: Run, number: int) -> dict[str, object]:
    """Return the settings of a run by the names of loop variables."""
    from tailscope.extra.imports.loops import NAMES
    from tailscope.store.info import about_of
    from tailscope.store.records.plan import MeasurementPlan

    plan = run.info.plan
    source = plan if isinstance(plan, MeasurementPlan) else about_of(run.info)
    found: dict[str, object] = {}
    for label, names in NAMES.items():
        value = getattr(source, _ATTRIBUTES.get(label, label), None)
        if value is not None:
            found[names[0]] = value
    return {"repeat": number} | found | dict(getattr(source, "labels", {}))


def _tables(run: Run) -> Iterator[tuple[str, str, Iterable[tuple[object, ...]]]]:
    """Yield the kind, the header and the rows of each table."""
    trim = f"trim_ms{Decimal(run.info.plan.trim_ns or 0) / _NS_PER_MS:f}"
    width = run.info.plan.bucket_ns
    bucket = f"bucket_size{width}.{trim}"
    if width is not None and len(run.latency.counts):
        low_ns, counts = _equal(run, width)
        yield f"{bucket}.hist", "latency_bucket,count", zip(low_ns, counts, strict=True)
        for side, gaps in run.gaps.items():
            if len(gaps.counts):
                yield f"{bucket}.jitter{side}", "bucket,count", _rows(*gaps)
    yield (
        f"{trim}.percentiles",
        "percentile,value,onefraconeminuspercentile",
        (
            (repr(each.q), each.value_ns, f"{1 / (1 - Decimal(repr(each.q))):.16f}")
            for each in run.percentiles
            if each.q < 1
        ),
    )
    worst = run.worst
    if len(worst.latency_ns):
        kind = f"{trim}.num_worst{len(worst.latency_ns)}.worst"
        yield kind, "latency,prets,postts", _rows(worst.latency_ns, worst.pre_ns, worst.post_ns)
    for side, rate in run.rate.items():
        if len(rate.counts):
            yield f"{trim}.packetrate{side}", "ts,count", _rows(*rate)
    counted = [run.summary.get(f"{side}_{what}") for what in _COUNTED for side in ("pre", "post")]
    if None not in counted:
        pre, post, *trimmed = (int(each or 0) for each in counted)
        names = "pre_received,post_received,pre_received_trimmed,post_received_trimmed"
        yield f"{trim}.stats", names, [(pre, post, pre - trimmed[0], post - trimmed[1])]
    yield from _packets(run, trim)


def _equal(run: Run, width: int) -> tuple[list[int], list[int]]:
    """Return buckets of equal width."""
    if run.edges is None:
        return run.latency.bucket_ns.tolist(), run.latency.counts.tolist()
    found: dict[int, int] = {}
    for low, count in zip(run.edges.low_ns.tolist(), run.edges.counts.tolist(), strict=True):
        found[low // width * width] = found.get(low // width * width, 0) + count
    return list(found), list(found.values())


def _packets(run: Run, trim: str) -> Iterator[tuple[str, str, Iterable[tuple[object, ...]]]]:
    from tailscope.store.reader import packets_of

    packets = packets_of(run)
    if packets is None:
        return
    with packets:
        rows = (
            (latency, pre, pre + latency)
            for pre_ns, latency_ns in packets.batches("pre_ns", "latency_ns")
            for pre, latency in zip(pre_ns.tolist(), latency_ns.tolist(), strict=True)
        )
        yield f"{trim}.latency-ts", "latency,prets,postts", rows


def _rows(*columns: NDArray[np.generic]) -> Iterable[tuple[object, ...]]:
    return zip(*(column.tolist() for column in columns), strict=True)
