"""A run is a directory: writing it.

``run.json`` is written twice: first as a mark that a run is being written, last with the checksums
of all other files but the page. A run is complete when ``run.json`` says so. What was recorded of a
measurement is in it from before the analysis until that has succeeded.
"""

from __future__ import annotations

import csv
import hashlib
import io
import os
import shutil
import time
from collections import Counter
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from msgspec import structs

from tailscope.engine.analysis import Series
from tailscope.exceptions import RunError, RunExistsError, RunUnfinishedError, said
from tailscope.signals import uninterrupted
from tailscope.store import layout, tables
from tailscope.store.atomic import replacing, replacing_folder, write_text
from tailscope.store.files import holds_packets, is_there
from tailscope.store.latency import LatencyFile, PacketFile
from tailscope.store.owner import is_owned, is_vacant, owned, refuse_owned
from tailscope.store.parquet import TableFile, write_parquet
from tailscope.store.reader import read_mark
from tailscope.store.records.base import encode, encode_content
from tailscope.store.records.run import FileEntry, RunMark
from tailscope.store.records.summary import Summary
from tailscope.store.run import Run, check_conservation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from types import TracebackType

    import numpy as np
    from numpy.typing import NDArray

    from tailscope.engine.analysis import (
        Analysis,
        Counts,
        Figure,
        Marks,
        Nanoseconds,
        Places,
        Side,
        Worst,
    )
    from tailscope.engine.columns import Column
    from tailscope.store.records.explanation import Explanation
    from tailscope.store.records.recorded import RecordedRun
    from tailscope.store.records.run import RunInfo
    from tailscope.store.records.watched import WatchedRecord
    from tailscope.store.run import ExplainedColumns, NewColumns
    from tailscope.store.tables import Table

    Explain = Callable[[Path, Worst], tuple[Explanation, ExplainedColumns]]
    Draw = Callable[[Run], str]

_RECORDED = (layout.NOISE, layout.NEIGHBOURS, layout.STAGES, layout.INTERRUPTS, layout.POWER)
"""Tables of what was recorded: nothing has to be analysed for them."""


def write_noise(path: Path, record: WatchedRecord, noise: NewColumns, samples: NewColumns) -> None:
    """Write what was seen of CPUs without packets: a folder of its own."""
    with replacing_folder(path) as folder:
        write_parquet(folder / layout.NOISE, noise)
        write_parquet(folder / layout.INTERRUPTS, samples)
        write_text(folder / layout.WATCHED, encode(record))


class Lack(NamedTuple):
    """A result that could not be made of a run, which was kept nevertheless."""

    code: str
    """The code of the error where the run is all that was asked for."""
    what: str

    def __str__(self) -> str:
        """Return what is lacking, and why."""
        return self.what


