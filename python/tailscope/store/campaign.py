"""Reading a campaign: which runs it has, and which it lacks."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

from tailscope.exceptions import RunCorruptError, RunError
from tailscope.store.layout import CAMPAIGN
from tailscope.units import printable, value_label

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = [
    "DONE",
    "FORMAT",
    "MISSING",
    "CampaignCell",
    "CampaignContent",
    "CampaignRun",
    "campaign_content",
    "is_campaign",
    "read_campaign",
]

FORMAT = 1
"""Of ``campaign.json``."""

DONE = "done"
"""The state of a cell that is whole."""

MISSING = "-"
"""Stands among the values of a variable for cells that have none."""

_OPTIONAL_TEXT = (str, type(None))
_OPTIONAL_OBJECT = (dict, type(None))
_KINDS = {dict: "an object", list: "a list", str: "text", int: "a whole number", float: "a number"}


class CampaignRun(NamedTuple):
    """A run of a campaign, or a cell that has none.

    Attributes
    ----------
    name : str
        Of the run within the campaign, or of the cell.
    path : Path or None
        Its directory; None where there is none.
    cell : str
    unfinished : str or None
        What became of a cell that is not done, or has no run.
    values : Mapping of str to str, or None
        What distinguishes the cell, and repeats of it share; None where that was not written.
    """

    name: str
    path: Path | None
    cell: str
    unfinished: str | None
    values: Mapping[str, str] | None = None


class CampaignCell(NamedTuple):
    """A cell of a campaign, as it was left.

    Attributes
    ----------
    name : str
    values : Mapping of str to str
        For each variable its value, or the label of it.
    repeat : int
        Which of the repeats, from 1.
    state : str
        ``done``, ``partial``, ``failed``, ``waiting``, ``pending`` or ``running``.
    reason, hint : str or None
        Why it is not done, and what can be done about it.
    runs : tuple of str
        Run directories, within the campaign's.
    """

    name: str
    values: Mapping[str, str]
    repeat: int
    state: str
    reason: str | None
    hint: str | None
    runs: tuple[str, ...]


@dataclass(frozen=True)
class CampaignContent:
    """What ``campaign.json`` says.

    Attributes
    ----------
    path : Path
        The directory.
    record : Mapping
        All of it.
    cells : tuple of CampaignCell
    variables : Mapping of str to list of str
        What varies, and the values that cells have, as the experiment orders them; `MISSING`
        behind them where a cell has none.
    """

    path: Path
    record: Mapping[str, Any]
    cells: tuple[CampaignCell, ...]
    variables: Mapping[str, list[str]]

    @property
    def name(self) -> str:
        """What it is called; its directory's name where it has none."""
        return str(self.record.get("name") or self.path.resolve().name)

    @property
    def experiment(self) -> Mapping[str, Any]:
        """What was to be run; empty where that is not said."""
        found: Mapping[str, Any] = self.record.get("experiment") or {}
        return found


def is_campaign(path: Path) -> bool:
    """Whether a directory is a campaign's."""
    return (path / CAMPAIGN).is_file()


def read_campaign(path: Path) -> list[CampaignRun]:
    """The runs of a campaign, in their order, and cells without any.

    Raises
    ------
    RunError
        If another version has written it.
    RunCorruptError
        If ``campaign.json`` is not as it was written.
    """
    with _as_written(path / CAMPAIGN) as record:
        return [run for cell in record["cells"] for run in _runs_of(path, cell)]


def campaign_content(path: Path) -> CampaignContent:
    """All that ``campaign.json`` says.

    Raises
    ------
    RunError
        If another version has written it.
    RunCorruptError
        If it is not as it was written.
    """
    with _as_written(path / CAMPAIGN) as record:
        _check(path / CAMPAIGN, record)
        cells = tuple(_cell_of(path, cell) for cell in record["cells"])
        written = (record.get("experiment") or {}).get("vary") or {}
        return CampaignContent(path, record, cells, _variables(written, cells))


@contextmanager
def _as_written(file: Path) -> Iterator[dict[str, Any]]:
    """The content of a file, whose shape the block may take for granted."""
    try:
        record = json.loads(file.read_bytes(), parse_constant=_no_number)
        if record["format"] != FORMAT:
            raise RunError(f"{file}: format: expected {FORMAT}, got {record['format']!r}")
        yield record
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunCorruptError(f"{file}: not as it was written: {error!r}") from None


