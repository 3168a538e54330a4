"""The file formats of the papers' authors, so that their plotting scripts run unchanged.

Names and columns are those of the result tables of Wiedner et al., "Containing Low Tail-Latencies
in Packet Processing Using Lightweight Virtualization" (containers2024): the name of the pre
capture, the parameters, the kind.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from decimal import Decimal
from typing import IO, TYPE_CHECKING, Any, Self

import tailscope._engine as _engine
from tailscope.exceptions import CaptureError
from tailscope.store.atomic import replacing
from tailscope.store.grid import AUTHORS_GRID
from tailscope.store.run import SIDES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path
    from types import TracebackType

    from numpy.typing import NDArray

    from tailscope.engine.analysis import Analysis, Counts, Nanoseconds, Side

_NS_PER_MS = 1_000_000
_WORST_COLUMNS = ("latency", "prets")
_ROWS_AT_ONCE = 1 << 16
_MOST_BYTES = 64 << 20
"""Maximum size of a decompressed table: those of the authors have a hundredth of it."""


class CsvWriter:
    """Writes the authors' files of one pair; a context at whose end all appear, or none."""

    def __init__(
        self, folder: Path, pre: Path, *, trim_ns: int, bucket_ns: int, worst: int
    ) -> None:
        self._folder, self._pre = folder, pre
        self._trim = f"trim_ms{Decimal(trim_ns) / _NS_PER_MS:f}"
        self._bucket = f"bucket_size{bucket_ns}"
        self._bucket_ns, self._worst = bucket_ns, worst
        self._made = False
        self._stack = ExitStack()
        self._series: IO[bytes] | None = None

    def __enter__(self) -> Self:
        self._made = not self._folder.exists()
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._path(self._trim, "latency-ts")
        self._series = self._stack.enter_context(replacing(path))
        self._series.write(b"latency,prets,postts\n")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._stack.__exit__(kind, error, trace)
        finally:
            if error is not None and self._made:
                with suppress(OSError):
                    self._folder.rmdir()

    def sink(self, _seq: Counts, pre_ns: Nanoseconds, latency_ns: Nanoseconds) -> None:
        """Take matches for the file of all latencies: the `sink` of `tailscope.analyze`."""
        assert self._series is not None, "the writer is a context"
        for start in range(0, len(pre_ns), _ROWS_AT_ONCE):
            part = slice(start, start + _ROWS_AT_ONCE)
            columns = zip(latency_ns[part].tolist(), pre_ns[part].tolist(), strict=True)
            lines = "".join([f"{latency},{pre},{pre + latency}\n" for latency, pre in columns])
            self._series.write(lines.encode())

    def finish(self, analysis: Analysis) -> None:
        """Write all other files."""
        self._write_latency(analysis)
        self._write_worst(analysis)
        self._write_counts(analysis)
        for side in SIDES:
            self._write_side(analysis, side)

    def _write_latency(self, analysis: Analysis) -> None:
        buckets = zip(*map(list, analysis.histogram(self._bucket_ns)), strict=True)
        self._write((self._bucket, self._trim, "hist"), "latency_bucket,count", buckets)
        self._write(
            (self._trim, "percentiles"),
            "percentile,value,onefraconeminuspercentile",
            (
                (repr(found.q), found.value_ns, f"{1 / (1 - Decimal(repr(found.q))):.16f}")
                for found in analysis.quantiles(AUTHORS_GRID)
            ),
        )

    def _write_worst(self, analysis: Analysis) -> None:
        latency_ns, pre_ns, post_ns, _ = analysis.worst
        self._write(
            (self._trim, f"num_worst{self._worst}", "worst"),
            "latency,prets,postts,encode",
            zip(latency_ns, pre_ns, post_ns, analysis.worst_keys(self._pre), strict=True),
        )

    def _write_counts(self, analysis: Analysis) -> None:
        summary = analysis.summary
        kept = [int(analysis.rate(side).counts.sum()) for side in SIDES]
        total = [summary[f"{side}_packets"] for side in SIDES]
        self._write(
            (self._trim, "transferrate"),
            "pre_received,post_received,transferrate,pre_pkts_per_second,post_pkts_per_second",
            [
                (
                    *kept,
                    summary["transfer_rate"],
                    *(summary[f"{side}_second_mean_pps"] for side in SIDES),
                )
            ],
        )
        self._write(
            (self._trim, "stats"),
            "pre_received,post_received,pre_received_trimmed,post_received_trimmed",
            [(*total, *kept)],
        )

    def _write_side(self, analysis: Analysis, side: Side) -> None:
        start_ns, count = (column.tolist() for column in analysis.rate(side))
        seconds = (
            (start - start_ns[0], packets) for start, packets in zip(start_ns, count, strict=True)
        )
        self._write((self._trim, f"packetrate{side}"), "ts,count", seconds)
        gaps = zip(*map(list, analysis.gaps(side, self._bucket_ns)), strict=True)
        self._write((self._bucket, self._trim, f"jitter{side}"), "bucket,count", gaps)

    def _write(self, parts: tuple[str, ...], header: str, rows: Iterable[Iterable[object]]) -> None:
        file = self._stack.enter_context(replacing(self._path(*parts)))
        lines = [header, *(",".join(map(str, row)) for row in rows)]
        file.write(("\n".join(lines) + "\n").encode())

    def _path(self, *parts: str) -> Path:
        return self._folder / ".".join((self._pre.name, *parts, "csv"))


def read_worst(path: Path) -> tuple[Nanoseconds, Nanoseconds]:
    """Read a table of the worst packets, as the authors publish it."""
    latency_ns, sent_ns = read_columns(path, _WORST_COLUMNS)
    return sent_ns, latency_ns


def read_columns(
    path: Path,
    names: Sequence[str],
    *,
    fractions: Sequence[str] = (),
    most_bytes: int = _MOST_BYTES,
) -> list[NDArray[Any]]:
    """Read columns of a table of the authors: whole numbers, or fractions if named so."""
    try:
        # One byte more than there may be tells that there are more.
        content = _engine.read_whole(str(path), most_bytes + 1)
        if len(content) > most_bytes:
            raise CaptureError(
                f"{path}: expected at most {most_bytes} bytes, got more", code="file-too-large"
            )
        return _engine.read_numbers(content, [(name, name in fractions) for name in names])
    except _engine.EngineError as error:
        raise CaptureError(
            f"{path}: {error}",
            code=error.code,
            hint=f"expected CSV with columns {', '.join(names)} in ns",
        ) from None
    except OSError as error:
        if error.errno is not None:
            raise
        raise CaptureError(f"{path}: {error}", code="csv") from None
