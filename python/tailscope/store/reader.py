"""Reading a run directory back: what it says is believed only after its checksums."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from tailscope.analysis import Histogram, Quantile, Rate, Series, Worst
from tailscope.exceptions import RunCorruptError, RunError, RunIncompleteError
from tailscope.store import layout
from tailscope.store.kept import kept
from tailscope.store.notes import Remarks, read_notes
from tailscope.store.run import SIDES, Run, check_conservation, shown_as

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = [
    "file_states",
    "packet_groups",
    "read_figures",
    "read_mark",
    "read_packets",
    "read_run",
    "read_table",
    "run_table",
    "verified",
]


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
    info = _complete(path)
    try:
        return _read_complete(path, info, label or path.resolve().name)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise RunCorruptError(f"{path}: not as it was written: {error!r}") from error


def read_figures(path: Path, *, label: str | None = None) -> Run:
    """Read the figures of a run: no packets, no histograms, no tables, which cost the most.

    What is read is checked by its checksum; all other files by their size alone.

    Parameters
    ----------
    path : Path
        The directory.
    label : str, optional
        What the run is called in figures; the name of the directory by default.

    Returns
    -------
    Run
        Without what was not read.

    Raises
    ------
    RunError
        As `read_run`.
    """
    info = _complete(path)
    try:
        _check_sizes(path, info)
        return Run(
            **_read_figures(path, info, label or path.resolve().name),
            latency=Histogram(*_columns([])),
            gaps={side: Histogram(*_columns([])) for side in SIDES},
            rate={side: Rate(*_columns([])) for side in SIDES},
            worst=Worst(*(_columns([])[0] for _ in Worst._fields)),
        )
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise RunCorruptError(f"{path}: not as it was written: {error!r}") from error


def _complete(path: Path) -> dict[str, Any]:
    """``run.json`` of a run that was finished, by this version."""
    info = read_mark(path)
    if info is None:
        raise RunError(
            f"{path}: not a run directory: no {layout.RUN} in it",
            hint="`tailscope analyze PRE POST --out RUN` writes one",
        )
    if not info.get("complete"):
        raise RunIncompleteError(
            f"{path}: the run was never finished", hint="analyse the captures again"
        )
    if info.get("format") != layout.FORMAT:
        raise RunError(
            f"{path}: format of the run: expected {layout.FORMAT}, got {info.get('format')!r}"
        )
    return info


def _read_complete(path: Path, info: dict[str, Any], label: str) -> Run:
    gaps, rate = _csv_rows(path, info, layout.GAPS), _csv_rows(path, info, layout.RATE)
    return Run(
        **_read_figures(path, info, label),
        latency=Histogram(*_columns(_csv_rows(path, info, layout.HISTOGRAM))),
        gaps={side: Histogram(*_columns(_of_side(gaps, side))) for side in SIDES},
        rate={side: Rate(*_columns(_of_side(rate, side))) for side in SIDES},
        **_read_worst(verified(path, info, layout.WORST)),
        explanation=_read_explanation(path, info),
    )


def _read_figures(path: Path, info: dict[str, Any], label: str) -> dict[str, Any]:
    """What a run says in figures, by the names of `Run`."""
    summary = json.loads(verified(path, info, layout.SUMMARY))
    warnings = tuple(summary.pop("warnings"))
    check_conservation(summary, str(path / layout.SUMMARY))
    conclusions, doubts = _kept(path, info)
    remarks, unread = _remarks(path)
    return {
        "label": shown_as(label, info),
        "info": info,
        "summary": summary,
        "warnings": (*warnings, *doubts, *unread),
        "percentiles": [_quantile(row) for row in _csv_rows(path, info, layout.PERCENTILES)],
        "path": path,
        "kept": conclusions,
        "remarks": remarks,
    }


def _check_sizes(path: Path, info: dict[str, Any]) -> None:
    for name, written in info["files"].items():
        expected = written["size_bytes"]
        try:
            got = (path / name).stat().st_size
        except FileNotFoundError:
            raise RunCorruptError(f"{path / name}: missing") from None
        if got != expected:
            raise RunCorruptError(f"{path / name}: size_bytes: expected {expected}, got {got}")


def read_packets(path: Path, info: Mapping[str, Any]) -> Series:
    """Read the single packets of a run.

    Parameters
    ----------
    path : Path
        The directory.
    info : Mapping
        Its ``run.json``, as `read_run` gives it.

    Raises
    ------
    RunCorruptError
        If the file is not the one that was written.
    """
    from tailscope.arrow import values

    table = read_table(verified(Path(path), info, layout.LATENCY))
    columns = {name: table[name] for name in Series._fields}
    known = {name: values(each) for name, each in columns.items() if not each.null_count}
    return Series(**known)


def packet_groups(run: Run) -> Iterator[tuple[Any, Any, Any]]:
    """Read the single packets of a run, a million at a time.

    Yields
    ------
    pre_ns, latency_ns : ndarray of uint64, shape (n,)
    intended_ns : ndarray of uint64, shape (n,), or None
        When packets were meant to leave, where that is known.

    Raises
    ------
    RunCorruptError
        If the file is not the one that was written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tailscope.arrow import values

    source = _source(run, layout.LATENCY)
    if source is None:
        return
    file = pq.ParquetFile(pa.BufferReader(source) if isinstance(source, bytes) else source)
    for group in range(file.num_row_groups):
        table = file.read_row_group(
            group, ["pre_ns", "latency_ns", "intended_ns"], use_threads=False
        )
        columns = [table[name] for name in ("pre_ns", "latency_ns", "intended_ns")]
        pre_ns, latency_ns, intended_ns = (
            None if each.null_count else values(each) for each in columns
        )
        yield pre_ns, latency_ns, intended_ns