def _no_number(text: str) -> None:
    raise ValueError(f"expected a number, got {text}")


def _check(file: Path, record: dict[str, Any]) -> None:
    """See that what will be read is of the kind that was written."""

    def expect(where: str, value: object, *kinds: type) -> None:
        if isinstance(value, bool) or not isinstance(value, kinds):
            known = " or ".join(_KINDS.get(kind, "null") for kind in kinds)
            raise RunCorruptError(
                f"{file}: not as it was written: {where}: expected {known},"
                f" got {printable(repr(value))}"
            )

    for name in ("name", "about", "tailscope_version"):
        expect(name, record.get(name), *_OPTIONAL_TEXT)
    for name in ("host", "experiment"):
        expect(name, record.get(name), *_OPTIONAL_OBJECT)
    experiment = record.get("experiment") or {}
    for name in ("fixed", "vary"):
        expect(f"experiment.{name}", experiment.get(name), *_OPTIONAL_OBJECT)
    for name, values in (experiment.get("vary") or {}).items():
        expect(f"experiment.vary.{name}", values, list, dict)
        if isinstance(values, dict):
            for value, fields in values.items():
                expect(f"experiment.vary.{name}.{value}", fields, *_OPTIONAL_OBJECT)
    expect("cells", record["cells"], list)
    for number, cell in enumerate(record["cells"]):
        where = f"cells[{number}]"
        expect(where, cell, dict)
        for name in ("name", "state"):
            expect(f"{where}.{name}", cell[name], str)
        for name in ("reason", "hint"):
            expect(f"{where}.{name}", cell.get(name), *_OPTIONAL_TEXT)
        expect(f"{where}.values", cell.get("values", {}), dict)
        expect(f"{where}.repeat", cell.get("repeat", 1), int)
        expect(f"{where}.lasted_s", cell.get("lasted_s"), int, float, type(None))
        expect(f"{where}.runs", cell["runs"], list)
        for run in cell["runs"]:
            expect(f"{where}.runs", run, str)


def _variables(written: Mapping[str, Any], cells: Sequence[CampaignCell]) -> dict[str, list[str]]:
    found = {}
    for name in dict.fromkeys([*written, *(name for cell in cells for name in cell.values)]):
        used = dict.fromkeys(cell.values[name] for cell in cells if name in cell.values)
        listed = [value_label(value) for value in written.get(name) or ()]
        in_order = dict.fromkeys([*(value for value in listed if value in used), *used])
        lacking = [] if all(name in cell.values for cell in cells) else [MISSING]
        if in_order:
            found[name] = list(dict.fromkeys([*in_order, *lacking]))
    return found


def _cell_of(path: Path, cell: dict[str, Any]) -> CampaignCell:
    return CampaignCell(
        cell["name"],
        {name: str(value) for name, value in cell.get("values", {}).items()},
        cell.get("repeat", 1),
        printable(cell["state"]),
        cell["reason"],
        cell.get("hint"),
        tuple(_inside(path / CAMPAIGN, run) for run in cell["runs"]),
    )


def _runs_of(path: Path, cell: dict[str, Any]) -> Iterator[CampaignRun]:
    name, runs, values = str(cell["name"]), cell["runs"], cell.get("values")
    if values is not None and not isinstance(values, dict):
        raise TypeError(f"values: expected an object, got {type(values).__name__}")
    unfinished = ": ".join(filter(None, (cell["state"], cell["reason"])))
    for run in runs:
        inside = None if cell["state"] == DONE else unfinished
        yield CampaignRun(run, path / _inside(path / CAMPAIGN, run), name, inside, values)
    if not runs:
        yield CampaignRun(name, None, name, unfinished, values)


def _inside(file: Path, run: str) -> str:
    """The name of a run, which must lie in its campaign."""
    os.fsencode(run)
    parts = PurePath(run)
    if parts.is_absolute() or ".." in parts.parts or not parts.parts:
        raise RunCorruptError(f"{file}: runs: expected a folder within the campaign, got {run!r}")
    return run