class RunWriter:
    """Writes one run, and owns its directory meanwhile; a context.

    A run that fails leaves nothing behind, but what was recorded if `keep` was called. Its page is
    written where somebody says how to draw it.
    """

    def __init__(
        self,
        path: Path,
        *,
        draw: Draw | None = None,
        has_packets: bool = True,
        has_flows: bool = False,
        has_doubts: bool = False,
        resumes: bool = False,
    ) -> None:
        self.path = Path(path)
        self._draw = draw
        self._has_packets = has_packets
        self._has_flows = has_flows
        self._has_doubts = has_doubts
        self._resumes = self._is_recorded = resumes
        self._stack, self._ownership = ExitStack(), ExitStack()
        self._written: list[str] = []
        self._latency: LatencyFile | None = None
        self._lost: PacketFile | None = None
        self._untimed: PacketFile | None = None
        self._flows: list[str] = []
        self._explain: Explain | None = None
        self.is_whole = False

    def __enter__(self) -> Self:
        refuse_foreign(self.path, resumes=self._resumes)
        self._ownership.enter_context(owned(self.path))
        try:
            # What was there before it was ours may have changed.
            _refuse_held(self.path, resumes=self._resumes)
        except BaseException:
            self._ownership.close()
            raise
        if self._resumes:
            self._written += [name for name in _RECORDED if (self.path / name).exists()]
            captures = sorted((self.path / layout.CAPTURES).glob("*"))
            self._written += [f"{layout.CAPTURES}/{path.name}" for path in captures]
        try:
            self._write(layout.RUN, encode(RunMark(format=layout.RUN_FORMAT, complete=False)))
            if self._has_packets:
                file = self._stack.enter_context(replacing(self.path / layout.LATENCY))
                self._latency = self._stack.enter_context(
                    LatencyFile(file, self._flows if self._has_flows else None)
                )
            if self._has_flows:
                file = self._stack.enter_context(replacing(self.path / layout.LOST))
                self._lost = self._stack.enter_context(PacketFile(file, tables.LOST, self._flows))
            if self._has_doubts:
                file = self._stack.enter_context(replacing(self.path / layout.UNTIMED))
                self._untimed = self._stack.enter_context(PacketFile(file, tables.UNTIMED))
        except BaseException as error:
            self.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._ownership:
            if error is None:
                self._stack.close()
                return
            # A file that cannot be closed either says nothing new.
            with suppress(Exception):
                self._stack.__exit__(kind, error, trace)
            if not self.is_whole:
                self._undo()

    def sink(
        self,
        seq: Counts,
        pre_ns: Nanoseconds,
        latency_ns: Nanoseconds,
        intended_ns: Nanoseconds | None = None,
        tainted: Marks | None = None,
        instrument_stall_ns: Nanoseconds | None = None,
    ) -> None:
        """Take matches for ``latency.parquet``: the `sink` of `tailscope.analyze`."""
        assert self._latency is not None, "the writer is a context"
        series = Series(seq, pre_ns, latency_ns, intended_ns, tainted, instrument_stall_ns)
        self._latency.write(series)

    def flows(self, names: list[str]) -> None:
        """Take names of flows: the writer of a run that has them is a `PacketSink`."""
        self._flows += names

    def matches(
        self,
        seq: Counts,
        pre_ns: Nanoseconds,
        latency_ns: Nanoseconds,
        flow: Places,
        size_bytes: Places,
    ) -> None:
        """Take matches with their flows."""
        assert self._latency is not None, "the writer is a context"
        unknown = (None, None, None)
        self._latency.append((seq, pre_ns, latency_ns, *unknown, flow, size_bytes))

    def lost(self, seq: Counts, pre_ns: Nanoseconds, flow: Places, size_bytes: Places) -> None:
        """Take lost packets with their flows."""
        assert self._lost is not None, "the writer is a context"
        self._lost.append((seq, pre_ns, flow, size_bytes))

    def untimed(self, seq: Counts, pre_ns: Nanoseconds, latency_ns: Nanoseconds) -> None:
        """Take packets of which a time is in doubt."""
        assert self._untimed is not None, "the writer was told of doubts"
        self._untimed.append((seq, pre_ns, latency_ns))

    def add_noise(self, noise: NewColumns) -> None:
        """Write ``noise.parquet``: what kept a core from running, on the clock of the packets."""
        self._write_table(layout.NOISE, noise)

    def add_neighbours(self, held: NewColumns) -> None:
        """Write ``neighbours.parquet``: when other programs held the device's CPUs."""
        self._write_table(layout.NEIGHBOURS, held)

    def close_packets(self) -> None:
        """Write the rest of ``latency.parquet``: no match will follow."""
        if self._has_packets:
            self._begin(layout.LATENCY)
        if self._has_flows:
            self._begin(layout.LOST)
        if self._has_doubts:
            self._begin(layout.UNTIMED)
        self._stack.close()

    def add_stages(self, passed: NewColumns) -> None:
        """Write ``stages.parquet``: when packets passed points of the kernel."""
        self._write_table(layout.STAGES, passed)

    def add_interrupts(self, samples: NewColumns) -> None:
        """Write ``interrupts.parquet``: counters of interrupts over time."""
        self._write_table(layout.INTERRUPTS, samples)

    def add_power(self, power: NewColumns) -> None:
        """Write ``power.parquet``: power over time."""
        self._write_table(layout.POWER, power)

    def add_clock_doubts(self, doubts: Iterable[Sequence[object]]) -> None:
        """Write ``clock_doubts.csv``: when one of the clocks was in doubt."""
        self._write_csv(tables.CLOCK_DOUBTS, doubts)

    def explain_by(self, explain: Explain) -> None:
        """Have the tail, and the worst packets, explained when the run is finished."""
        self._explain = explain

    def add_captures(self, folder: Path) -> None:
        """Move captures into the run."""
        (self.path / layout.CAPTURES).mkdir(exist_ok=True)
        captures = sorted(path for path in folder.iterdir() if path.is_file())
        move_all(captures, self.path / layout.CAPTURES)
        self.add(f"{layout.CAPTURES}/{path.name}" for path in captures)

    def add(self, names: Iterable[str]) -> None:
        """Make files that are in the directory a part of the run."""
        self._written += names

    def record(self) -> Path:
        """Make the folder that packets are recorded in."""
        folder = (self.path / layout.RECORDING).absolute()
        # Of a measurement that was killed before there were any.
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        return folder

    def keep(self, run: RecordedRun) -> None:
        """Keep what is recorded until the run is complete, whatever ends the analysis before."""
        write_text(self.path / layout.RECORDED, encode(run))
        self._is_recorded = True

    @property
    def holds_packets(self) -> bool:
        """Return whether packets were recorded that are not yet part of a whole run."""
        return not self.is_whole and holds_packets(self.path)

    def withdraw(self) -> None:
        """Take back what was written: what was recorded is analysed, or kept elsewhere."""
        shutil.rmtree(self.path / layout.RECORDING, ignore_errors=True)
        self._is_recorded = False
        self._undo()

    def finish(
        self,
        analysis: Analysis,
        *,
        info: RunInfo,
        bucket_ns: int,
        figures: Mapping[str, Figure] | None = None,
    ) -> list[Lack]:
        """Write everything else, and say that the run is complete.

        What was measured comes first: neither an explanation nor a page that fails, or is
        interrupted, takes it away.
        """
        self.close_packets()
        run = Run.of(
            analysis,
            label=self.path.resolve().name,
            info=info,
            bucket_ns=bucket_ns,
            path=self.path,
        )
        check_conservation(run.summary, "summary")
        self._write_figures(run, figures or {})
        self._write_csv(tables.HISTOGRAM, _rows(run.latency))
        self._write_csv(tables.GAPS, _sided(run.gaps))
        self._write_csv(tables.RATE, _sided(run.rate))
        self._write(layout.HLOG, analysis.hlog())
        if self._has_flows:
            self._write_flows(analysis, run)
        lacks: list[Lack] = []
        with _kept_going("run-not-explained", "not explained", lacks):
            if self._explain is not None:
                explanation, columns = self._explain(self.path / layout.LATENCY, run.worst)
                run = replace(run, explanation=explanation, worst_explained=columns)
        self._write_worst(run)
        if run.explanation is not None:
            self._write(layout.EXPLANATION, encode(run.explanation))
        return [*lacks, *self._complete(run)]

    def finish_import(self, run: Run) -> list[Lack]:
        """Write what was imported, and say that the run is complete."""
        check_conservation(run.summary, "summary", is_imported=True)
        self._write_figures(run, {})
        if run.edges is not None:
            self._write_csv(tables.BUCKETS, _rows(run.edges))
        for table, sides in ((tables.GAPS, run.gaps), (tables.RATE, run.rate)):
            if any(len(each.counts) for each in sides.values()):
                self._write_csv(table, _sided(sides))
        if len(run.worst.latency_ns):
            known = run.worst._asdict()
            known["pre_seq"] = _unknown(len(run.worst.latency_ns))
            self._write_table(layout.WORST, known)
        return self._complete(run)

    def _write_figures(self, run: Run, figures: Mapping[str, Figure]) -> None:
        summary = {**run.summary, **figures, "warnings": [*run.warnings]}
        self._write(
            layout.SUMMARY, encode_content({"format": layout.SUMMARY_FORMAT, **summary}, Summary)
        )
        self._write_csv(tables.PERCENTILES, run.percentiles)

    def _complete(self, run: Run) -> list[Lack]:
        lasting = [name for name in self._written if name != layout.RUN]
        files = {name: _checksum(self.path / name) for name in lasting}
        finished = structs.replace(run.info, written_unix_ns=time.time_ns(), files=files)
        lacks: list[Lack] = []
        with uninterrupted():
            try:
                self._write(layout.RUN, encode(finished))
            except OSError as error:
                if not is_complete(self.path):
                    raise
                what = "not known to outlast a power cut"
                lacks.append(Lack("run-not-lasting", f"{what}: {said(error)}"))
            self.is_whole = True
        if not lacks:
            shutil.rmtree(self.path / layout.RECORDING, ignore_errors=True)
        # A page is no source of anything: it may be drawn again when there is more to say.
        if self._draw is not None:
            with _kept_going("run-without-page", "no page", lacks):
                write_text(self.path / layout.REPORT, self._draw(replace(run, info=finished)))
        return lacks

    def _write(self, name: str, content: str) -> None:
        self._begin(name)
        write_text(self.path / name, content)

    def _begin(self, name: str) -> None:
        """Take a file for ours before it is there: Ctrl-C may come right behind."""
        if name not in self._written:
            self._written.append(name)

    def _write_csv(self, table: Table, rows: Iterable[Sequence[object]]) -> None:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(table.names)
        writer.writerows(rows)
        self._write(table.file, text.getvalue())

    def _write_flows(self, analysis: Analysis, run: Run) -> None:
        self._write_csv(tables.FLOWS, run.flows)
        self._write_csv(tables.LOSS_RUNS, run.loss_runs)
        if analysis.corruptions:
            self._write_csv(tables.CORRUPT, analysis.corruptions)
        if len(analysis.resegmented_ns):
            self._take_back(analysis.resegmented_ns)

    def _take_back(self, resegmented_ns: Nanoseconds) -> None:
        """Leave out of ``lost.parquet`` what came out in another form."""
        import numpy as np

        path = self.path / layout.LOST
        with TableFile(path.open("rb"), str(path), tables.LOST) as file:
            lost = file.columns()
        taken = Counter(resegmented_ns.tolist())
        is_lost = []
        for ts in np.asarray(lost["pre_ns"]).tolist():
            is_lost.append(not taken[ts])
            taken[ts] -= not is_lost[-1]
        rows = np.array(is_lost, bool)
        self._write_table(layout.LOST, {name: column[rows] for name, column in lost.items()})

    def _write_worst(self, run: Run) -> None:
        self._write_table(
            layout.WORST, {**run.worst._asdict(), **run.worst_explained, **run.worst_flows}
        )

    def _write_table(self, name: str, columns: NewColumns) -> None:
        self._begin(name)
        write_parquet(self.path / name, columns)

    def _undo(self) -> None:
        if not holds_packets(self.path):
            shutil.rmtree(self.path / layout.RECORDING, ignore_errors=True)
            self._is_recorded = False
        recorded = (layout.RUN, layout.CAPTURES, *_RECORDED) if self._is_recorded else ()
        for name in self._written:
            if Path(name).parts[0] not in recorded:
                (self.path / name).unlink(missing_ok=True)
        with suppress(OSError):
            (self.path / layout.CAPTURES).rmdir()


