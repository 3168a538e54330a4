"""Reading a campaign: which runs it has, and which it lacks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tailscope.exceptions import RunCorruptError
from tailscope.store.files import MOST_CAMPAIGN_BYTES, is_there, read_file
from tailscope.store.layout import CAMPAIGN, is_inside
from tailscope.store.records import base as records
from tailscope.store.records.campaign import CAMPAIGN_FORMAT, CampaignRecord, ExperimentRecord
from tailscope.units import printable, value_label

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from tailscope.store.records.campaign import CellRecord, Variable

DONE = "done"
"""The state of a cell that is whole."""

MISSING = "-"
"""Stands among the values of a variable for cells that have none."""


class CampaignRun(NamedTuple):
    """A run of a campaign, or a cell that has none."""

    name: str
    """Of the run within the campaign, or of the cell."""
    path: Path | None
    """Its directory; None where there is none."""
    cell: str
    unfinished: str | None
    """What became of a cell that is not done, or has no run."""
    values: Mapping[str, str] | None = None
    """What distinguishes the cell, and repeats of it share; None where that was not written."""


class CampaignCell(NamedTuple):
    """A cell of a campaign, as it was left."""

    name: str
    values: Mapping[str, str]
    """For each variable its value, or the label of it."""
    repeat: int
    """Which of the repeats, from 1."""
    state: str
    """``done``, ``partial``, ``failed``, ``waiting``, ``pending`` or ``running``."""
    reason: str | None
    hint: str | None
    """Why it is not done, and what can be done about it."""
    runs: tuple[str, ...]
    """Run directories, within the campaign's."""


@dataclass(frozen=True)
class CampaignContent:
    """What ``campaign.json`` says."""

    path: Path
    """The directory."""
    record: CampaignRecord
    """All of it."""
    cells: tuple[CampaignCell, ...]
    variables: Mapping[str, list[str]]
    """What varies, and the values that cells have, as the experiment orders them; `MISSING` behind
    them where a cell has none."""

    @property
    def name(self) -> str:
        """What it is called; its directory's name where it has none."""
        return self.record.name or self.path.resolve().name

    @property
    def experiment(self) -> ExperimentRecord:
        """What was to be run; empty where that is not said."""
        return self.record.experiment or ExperimentRecord()


def is_campaign(path: Path) -> bool:
    """Whether a directory is a campaign's."""
    return is_there(path, CAMPAIGN)


def read_campaign(path: Path) -> list[CampaignRun]:
    """The runs of a campaign, in their order, and cells without any."""
    return [run for cell in read_record(path).cells for run in _runs_of(path, cell)]


def campaign_content(path: Path) -> CampaignContent:
    """All that ``campaign.json`` says."""
    record = read_record(path)
    cells = tuple(_cell_of(path, cell) for cell in record.cells)
    written = {} if record.experiment is None else record.experiment.vary
    return CampaignContent(path, record, cells, _variables(written, cells))


def read_record(path: Path) -> CampaignRecord:
    """The content of ``campaign.json``."""
    content = read_file(path, CAMPAIGN, most_bytes=MOST_CAMPAIGN_BYTES)
    return records.read_record(content, CampaignRecord, path / CAMPAIGN, newest=CAMPAIGN_FORMAT)


def _variables(
    written: Mapping[str, Variable], cells: Sequence[CampaignCell]
) -> dict[str, list[str]]:
    found = {}
    for name in dict.fromkeys([*written, *(name for cell in cells for name in cell.values)]):
        used = dict.fromkeys(cell.values[name] for cell in cells if name in cell.values)
        listed = [value_label(value) for value in written.get(name) or ()]
        in_order = dict.fromkeys([*(value for value in listed if value in used), *used])
        lacking = [] if all(name in cell.values for cell in cells) else [MISSING]
        if in_order:
            found[name] = list(dict.fromkeys([*in_order, *lacking]))
    return found


def _cell_of(path: Path, cell: CellRecord) -> CampaignCell:
    return CampaignCell(
        cell.name,
        {name: str(value) for name, value in cell.values.items()},
        cell.repeat,
        printable(cell.state),
        cell.reason,
        cell.hint,
        tuple(_inside(path / CAMPAIGN, run) for run in cell.runs),
    )


def _runs_of(path: Path, cell: CellRecord) -> Iterator[CampaignRun]:
    values = {name: str(value) for name, value in cell.values.items()}
    unfinished = ": ".join(filter(None, (cell.state, cell.reason)))
    for run in cell.runs:
        inside = None if cell.state == DONE else unfinished
        yield CampaignRun(run, path / _inside(path / CAMPAIGN, run), cell.name, inside, values)
    if not cell.runs:
        yield CampaignRun(cell.name, None, cell.name, unfinished, values)


def _inside(file: Path, run: str) -> str:
    """The name of a run, which must lie in its campaign."""
    if not is_inside(run):
        raise RunCorruptError(
            f"{file}: runs: expected a folder within the campaign, got {run!r}",
            code="run-outside-campaign",
        )
    return run
