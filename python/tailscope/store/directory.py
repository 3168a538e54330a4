"""A run is a directory: writing it.

``run.json`` is written twice: first as a mark that a run is being written, last with the checksums
of all other files. A run is complete when ``run.json`` says so.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import shutil
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tailscope.analysis import Analysis, Quantile, Series
from tailscope.exceptions import RunExistsError
from tailscope.store import layout
from tailscope.store.atomic import TEMPORARY_SUFFIX, replacing, write_text
from tailscope.store.latency import LatencyFile
from tailscope.store.reader import read_mark
from tailscope.store.run import Run, check_conservation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tailscope.analysis import Worst

    Explain = Callable[[Path, Worst], tuple[Mapping[str, Any], Mapping[str, Any]]]

__all__ = ["RunWriter", "refuse_foreign", "write_noise"]


def write_noise(
    path: Path, record: Mapping[str, Any], noise: Mapping[str, Any], samples: Mapping[str, Any]
) -> None:
    """Write what was seen of CPUs without packets: a folder of its own.

    Parameters
    ----------
    path : Path
        Made, with access for its owner only.
    record : Mapping
        Of ``noise.json``.
    noise, samples : Mapping
        Of ``noise.parquet`` and ``interrupts.parquet``.
    """
    path.mkdir(mode=0o700, parents=True)
    try:
        _write_parquet(path / layout.NOISE, noise)
        _write_parquet(path / layout.INTERRUPTS, samples)
        write_text(path / layout.WATCHED, json.dumps(record, indent=2, allow_nan=False) + "\n")
    except BaseException:
        shutil.rmtree(path)
        raise


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
        self._latency: LatencyFile | None = None
        self._explain: Explain | None = None

    def __enter__(self) -> Self:
        refuse_foreign(self.path)
        self._made = not self.path.exists()
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for leftover in self.path.glob(f".*{TEMPORARY_SUFFIX}"):
            leftover.unlink()
        try:
            self._write_json(layout.RUN, {"format": layout.FORMAT, "complete": False})
            file = self._stack.enter_context(replacing(self.path / layout.LATENCY))
            self._latency = self._stack.enter_context(LatencyFile(file))
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

    def sink(self, *columns: Any) -> None:
        """Take matches for ``latency.parquet``: the `sink` of `tailscope.analyze`."""
        assert self._latency is not None, "the writer is a context"
        self._latency.write(Series(*columns))

    def add_noise(self, noise: Mapping[str, Any]) -> None:
        """Write ``noise.parquet``: what kept a core from running, on the clock of the packets.

        Parameters
        ----------
        noise : Mapping of str to array, each of shape (n_events,)
            As `tailscope.noise.table.columns` makes them.
        """
        self._write_table(layout.NOISE, noise)

    def add_interrupts(self, samples: Mapping[str, Any]) -> None:
        """Write ``interrupts.parquet``: counters of interrupts over time.

        Parameters
        ----------
        samples : Mapping of str to sequence
            As `tailscope.noise.counters.columns` makes them.
        """
        self._write_table(layout.INTERRUPTS, samples)

    def add_power(self, power: Mapping[str, Any]) -> None:
        """Write ``power.parquet``: power over time.

        Parameters
        ----------
        power : Mapping of str to array or sequence
            As `tailscope.experiment.energy.RunEnergy.columns` makes them.
        """
        self._write_table(layout.POWER, power)

    def explain_by(self, explain: Explain) -> None:
        """Have the tail, and the worst packets, explained when the run is finished.

        Parameters
        ----------
        explain : callable
            Receives where ``latency.parquet`` is, and the worst packets; returns the content of
            ``explanation.json``, and columns for ``worst.parquet``.
        """
        self._explain = explain

    def add_captures(self, folder: Path) -> None:
        """Move captures into the run.

        Parameters
        ----------
        folder : Path
            What is in it becomes ``captures/``.
        """
        (self.path / layout.CAPTURES).mkdir(exist_ok=True)
        for path in sorted(folder.iterdir()):
            name = f"{layout.CAPTURES}/{path.name}"
            shutil.move(path, self.path / name)
            self._written.append(name)

    def finish(
        self,
        analysis: Analysis,
        *,
        info: Mapping[str, Any],
        bucket_ns: int,
        report: Callable[[Run], str],
        figures: Mapping[str, Any] | None = None,
    ) -> None:
        """Write everything else, and say that the run is complete.

        Parameters
        ----------
        analysis : Analysis
        info : Mapping
            Plan, inputs, clock, floor, host and versions for ``run.json``; ``partial`` holds the
            reasons why a measurement is a partial one.
        bucket_ns : int
            Bucket of the histograms in ns.
        report : callable
            Makes the page ``report.html`` of a run.
        figures : Mapping, optional
            Figures beside those of the analysis.
        """
        self._stack.close()
        self._written.append(layout.LATENCY)
        run = Run.of(
            analysis,
            label=self.path.resolve().name,
            info=info,
            bucket_ns=bucket_ns,
            path=self.path,
        )
        if self._explain is not None:
            explanation, columns = self._explain(self.path / layout.LATENCY, run.worst)
            run = replace(run, explanation=explanation, worst_explained=columns)
        check_conservation(run.summary, "summary")
        self._write_json(
            layout.SUMMARY, {**run.summary, **(figures or {}), "warnings": run.warnings}
        )
        self._write_csv(layout.PERCENTILES, Quantile._fields, run.percentiles)
        self._write_csv(layout.HISTOGRAM, ("bucket_ns", "count"), _rows(run.latency))
        self._write_csv(layout.GAPS, ("side", "bucket_ns", "count"), _sided(run.gaps))
        self._write_csv(layout.RATE, ("side", "start_ns", "count"), _sided(run.rate))
        self._write(layout.HLOG, analysis.hlog())
        self._write_worst(run)
        if run.explanation is not None:
            self._write_json(layout.EXPLANATION, run.explanation)
        self._write(layout.REPORT, report(run))
        # A page is no source of anything: it may be drawn again when there is more to say.
        lasting = [name for name in self._written if name not in (layout.RUN, layout.REPORT)]
        files = {name: _checksum(self.path / name) for name in lasting}
        self._write_json(
            layout.RUN,
            {
                "format": layout.FORMAT,
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

    def _write_worst(self, run: Run) -> None:
        self._write_table(layout.WORST, {**run.worst._asdict(), **run.worst_explained})

    def _write_table(self, name: str, columns: Mapping[str, Any]) -> None:
        _write_parquet(self.path / name, columns)
        self._written.append(name)

    def _undo(self) -> None:
        for name in self._written:
            (self.path / name).unlink(missing_ok=True)
        with suppress(OSError):
            (self.path / layout.CAPTURES).rmdir()
        if self._made:
            with suppress(OSError):
                self.path.rmdir()


def _write_parquet(path: Path, columns: Mapping[str, Any]) -> None:
    import pyarrow.parquet as pq

    from tailscope.arrow import table

    with replacing(path) as file:
        pq.write_table(table(columns), file, compression="zstd")


def refuse_foreign(path: Path) -> None:
    """Refuse to write a run where something is that was not left by an unfinished one.

    Parameters
    ----------
    path : Path
        The directory of the run.

    Raises
    ------
    RunExistsError
        If it holds a complete run or anything else.
    """
    mark = read_mark(path)
    if mark is not None and mark.get("complete"):
        raise RunExistsError(
            f"{path}: holds a complete run already", hint="choose another directory or remove it"
        )
    if mark is None and path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise RunExistsError(
            f"{path}: exists and is no empty directory", hint="choose another directory"
        )


def _checksum(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {
            "size_bytes": path.stat().st_size,
            "sha256": hashlib.file_digest(file, "sha256").hexdigest(),
        }


def _rows(columns: Sequence[Any]) -> Iterable[tuple[Any, ...]]:
    return zip(*(column.tolist() for column in columns), strict=True)


def _sided(sides: Mapping[Any, Sequence[Any]]) -> Iterable[tuple[Any, ...]]:
    return ((side, *row) for side, columns in sides.items() for row in _rows(columns))