def is_complete(path: Path) -> bool:
    """Return whether what is on the disk is a complete run."""
    mark = read_mark(path)
    return mark is not None and mark.complete


def unanalysed_below(folder: Path) -> Iterator[Path]:
    """Find measurements that were recorded, are not analysed, and that no process works on."""
    for inner, _, _ in os.walk(folder):
        path = Path(inner)
        # What a damaged run.json says of its packets is for `tailscope runs list` to tell.
        with suppress(RunError):
            if holds_packets(path) and not is_complete(path) and not is_owned(path):
                yield path


@contextmanager
def _kept_going(code: str, lack: str, lacks: list[Lack]) -> Iterator[None]:
    """Do what a run can be without: what fails, or is interrupted, is said."""
    try:
        yield
    except KeyboardInterrupt:
        lacks.append(Lack(code, f"{lack}: interrupted"))
    except Exception as error:  # noqa: BLE001 - a defect must not cost a measurement
        lacks.append(Lack(code, f"{lack}: {said(error)}"))


def move_all(
    paths: Sequence[Path], folder: Path, *, move: Callable[[Path, Path], object] = shutil.move
) -> None:
    """Move files into a folder: all of them, or none."""
    with ExitStack() as undo:
        for path in paths:
            move(path, folder / path.name)
            undo.callback(move, folder / path.name, path)
        undo.pop_all()


