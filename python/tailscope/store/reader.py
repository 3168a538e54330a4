"""Reading a run directory back: what it says is believed only after its checksums."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple, TypedDict

import msgspec

from tailscope.engine.analysis import Group, Histogram, LossRun, Quantile, Rate, Worst
from tailscope.exceptions import RunCorruptError, RunError, RunIncompleteError
from tailscope.store import layout, tables
from tailscope.store.files import (
    MOST_RECORD_BYTES,
    holds_packets,
    named_below,
    opened,
    read_file,
    size_of,
)
from tailscope.store.info import foreign_text, shown_as
from tailscope.store.kept import Conclusions, kept, kept_files
from tailscope.store.notes import Remarks, read_notes
from tailscope.store.packets import Packets
from tailscope.store.parquet import TableFile
from tailscope.store.records.base import check_format, check_lines, convert, read_json, read_record
from tailscope.store.records.explanation import Explanation
from tailscope.store.records.plan import AnalysisPlan, ImportPlan, MeasurementPlan
from tailscope.store.records.run import RunInfo, RunMark
from tailscope.store.records.summary import Summary, figures_of, warnings_of
from tailscope.store.run import SIDES, Edges, Run, check_conservation
from tailscope.store.tables import rows_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from tailscope.engine.analysis import Figure, Side
    from tailscope.engine.columns import Column
    from tailscope.store.records.run import FileEntry
    from tailscope.store.run import NewColumns, TableColumns
    from tailscope.store.tables import Cell, Table

_WRITERS = "`tailscope run --out RUN` and `tailscope analyze PRE POST --out RUN` write one"
_RECORDS = (layout.SUMMARY, layout.PERCENTILES, layout.EXPLANATION)
"""Files of figures, which are read as a whole and are never large."""

EVERY_PACKET = "latency and order of every packet"
"""Name of the content of ``latency.parquet``, for errors."""


class _Figures(TypedDict):
    """The figures of a run, by the names of `Run`."""

    label: str
    info: RunInfo
    summary: Mapping[str, Figure]
    warnings: tuple[str, ...]
    percentiles: list[Quantile]
    path: Path
    kept: Conclusions
    remarks: Remarks


class _Marked(NamedTuple):
    """``run.json``: its bytes, what is in them, and what a run of any format says of itself."""

    text: bytes
    content: dict[str, object]
    mark: RunMark


class _Latencies(TypedDict):
    """The distribution of the latency, by the names of `Run`."""

    latency: Histogram
    edges: Edges | None


class _WorstPackets(TypedDict):
    """The worst packets and what they waited for, by the names of `Run`."""

    worst: Worst
    worst_explained: TableColumns
    worst_flows: NewColumns


def read_run(path: Path, *, label: str | None = None) -> Run:
    """Read a run directory, apart from its single packets."""
    path = Path(path)
    info = read_info(path)
    gaps, rate = (_of_sides(path, info, table) for table in (tables.GAPS, tables.RATE))
    figures = _read_figures(path, info, label or path.resolve().name)
    return Run(
        **figures,
        **_read_latency(path, info),
        gaps={side: Histogram(*_columns(gaps[side])) for side in SIDES},
        rate={side: Rate(*_columns(rate[side])) for side in SIDES},
        **_read_worst(path, info),
        flows=[Group(*row) for row in _rows_if_any(path, info, tables.FLOWS)],  # type: ignore[arg-type]
        loss_runs=[LossRun(*row) for row in _rows_if_any(path, info, tables.LOSS_RUNS)],  # type: ignore[arg-type]
        explanation=read_explanation(path, info) or figures["kept"].explanation,
    )


def read_figures(path: Path, *, label: str | None = None) -> Run:
    """Read the figures of a run: no packets, no histograms, no tables, which cost the most.

    What is read is checked by its checksum; all other files by their size alone.
    """
    info = read_info(path)
    check_sizes(path, info)
    return Run(
        **_read_figures(path, info, label or path.resolve().name),
        latency=Histogram(*_columns([])),
        gaps={side: Histogram(*_columns([])) for side in SIDES},
        rate={side: Rate(*_columns([])) for side in SIDES},
        worst=_no_worst(),
    )


def read_info(path: Path) -> RunInfo:
    """Read ``run.json`` of a run that was finished."""
    file = path / layout.RUN
    found = _marked(path)
    if found is None:
        raise RunError(
            f"{path}: not a run directory: no {layout.RUN} in it",
            code="not-a-run",
            hint=named_below(path, _WRITERS),
        )
    check_format(found.mark.format, layout.RUN_FORMAT, file)
    if not found.mark.complete:
        is_recorded = holds_packets(path)
        hint = f"`tailscope runs finish {path}` analyses what was recorded"
        raise RunIncompleteError(
            f"{path}: the run was never finished",
            hint=hint if is_recorded else "measure or analyse again",
        )
    check_lines(found.text, file)
    _check_plan(found.content, file)
    return convert(found.content, RunInfo, file)


_LATER_FIELDS = frozenset({"co_runner_platform", "encap"})
"""Fields of a plan for what earlier versions could not do: without them, it was not done."""


def _check_plan(content: Mapping[str, object], file: Path) -> None:
    """See that a plan has every field: a default of today says nothing of what was measured."""
    plan = content.get("plan")
    if not isinstance(plan, dict):
        return
    commands = {"analyze": AnalysisPlan, "import": ImportPlan}
    kind = commands.get(str(plan.get("command")), MeasurementPlan)
    for name in kind.__struct_fields__:
        if name not in plan and name not in _LATER_FIELDS:
            raise RunCorruptError(f"{file}: plan.{name}: missing", code="field-missing")


def read_mark(path: Path) -> RunMark | None:
    """Read whether a run was finished, and in which format it is; None where there is none."""
    found = _marked(path)
    return None if found is None else found.mark


def _marked(path: Path) -> _Marked | None:
    """Read ``run.json`` whatever is in it, and its mark; None where there is none."""
    file = path / layout.RUN
    try:
        text = read_file(path, layout.RUN, most_bytes=MOST_RECORD_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    content = read_json(text, file)
    return _Marked(text, content, convert(content, RunMark, file))


def read_summary(content: bytes, source: Path) -> tuple[dict[str, Figure], tuple[str, ...]]:
    """Read ``summary.json``: the figures by their flat names, and the warnings."""
    found = read_record(content, Summary, source, newest=layout.SUMMARY_FORMAT)
    return figures_of(found), warnings_of(found)


def _read_figures(path: Path, info: RunInfo, label: str) -> _Figures:
    """Read the figures of a run."""
    file = path / layout.SUMMARY
    summary, warnings = read_summary(verified(path, info, layout.SUMMARY), file)
    check_conservation(summary, str(file), is_imported=isinstance(info.plan, ImportPlan))
    conclusions, doubts = _kept(path, info)
    remarks, unread = _remarks(path)
    return {
        "label": shown_as(label, info),
        "info": info,
        "summary": summary,
        "warnings": (*warnings, *doubts, *unread),
        "percentiles": [
            msgspec.convert(row, Quantile) for row in _rows(path, info, tables.PERCENTILES)
        ],
        "path": path,
        "kept": conclusions,
        "remarks": remarks,
    }


def check_sizes(path: Path, info: RunInfo) -> None:
    """See that every file of a run is there, with the size that it was written with."""
    for name, written in info.files.items():
        expected = written.size_bytes
        try:
            got = size_of(path, name)
        except FileNotFoundError:
            raise RunCorruptError(f"{path / name}: missing", code="file-missing") from None
        if got != expected:
            raise RunCorruptError(
                f"{path / name}: size_bytes: expected {expected}, got {got}", code="size-differs"
            )


def open_packets(path: Path, info: RunInfo) -> Packets:
    """Open the single packets of a run: a context that closes them."""
    check_held(Path(path), info, layout.LATENCY, EVERY_PACKET)
    return Packets(verified_file(Path(path), info, layout.LATENCY), str(path / layout.LATENCY))


def packets_of(run: Run) -> Packets | None:
    """Open the single packets of a run that may be unfinished; None where it has none."""
    if run.path is None:
        return None
    if run.info.files:
        has_any = layout.LATENCY in run.info.files
        return open_packets(run.path, run.info) if has_any else None
    file = run.path / layout.LATENCY
    return Packets(file.open("rb"), str(file)) if file.exists() else None


def run_table(run: Run, table: Table, columns: Sequence[str]) -> Mapping[str, Column] | None:
    """Read columns of a Parquet table of a run; None where it has no such table."""
    source = _source(run, table.file)
    if source is None:
        return None
    with TableFile(source, str(run.path / table.file if run.path else table.file), table) as file:
        return file.columns(columns)


def arrow_table(run: Run, *tables: Table) -> pa.Table | None:
    """Read a Parquet table of a run as Arrow has it; None where it has no such table."""
    name = tables[0].file
    source = _source(run, name)
    if source is None:
        return None
    with TableFile(source, str(run.path / name if run.path else name), *tables) as file:
        from tailscope.engine.arrow import table

        return table(file.columns())


def _source(run: Run, name: str) -> bytes | IO[bytes] | None:
    """A file of a run, if it has it; one that is still being written has no checksums yet."""
    if run.path is None:
        return None
    if run.info.files:
        return verified(run.path, run.info, name) if name in run.info.files else None
    return (run.path / name).open("rb") if (run.path / name).exists() else None


def verified_file(path: Path, info: RunInfo, name: str) -> IO[bytes]:
    """Open a file of a run, of any size, if it is the one that was written."""
    listed = _listed(path, info, name)
    try:
        file = opened(path, name)
    except FileNotFoundError:
        raise RunCorruptError(f"{path / name}: missing", code="file-missing") from None
    try:
        got = hashlib.file_digest(file, "sha256").hexdigest()
        if got != listed.sha256:
            raise RunCorruptError(
                f"{path / name}: sha256: expected {listed.sha256}, got {got}", code="checksum"
            )
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file


def verified(path: Path, info: RunInfo, name: str) -> bytes:
    """Read a file of a run, if it is the one that was written."""
    listed = _listed(path, info, name)
    expected = listed.sha256
    most = MOST_RECORD_BYTES if name in _RECORDS else listed.size_bytes
    try:
        content = read_file(path, name, most_bytes=most, size_bytes=listed.size_bytes)
    except FileNotFoundError:
        raise RunCorruptError(f"{path / name}: missing", code="file-missing") from None
    got = hashlib.sha256(content).hexdigest()
    if got != expected:
        raise RunCorruptError(
            f"{path / name}: sha256: expected {expected}, got {got}", code="checksum"
        )
    return content


def _listed(path: Path, info: RunInfo, name: str) -> FileEntry:
    listed = info.files.get(name)
    if listed is None:
        raise RunCorruptError(
            f"{path / layout.RUN}: files: expected {name}, it is not there", code="file-not-listed"
        )
    return listed


def _kept(path: Path, info: RunInfo) -> tuple[Conclusions, list[str]]:
    """Conclusions, and warnings of those that are not of this run: they do not spoil it."""
    found = Conclusions()
    doubts = []
    for name in kept_files():
        if name in info.files:
            continue
        try:
            conclusion = kept(path, info, name)
        except (RunError, OSError) as error:
            doubts.append(_left_out(name, error))
            continue
        if conclusion is not None:
            found[name] = conclusion
    return found, doubts


def _left_out(name: str, error: RunError | OSError) -> str:
    hint = error.hint if isinstance(error, RunError) else None
    return f"{name} is left out: {error}" + (f"; {hint}" if hint else "")


def _remarks(path: Path) -> tuple[Remarks, list[str]]:
    """Tags and notes, and a warning where they cannot be read: they do not spoil a run."""
    try:
        return read_notes(path), []
    except (RunError, OSError) as error:
        return Remarks(), [_left_out(layout.NOTES, error)]


def file_states(path: Path, info: RunInfo, *, checksums: bool) -> dict[str, str]:
    """Say of each file of a run: ``there``, ``verified``, ``missing`` or ``changed``."""
    return {
        name: _state(path, name, file, checksums=checksums) for name, file in info.files.items()
    }


def _state(path: Path, name: str, file: FileEntry, *, checksums: bool) -> str:
    try:
        if size_of(path, name) != file.size_bytes:
            return "changed"
        if not checksums:
            return "there"
        with opened(path, name) as content:
            got = hashlib.file_digest(content, "sha256").hexdigest()
    except FileNotFoundError:
        return "missing"
    except RunCorruptError:
        return "changed"
    return "verified" if got == file.sha256 else "changed"


def _lacks(info: RunInfo, name: str) -> bool:
    """Return whether a table is missing: what was imported does not hold it, or it was left out."""
    is_left_out = name in (info.left_out or ())
    return name not in info.files and (is_left_out or isinstance(info.plan, ImportPlan))


def check_held(path: Path, info: RunInfo, name: str, what: str) -> None:
    """See that a run has a table: what was imported may not hold it, and some leave it out."""
    if name in (info.left_out or ()):
        raise RunError(
            f"{path}: {what}: {name} was left out of this run",
            code="left-out",
            hint="figures, histograms, worst packets and explanation.json are there; report.html"
            " shows them",
        )
    if _lacks(info, name):
        raise RunError(
            f"{path}: {what}: {foreign_text(info)} does not hold that",
            code="not-imported",
            hint="`tailscope analyze PRE POST` keeps every packet of two captures",
        )


def _rows(path: Path, info: RunInfo, table: Table) -> list[tuple[Cell, ...]]:
    if _lacks(info, table.file):
        return []
    return rows_of(verified(path, info, table.file), table, str(path / table.file))


def _rows_if_any(path: Path, info: RunInfo, table: Table) -> list[tuple[Cell, ...]]:
    """Read a table that measurements and runs of former versions do not have."""
    return _rows(path, info, table) if table.file in info.files else []


def _of_sides(path: Path, info: RunInfo, table: Table) -> dict[Side, list[tuple[Cell, ...]]]:
    rows = _rows(path, info, table)
    return {side: [row[1:] for row in rows if row[0] == side] for side in SIDES}


def _columns(rows: Sequence[tuple[Cell, ...]], number: int = 2) -> NDArray[np.uint64]:
    """Columns of counts."""
    import numpy as np

    return np.array(rows, np.uint64).reshape(-1, number).T


def _read_worst(path: Path, info: RunInfo) -> _WorstPackets:
    if _lacks(info, layout.WORST):
        return {"worst": _no_worst(), "worst_explained": {}, "worst_flows": {}}
    content = verified(path, info, layout.WORST)
    name = str(path / layout.WORST)
    with TableFile(content, name, tables.WORST, tables.WORST_EXPLAINED) as file:
        columns = file.read([*dict.fromkeys((*Worst._fields, *file.names))])
    worst = Worst(*(columns.pop(name) for name in Worst._fields))
    flows = {name: columns.pop(name) for name in tables.FLOW_COLUMNS if name in columns}
    return {"worst": worst, "worst_explained": columns, "worst_flows": {**flows}}


def _read_latency(path: Path, info: RunInfo) -> _Latencies:
    if not isinstance(info.plan, ImportPlan):
        return {
            "latency": Histogram(*_columns(_rows(path, info, tables.HISTOGRAM))),
            "edges": None,
        }
    if _lacks(info, layout.BUCKETS):
        return {"latency": Histogram(*_columns([])), "edges": None}
    edges = Edges(*_columns(_rows(path, info, tables.BUCKETS), 3))
    return {"latency": Histogram(edges.low_ns, edges.counts), "edges": edges}


def _no_worst() -> Worst:
    return Worst(*(_columns([])[0] for _ in Worst._fields))


def read_explanation(path: Path, info: RunInfo) -> Explanation | None:
    """Read what the tail of a run is made of; None where nothing is known."""
    if layout.EXPLANATION not in info.files:
        return None
    file = path / layout.EXPLANATION
    content = verified(path, info, layout.EXPLANATION)
    found = read_record(content, Explanation, file, newest=layout.FORMAT)
    if (got := sum(found.parts_ns.values())) != found.latency_ns:
        raise RunCorruptError(
            f"{file}: latency_ns is the sum of its parts: expected {found.latency_ns}, got {got}",
            code="sum-of-parts",
        )
    return found
