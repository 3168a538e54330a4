"""Carrying out an experiment: cell by cell, each kept as soon as it is done."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import tailscope
from tailscope.exceptions import (
    OtherKernelError,
    RunCorruptError,
    RunError,
    RunExistsError,
    TailscopeError,
)
from tailscope.host.fingerprint import fingerprint
from tailscope.store.atomic import write_text
from tailscope.store.campaign import FORMAT
from tailscope.store.layout import CAMPAIGN
from tailscope.store.reader import read_mark
from tailscope.store.run import is_emulated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tailscope.experiment.matrix import Cell
    from tailscope.experiment.measured import Measured
    from tailscope.experiment.spec import Experiment

__all__ = ["FINISHED", "Campaign", "CellRecord"]

FINISHED = ("done",)
"""States of cells that are not run again."""

_LOCK = ".lock"
_FIGURES = ("p50", "p99", "p999", "p9999", "p99999", "max")


@dataclass
class CellRecord:
    """What became of a cell.

    Attributes
    ----------
    name : str
    values : Mapping of str to str
    repeat : int
    state : str
        ``pending``, ``running``, ``done``, ``partial``, ``failed``, or ``waiting`` for another
        kernel to be booted.
    reason, hint : str or None
        Why it is not done, and what can be done about it.
    runs : list of str
        Run directories, within the campaign's.
    figures : list of dict
        The most important ones of each run.
    started_unix_ns : int or None
    lasted_s : float or None
    """

    name: str
    values: Mapping[str, str]
    repeat: int
    state: str = "pending"
    reason: str | None = None
    hint: str | None = None
    runs: list[str] = field(default_factory=list)
    figures: list[dict[str, Any]] = field(default_factory=list)
    started_unix_ns: int | None = None
    lasted_s: float | None = None


class Campaign:
    """An experiment in a directory, with ``campaign.json``.

    Parameters
    ----------
    path : Path
        The directory.
    experiment : Experiment
    cells : sequence of Cell
        All of them, in their order.
    """

    def __init__(self, path: Path, experiment: Experiment, cells: Sequence[Cell]) -> None:
        self.path, self.cells = path, list(cells)
        self._experiment = experiment
        self._started_unix_ns = time.time_ns()
        self.records = {
            cell.name: CellRecord(cell.name, cell.values, cell.repeat) for cell in cells
        }

    def check(self, *, resume: bool) -> None:
        """See whether the directory can be opened; nothing is changed.

        Raises
        ------
        RunExistsError
            If it holds anything and is not to be resumed.
        RunError
            If it is to be resumed, and is no campaign.
        """
        if not resume and self.path.exists() and any(self.path.iterdir()):
            raise RunExistsError(
                f"{self.path}: exists and is not empty",
                hint="--resume goes on with a campaign; or choose another --out",
            )
        if resume and not (self.path / CAMPAIGN).exists():
            raise RunError(f"{self.path}: no {CAMPAIGN} in it: there is nothing to resume")

    @contextmanager
    def opened(self, *, resume: bool) -> Iterator[None]:
        """Have the directory to ourselves within a block.

        Raises
        ------
        RunExistsError
            If another process has it, or it holds anything and is not to be resumed.
        RunError
            If it is to be resumed, and is not of this experiment.
        """
        self.check(resume=resume)
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self.path / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise RunExistsError(f"{self.path}: another process works on it") from None
            if resume:
                self._read()
            self._write()
            yield
        finally:
            os.close(lock)

    @property
    def left(self) -> list[Cell]:
        """Cells that are not finished."""
        return [cell for cell in self.cells if self.records[cell.name].state not in FINISHED]

    def run_cell(
        self, cell: Cell, measure: Callable[[Cell, Path], Sequence[Measured]]
    ) -> CellRecord:
        """Run a cell; what goes wrong is written down, and the next one may follow.

        Parameters
        ----------
        cell : Cell
        measure : callable
            Carries out a cell's plan, into a directory.

        Raises
        ------
        KeyboardInterrupt
            If it was interrupted; what was measured is kept as a partial result.
        """
        record = self.records[cell.name] = CellRecord(
            cell.name, cell.values, cell.repeat, "running"
        )
        record.started_unix_ns = time.time_ns()
        self._write()
        self._clear(cell)
        interrupted = False
        try:
            found = measure(cell, self.path / cell.name)
        except OtherKernelError as error:
            record.state, record.reason, record.hint = "waiting", str(error), error.hint
        except (TailscopeError, OSError) as error:
            record.state, record.reason = "failed", str(error)
            record.hint = getattr(error, "hint", None)
        except KeyboardInterrupt:
            record.state, record.reason = "pending", "interrupted"
            interrupted = True
        else:
            interrupted = any(measured.interrupted for measured in found)
            self._keep(record, found)
        record.lasted_s = round((time.time_ns() - record.started_unix_ns) / 1e9, 3)
        self._write()
        if interrupted:
            raise KeyboardInterrupt
        return record

    def content(self) -> dict[str, Any]:
        """What ``campaign.json`` says."""
        return {
            "format": FORMAT,
            "name": self._experiment.name,
            "about": self._experiment.about,
            "complete": not self.left,
            "tailscope_version": tailscope.__version__,
            "started_unix_ns": self._started_unix_ns,
            "host": fingerprint(),
            "experiment": self._plan(),
            "cells": [asdict(self.records[cell.name]) for cell in self.cells],
        }

    def _plan(self) -> dict[str, Any]:
        plan = self._experiment.model_dump(exclude_none=True, exclude={"profiles", "about"})
        assert isinstance(plan, dict)
        return plan

    def _keep(self, record: CellRecord, found: Sequence[Measured]) -> None:
        partial = [reason for measured in found for reason in measured.info["partial"]]
        record.state = "partial" if partial else "done"
        record.reason = "; ".join(partial) or None
        for measured in found:
            assert measured.out is not None, "cells are written"
            record.runs.append(str(measured.out.relative_to(self.path)))
            record.figures.append(_figures(measured))

    def _clear(self, cell: Cell) -> None:
        """Take away what an earlier try left, which was ours."""
        folder = self.path / cell.name
        if folder.exists():
            shutil.rmtree(folder)

    def _write(self) -> None:
        text = json.dumps(self.content(), indent=2, allow_nan=False)
        write_text(self.path / CAMPAIGN, text + "\n")

    def _read(self) -> None:
        """Take up what an earlier process wrote down."""
        path = self.path / CAMPAIGN
        try:
            content = json.loads(path.read_bytes())
            records = [CellRecord(**each) for each in content["cells"]]
            plan, format_ = content["experiment"], content["format"]
        except (ValueError, KeyError, TypeError) as error:
            raise RunCorruptError(f"{path}: not as it was written: {error!r}") from None
        if format_ != FORMAT:
            raise RunError(f"{path}: format: expected {FORMAT}, got {format_!r}")
        ours = json.loads(json.dumps(self._plan()))
        if plan != ours:
            differs = [name for name in {**plan, **ours} if plan.get(name) != ours.get(name)]
            raise RunError(
                f"{self.path}: it is of another experiment: {', '.join(sorted(differs))} differ",
                hint="resume it with the file and the profile it was started with,"
                " or choose another --out",
            )
        self._started_unix_ns = content["started_unix_ns"]
        for record in records:
            if record.name in self.records:
                self.records[record.name] = self._taken_up(record)

    def _taken_up(self, record: CellRecord) -> CellRecord:
        """A finished cell, if its runs are there; else one that is to be run."""
        if record.state in FINISHED:
            marks = [read_mark(self.path / run) for run in record.runs]
            if marks and all(mark and mark.get("complete") for mark in marks):
                return record
        return CellRecord(record.name, record.values, record.repeat, reason=record.reason)


def _figures(measured: Measured) -> dict[str, Any]:
    """What the line of a cell says."""
    return {
        **{f"latency_ns_{name}": measured.figures[f"latency_ns_{name}"] for name in _FIGURES},
        **{
            f"latency_ns_{name}_supported": measured.figures[f"latency_ns_{name}_supported"]
            for name in _FIGURES[:-1]
        },
        **{name: measured.figures[name] for name in ("sent", "count", "lost", "unsent")},
        "representative": not is_emulated(measured.info),
    }