def check_whole(path: Path, lacks: Sequence[Lack]) -> None:
    """Say what a run lacks that was kept nevertheless."""
    if lacks:
        raise RunUnfinishedError(
            f"{path}: kept, but {'; '.join(map(str, lacks))}",
            code=lacks[0].code,
            hint=f"`tailscope runs finish {path}` completes it",
        )


def refuse_foreign(path: Path, *, resumes: bool = False) -> None:
    """Refuse to write a run where something is that was not left by an unfinished one."""
    refuse_owned(path)
    _refuse_held(path, resumes=resumes)


def _refuse_held(path: Path, *, resumes: bool) -> None:
    """Refuse what a directory holds."""
    # A run begins with its mark, so that is looked for last.
    is_other = path.exists() and not (path.is_dir() and is_vacant(path))
    mark = read_mark(path)
    if mark is not None and mark.complete:
        lacks_page = not is_there(path, layout.REPORT)
        finish = f"`tailscope runs finish {path}` makes its page; or " if lacks_page else ""
        raise RunExistsError(
            f"{path}: already holds a complete run",
            hint=f"{finish}choose another directory or remove it",
        )
    if holds_packets(path) and not resumes:
        raise RunExistsError(
            f"{path}: holds a measurement that was recorded and not analysed",
            code="run-recorded",
            hint=f"`tailscope runs finish {path}` analyses it; or choose another directory",
        )
    if mark is None and is_other:
        raise RunExistsError(
            f"{path}: exists and is not an empty directory",
            hint="choose another directory",
        )


def _unknown(rows: int) -> Column:
    import numpy as np

    return np.ma.MaskedArray(np.zeros(rows, np.uint64), mask=True)


def _checksum(path: Path) -> FileEntry:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    return FileEntry(size_bytes=path.stat().st_size, sha256=digest.hexdigest())


def _rows(columns: Sequence[NDArray[np.uint64]]) -> Iterable[tuple[int, ...]]:
    return zip(*(column.tolist() for column in columns), strict=True)


def _sided(
    sides: Mapping[Side, Sequence[NDArray[np.uint64]]],
) -> Iterable[tuple[str | int, ...]]:
    return ((side, *row) for side, columns in sides.items() for row in _rows(columns))
