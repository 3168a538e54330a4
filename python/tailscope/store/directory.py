"""A run is a directory: writing it and reading it back.

``run.json`` is written twice: first as a mark that a run is being written, last with the checksums
of all other files. A run is complete when ``run.json`` says so.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

from tailscope.analysis import Analysis, Histogram, Quantile, Rate, Series, Worst
from tailscope.exceptions import RunCorruptError, RunError, RunExistsError, RunIncompleteError
from tailscope.store.atomic import TEMPORARY_SUFFIX, replacing, write_text
from tailscope.store.run import SIDES, Run, check_conservation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pyarrow as pa

    from tailscope.analysis import Counts, Nanoseconds

__all__ = ["RunWriter", "read_run"]

FORMAT = 1
_RUN = "run.json"
_SUMMARY = "summary.json"
_PERCENTILES = "percentiles.csv"
_HISTOGRAM = "histogram.csv"
_GAPS = "gaps.csv"
_RATE = "rate.csv"
_WORST = "worst.parquet"


class RunWriter:
    """Writes one run; a context that leaves nothing behind when the run fails.

    Parameters
    ----------
    path : Path
        The directory; made, with access for its owner only, when it is not there. It may be empty
        or hold a run that was never finished.

    Raises
    ------
    RunExistsError
        If it holds a complete run or anything else.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self._stack = ExitStack()
        self._made = False
        self._written: list[str] = []
        self._latency: _LatencyFile | None = None

    def __enter__(self) -> Self:
        _refuse_foreign(self.path)
        self._made = not self.path.exists()
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for leftover in self.path.glob(f".*{TEMPORARY_SUFFIX}"):
            leftover.unlink()
        try:
            self._write_json(_RUN, {"format": FORMAT, "complete": False})
            file = self._stack.enter_context(replacing(self.path / "latency.parquet"))
            self._latency = self._stack.enter_context(_LatencyFile(file))
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        try:
            self._stack.__exit__(kind, error, trace)
        finally:
            if error is not None:
                self._undo()

    def sink(self, seq: Counts, pre_ns: Nanoseconds, latency_ns: Nanoseconds) -> None:
        """Take matches for ``latency.parquet``: the `sink` of `tailscope.analyze`."""
        assert self._latency is not None, "the writer is a context"
        self._latency.write(Series(seq, pre_ns, latency_ns))

    def finish(
        self,
        analysis: Analysis,
        *,
        info: Mapping[str, Any],
        bucket_ns: int,
        report: Callable[[Run], str],
    ) -> None:
        """Write everything else, and say that the run is complete.

        Parameters
        ----------
        analysis : Analysis
        info : Mapping
            Plan, inputs, clock, floor, host and versions for ``run.json``.
        bucket_ns : int
            Bucket of the histograms in ns.
        report : callable
            Makes the page ``report.html`` of a run.
        """
        self._stack.close()
        self._written.append("latency.parquet")
        run = Run.of(analysis, label=self.path.resolve().name, info=info, bucket_ns=bucket_ns)
        check_conservation(run.summary, "summary")
        self._write_json(_SUMMARY, {**run.summary, "warnings": run.warnings})
        self._write_csv(_PERCENTILES, Quantile._fields, run.percentiles)
        self._write_csv(_HISTOGRAM, ("bucket_ns", "count"), _rows(run.latency))
        self._write_csv(_GAPS, ("side", "bucket_ns", "count"), _sided(run.gaps))
        self._write_csv(_RATE, ("side", "start_ns", "count"), _sided(run.rate))
        self._write("histogram.hlog", analysis.hlog())
        self._write_worst(run.worst)
        self._write("report.html", report(run))
        files = {name: _checksum(self.path / name) for name in self._written if name != _RUN}
        self._write_json(
            _RUN,
            {
                "format": FORMAT,
                "complete": True,
                "written_unix_ns": time.time_ns(),
                **info,
                "files": files,
            },
        )

    def _write(self, name: str, content: str) -> None:
        write_text(self.path / name, content)
        if name not in self._written:
            self._written.append(name)

    def _write_json(self, name: str, content: Mapping[str, Any]) -> None:
        self._write(name, json.dumps(content, indent=2, allow_nan=False) + "\n")

    def _write_csv(self, name: str, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
        self._write(name, text.getvalue())

    def _write_worst(self, worst: Worst) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        with replacing(self.path / _WORST) as file:
            pq.write_table(pa.table(dict(zip(worst._fields, worst, strict=True))), file)
        self._written.append(_WORST)

    def _undo(self) -> None:
        for name in self._written:
            (self.path / name).unlink(missing_ok=True)
        if self._made:
            with suppress(OSError):
                self.path.rmdir()


class _LatencyFile:
    """``latency.parquet``, written as the matches come in.

    Columns ``intended_ns`` and ``tainted`` are null: captures do not tell when a packet should have
    been sent, nor whether the instrument itself delayed it.
    """

    ROWS_PER_GROUP = 1 << 20

    def __init__(self, file: IO[bytes]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._pa = pa
        self._schema = pa.schema(
            [
                pa.field("seq", pa.uint64(), nullable=False),
                pa.field("pre_ns", pa.uint64(), nullable=False),
                pa.field("latency_ns", pa.uint64(), nullable=False),
                pa.field("intended_ns", pa.uint64()),
                pa.field("tainted", pa.bool_()),
            ]
        )
        self._writer = pq.ParquetWriter(
            file,
            self._schema,
            compression="zstd",
            use_dictionary=False,
            column_encoding={
                "seq": "DELTA_BINARY_PACKED",
                "pre_ns": "DELTA_BINARY_PACKED",
                "latency_ns": "DELTA_BINARY_PACKED",
                "intended_ns": "PLAIN",
                "tainted": "PLAIN",
            },
        )
        self._waiting: list[pa.RecordBatch] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is None:
            self._flush()
        self._writer.close()

    def write(self, series: Series) -> None:
        pa = self._pa
        rows = len(series.seq)
        columns = [*map(pa.array, series), pa.nulls(rows, pa.uint64()), pa.nulls(rows, pa.bool_())]
        self._waiting.append(pa.record_batch(columns, schema=self._schema))
        if sum(map(len, self._waiting)) >= self.ROWS_PER_GROUP:
            self._flush()

    def _flush(self) -> None:
        table = self._pa.Table.from_batches(self._waiting, schema=self._schema)
        self._writer.write_table(table, row_group_size=self.ROWS_PER_GROUP)
        self._waiting = []


def read_run(path: Path, *, label: str | None = None) -> Run:
    """Read a run directory, apart from its single packets.

    Parameters
    ----------
    path : Path
        The directory.
    label : str, optional
        What the run is called in figures; the name of the directory by default.

    Raises
    ------
    RunError
        If there is no run.
    RunIncompleteError
        If it was never finished.
    RunCorruptError
        If a file differs from its checksum, or the counts do not add up.
    """
    path = Path(path)
    info = _read_mark(path)
    if info is None:
        raise RunError(
            f"{path}: not a run directory: no {_RUN} in it",
            hint="`tailscope analyze PRE POST --out RUN` writes one",
        )
    if not info.get("complete"):
        raise RunIncompleteError(
            f"{path}: the run was never finished", hint="analyse the captures again"
        )
    if info.get("format") != FORMAT:
        raise RunError(f"{path}: format of the run: expected {FORMAT}, got {info.get('format')!r}")
    try:
        return _read_complete(path, info, label or path.resolve().name)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise RunCorruptError(f"{path}: not as it was written: {error!r}") from error


def _read_complete(path: Path, info: dict[str, Any], label: str) -> Run:
    summary = json.loads(_verified(path, info, _SUMMARY))
    warnings = tuple(summary.pop("warnings"))
    check_conservation(summary, str(path / _SUMMARY))
    gaps, rate = _csv_rows(path, info, _GAPS), _csv_rows(path, info, _RATE)
    return Run(
        label=label,
        info=info,
        summary=summary,
        warnings=warnings,
        percentiles=[_quantile(row) for row in _csv_rows(path, info, _PERCENTILES)],
        latency=Histogram(*_columns(_csv_rows(path, info, _HISTOGRAM))),
        gaps={side: Histogram(*_columns(_of_side(gaps, side))) for side in SIDES},
        rate={side: Rate(*_columns(_of_side(rate, side))) for side in SIDES},
        worst=_read_worst(_verified(path, info, _WORST)),
    )


def _read_mark(path: Path) -> dict[str, Any] | None:
    try:
        mark = json.loads((path / _RUN).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError as error:
        raise RunCorruptError(f"{path / _RUN}: {error}") from None
    if not isinstance(mark, dict):
        raise RunCorruptError(f"{path / _RUN}: expected an object, got {type(mark).__name__}")
    return mark


def _refuse_foreign(path: Path) -> None:
    mark = _read_mark(path)
    if mark is not None and mark.get("complete"):
        raise RunExistsError(
            f"{path}: holds a complete run already", hint="choose another directory or remove it"
        )
    if mark is None and path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise RunExistsError(
            f"{path}: exists and is no empty directory", hint="choose another directory"
        )


def _verified(path: Path, info: Mapping[str, Any], name: str) -> bytes:
    expected = info["files"][name]["sha256"]
    try:
        content = (path / name).read_bytes()
    except FileNotFoundError:
        raise RunCorruptError(f"{path / name}: missing") from None
    got = hashlib.sha256(content).hexdigest()
    if got != expected:
        raise RunCorruptError(f"{path / name}: sha256: expected {expected}, got {got}")
    return content


def _checksum(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {
            "size_bytes": path.stat().st_size,
            "sha256": hashlib.file_digest(file, "sha256").hexdigest(),
        }


def _csv_rows(path: Path, info: Mapping[str, Any], name: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(_verified(path, info, name).decode())))[1:]


def _of_side(rows: list[list[str]], side: str) -> list[list[str]]:
    return [row[1:] for row in rows if row[0] == side]


def _columns(rows: list[list[str]]) -> Any:
    import numpy as np

    return np.array([[int(cell) for cell in row] for row in rows], np.uint64).reshape(-1, 2).T


def _quantile(row: list[str]) -> Quantile:
    q, value, low, high, beyond, supported = row
    return Quantile(
        float(q),
        int(value),
        int(low) if low else None,
        int(high) if high else None,
        int(beyond),
        supported == "True",
    )


def _read_worst(content: bytes) -> Worst:
    import pyarrow.parquet as pq

    table = pq.read_table(io.BytesIO(content))
    return Worst(*(table[name].to_numpy() for name in Worst._fields))


def _rows(columns: Sequence[Any]) -> Iterable[tuple[Any, ...]]:
    return zip(*(column.tolist() for column in columns), strict=True)


def _sided(sides: Mapping[Any, Sequence[Any]]) -> Iterable[tuple[Any, ...]]:
    return ((side, *row) for side, columns in sides.items() for row in _rows(columns))
