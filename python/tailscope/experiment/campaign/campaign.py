"""Carrying out an experiment: cell by cell, each kept as soon as it is done."""

from __future__ import annotations

import secrets
import shutil
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import convert
from msgspec.structs import replace

import tailscope
from tailscope.exceptions import (
    OtherKernelError,
    RunError,
    RunExistsError,
    TailscopeError,
    said,
)
from tailscope.paths import hint_of
from tailscope.store.atomic import write_text
from tailscope.store.campaign import read_record
from tailscope.store.layout import CAMPAIGN, RECORDED
from tailscope.store.machine import this_host
from tailscope.store.owner import is_vacant, owned
from tailscope.store.reader import read_mark
from tailscope.store.records.base import as_content, encode
from tailscope.store.records.campaign import (
    BootRecord,
    CampaignRecord,
    CellRecord,
    ExperimentRecord,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tailscope.experiment.campaign.cell import Cell
    from tailscope.experiment.campaign.spec import Experiment
    from tailscope.experiment.run.measured import Measured
    from tailscope.host.boot_line import BootLine

FINISHED = ("done",)
"""States of cells that are not run again."""


class Campaign:
    """An experiment in a directory, with ``campaign.json``."""

    def __init__(self, path: Path, experiment: Experiment, cells: Sequence[Cell]) -> None:
        self.path, self.cells = path, list(cells)
        self._experiment = experiment
        self._started_unix_ns = time.time_ns()
        self.records = {cell.name: _cell_record(cell) for cell in cells}
        self.boots: list[BootRecord] = []
        self._boot_began_s = 0.0

    def check(self, *, resume: bool) -> None:
        """See whether the directory can be opened; nothing is changed."""
        if not resume and self.path.exists() and not is_vacant(self.path):
            raise RunExistsError(
                f"{self.path}: exists and is not empty",
                hint="--resume continues a campaign; or choose another --out",
            )
        if resume and not (self.path / CAMPAIGN).exists():
            raise RunError(
                f"{self.path}: no {CAMPAIGN} in it: there is nothing to resume",
                code="nothing-to-resume",
            )

    @contextmanager
    def opened(self, *, resume: bool) -> Iterator[None]:
        """Have the directory to ourselves within a block."""
        self.check(resume=resume)
        with owned(self.path):
            # What was there before it was ours may have changed.
            self.check(resume=resume)
            if resume:
                self._read()
            self._write()
            yield

    @property
    def left(self) -> list[Cell]:
        """Cells that are not finished."""
        return [cell for cell in self.cells if self.records[cell.name].state not in FINISHED]

    def run_cell(
        self, cell: Cell, measure: Callable[[Cell, Path], Sequence[Measured]]
    ) -> CellRecord:
        """Run a cell; what goes wrong is written down, and the next one may follow."""
        started_unix_ns, started_s = time.time_ns(), time.monotonic()
        running = _cell_record(cell, state="running", started_unix_ns=started_unix_ns)
        self.records[cell.name] = running
        self._write()
        self._clear(cell)
        interrupted = False
        try:
            found = measure(cell, self.path / cell.name)
        except OtherKernelError as error:
            record = replace(running, state="waiting", reason=str(error), hint=error.hint)
        except (TailscopeError, OSError) as error:
            record = replace(running, state="failed", reason=said(error), hint=hint_of(error))
        except KeyboardInterrupt:
            record = replace(running, state="pending", reason="interrupted")
            interrupted = True
        else:
            interrupted = any(measured.interrupted for measured in found)
            record = self._kept(running, found)
        lasted_s = round(time.monotonic() - started_s, 3)
        record = self.records[cell.name] = replace(record, lasted_s=lasted_s)
        self._write()
        if interrupted:
            raise KeyboardInterrupt
        return record

    def begin_boot(self, line: BootLine) -> None:
        """Write down that the machine of the device is being booted."""
        self._boot_began_s = time.monotonic()
        kernel, parameters = line.kernel, " ".join(line.parameters)
        self.boots.append(
            BootRecord(kernel=kernel, parameters=parameters, started_unix_ns=time.time_ns())
        )
        self._write()

    def end_boot(self) -> None:
        """Write down that it is back."""
        lasted_s = round(time.monotonic() - self._boot_began_s, 3)
        self.boots[-1] = replace(self.boots[-1], lasted_s=lasted_s)
        self._write()

    def content(self) -> CampaignRecord:
        """Return the content of ``campaign.json``."""
        return CampaignRecord(
            name=self._experiment.name,
            about=self._experiment.about,
            complete=not self.left,
            tailscope_version=str(tailscope.__version__),
            started_unix_ns=self._started_unix_ns,
            host=this_host(),
            experiment=self._plan(),
            boots=tuple(self.boots),
            cells=tuple(self.records[cell.name] for cell in self.cells),
        )

    def _plan(self) -> ExperimentRecord:
        ours = self._experiment
        plan = {
            "name": ours.name,
            "fixed": ours.fixed.given(),
            "vary": {name: _values(each) for name, each in ours.vary.items()},
            "exclude": ours.exclude,
            "repeats": ours.repeats,
            "service_levels": ours.service_levels,
            "order": ours.order,
            "seed": ours.seed,
            **{name: section.record() for name, section in ours.sections.items()},
        }
        return convert(plan, ExperimentRecord)

    def _kept(self, record: CellRecord, found: Sequence[Measured]) -> CellRecord:
        partial = [reason for measured in found for reason in measured.info.partial]
        lacks = [lack.what for measured in found for lack in measured.lacks]
        folders = [measured.out for measured in found if measured.out is not None]
        assert len(folders) == len(found), "cells are written"
        return replace(
            record,
            state="partial" if partial else "done",
            reason="; ".join([*partial, *lacks]) or None,
            runs=tuple(str(folder.relative_to(self.path)) for folder in folders),
            figures=tuple(each.most_important for each in found),
        )

    def _clear(self, cell: Cell) -> None:
        """Take away what an earlier try left, which was ours; a measurement goes aside."""
        folder = self.path / cell.name
        if any(folder.rglob(RECORDED)):
            folder.rename(folder.with_name(f"{folder.name}-kept-{secrets.token_hex(2)}"))
        elif folder.exists():
            shutil.rmtree(folder)

    def _write(self) -> None:
        write_text(self.path / CAMPAIGN, encode(self.content()))

    def _read(self) -> None:
        """Take up what an earlier process wrote down."""
        content = read_record(self.path)
        plan, ours = (
            {} if each is None else as_content(each) for each in (content.experiment, self._plan())
        )
        if plan != ours:
            differs = [name for name in {**plan, **ours} if plan.get(name) != ours.get(name)]
            raise RunError(
                f"{self.path}: belongs to another experiment: {', '.join(sorted(differs))} differ",
                code="other-experiment",
                hint="resume it with the file and the profile it was started with,"
                " or choose another --out",
            )
        self._started_unix_ns = content.started_unix_ns or self._started_unix_ns
        self.boots = list(content.boots)
        for record in content.cells:
            if record.name in self.records:
                self.records[record.name] = self._taken_up(record)

    def _taken_up(self, record: CellRecord) -> CellRecord:
        """A finished cell, if its runs are there; else one that is to be run."""
        if record.state in FINISHED:
            marks = [read_mark(self.path / run) for run in record.runs]
            if marks and all(mark is not None and mark.complete for mark in marks):
                return record
        return CellRecord(
            name=record.name,
            values=record.values,
            repeat=record.repeat,
            state="pending",
            reason=record.reason,
            runs=(),
        )


def _values(values: object) -> object:
    """The values of a variable; of labels, the fields that are set."""
    if not isinstance(values, dict):
        return values
    return {label: fields.given() for label, fields in values.items()}


def _cell_record(
    cell: Cell, *, state: str = "pending", started_unix_ns: int | None = None
) -> CellRecord:
    return CellRecord(
        name=cell.name,
        values={**cell.values},
        repeat=cell.repeat,
        state=state,
        runs=(),
        started_unix_ns=started_unix_ns,
    )