def run_table(run: Run, name: str, columns: Sequence[str]) -> dict[str, Any] | None:
    """Read columns of a table of a run; None where it has no such table.

    Parameters
    ----------
    run : Run
    name : str
        Of the file.
    columns : sequence of str

    Raises
    ------
    RunCorruptError
        If the file is not the one that was written.
    """
    from tailscope.arrow import values

    source = _source(run, name)
    if source is None:
        return None
    table = read_table(source, columns)
    return {each: values(table[each]) for each in table.column_names}


def _source(run: Run, name: str) -> bytes | Path | None:
    """A file of a run, if it has it; one that is still being written has no checksums yet."""
    if run.path is None:
        return None
    if "files" in run.info:
        return verified(run.path, run.info, name) if name in run.info["files"] else None
    return run.path / name if (run.path / name).exists() else None


def read_mark(path: Path) -> dict[str, Any] | None:
    """Read ``run.json``; None where there is none.

    Raises
    ------
    RunCorruptError
        If it is not as it was written.
    """
    try:
        mark = json.loads((path / layout.RUN).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError as error:
        raise RunCorruptError(f"{path / layout.RUN}: {error}") from None
    if not isinstance(mark, dict):
        raise RunCorruptError(f"{path / layout.RUN}: expected an object, got {type(mark).__name__}")
    return mark


def read_table(source: bytes | Path, columns: Sequence[str] | None = None) -> Any:
    """Read a Parquet table, or some of its columns, in the calling thread.

    Arrow's own threads may still hold what is Python's when the interpreter shuts down, and abort
    the process then (apache/arrow issue 34314).
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = pa.BufferReader(source) if isinstance(source, bytes) else source
    table = pq.ParquetFile(file).read(columns, use_threads=False)
    return table if columns is None else table.select(list(columns))


def verified(path: Path, info: Mapping[str, Any], name: str) -> bytes:
    """Read a file of a run, if it is the one that was written.

    Parameters
    ----------
    path : Path
        The run directory.
    info : Mapping
        Its ``run.json``.
    name : str

    Raises
    ------
    RunCorruptError
        If it is not.
    """
    expected = info["files"][name]["sha256"]
    try:
        content = (path / name).read_bytes()
    except FileNotFoundError:
        raise RunCorruptError(f"{path / name}: missing") from None
    got = hashlib.sha256(content).hexdigest()
    if got != expected:
        raise RunCorruptError(f"{path / name}: sha256: expected {expected}, got {got}")
    return content


def _kept(path: Path, info: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Conclusions, and warnings of those that are not of this run: they do not spoil it."""
    found, doubts = {}, []
    for name in layout.KEPT:
        try:
            conclusion = kept(path, info, name)
        except RunCorruptError as error:
            doubts.append(f"{name} is left out: {error}")
            continue
        if conclusion is not None:
            found[name] = conclusion
    return found, doubts


def _remarks(path: Path) -> tuple[Remarks, list[str]]:
    """Tags and notes, and a warning where they cannot be read: they do not spoil a run."""
    try:
        return read_notes(path), []
    except RunCorruptError as error:
        return Remarks(), [f"{layout.NOTES} is left out: {error}"]


def file_states(path: Path, info: Mapping[str, Any], *, checksums: bool) -> dict[str, str]:
    """For each file of a run, what became of it: ``there``, ``verified``, ``missing``, ``changed``.

    Parameters
    ----------
    path : Path
        The run directory.
    info : Mapping
        Its ``run.json``.
    checksums : bool
        Whether to read the files: without, one that has its size is ``there``.

    Raises
    ------
    RunCorruptError
        If a file lies outside of the run.
    """
    for name in info["files"]:
        if PurePath(name).is_absolute() or ".." in PurePath(name).parts:
            raise RunCorruptError(
                f"{path / layout.RUN}: files: expected names within the run, got {name!r}"
            )
    return {
        name: _state(path / name, file, checksums=checksums) for name, file in info["files"].items()
    }


def _state(path: Path, file: Mapping[str, Any], *, checksums: bool) -> str:
    if not path.is_file():
        return "missing"
    if path.stat().st_size != file["size_bytes"]:
        return "changed"
    if not checksums:
        return "there"
    with path.open("rb") as content:
        got = hashlib.file_digest(content, "sha256").hexdigest()
    return "verified" if got == file["sha256"] else "changed"


def _csv_rows(path: Path, info: Mapping[str, Any], name: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(verified(path, info, name).decode())))[1:]


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


def _read_worst(content: bytes) -> dict[str, Any]:
    from tailscope.arrow import values

    table = read_table(content)
    columns = {name: values(table[name]) for name in table.column_names}
    worst = Worst(*(columns.pop(name) for name in Worst._fields))
    return {"worst": worst, "worst_explained": columns}


def _read_explanation(path: Path, info: Mapping[str, Any]) -> dict[str, Any] | None:
    if layout.EXPLANATION not in info["files"]:
        return None
    found: dict[str, Any] = json.loads(verified(path, info, layout.EXPLANATION))
    if (got := sum(found["parts_ns"].values())) != found["latency_ns"]:
        raise RunCorruptError(
            f"{path / layout.EXPLANATION}: latency_ns is the sum of its parts:"
            f" expected {found['latency_ns']}, got {got}"
        )
    return found
