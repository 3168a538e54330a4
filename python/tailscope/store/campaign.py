"""Reading a campaign: which runs it has, and which it lacks."""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

from tailscope.exceptions import RunCorruptError, RunError
from tailscope.store.layout import CAMPAIGN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["FORMAT", "CampaignRun", "is_campaign", "read_campaign"]

FORMAT = 1
"""Of ``campaign.json``."""

_DONE = "done"


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
    file = path / CAMPAIGN
    try:
        content = json.loads(file.read_bytes())
        if content["format"] != FORMAT:
            raise RunError(f"{file}: format: expected {FORMAT}, got {content['format']!r}")
        return [run for cell in content["cells"] for run in _runs_of(path, cell)]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunCorruptError(f"{file}: not as it was written: {error!r}") from None


def _runs_of(path: Path, cell: dict[str, Any]) -> Iterator[CampaignRun]:
    name, runs, values = str(cell["name"]), cell["runs"], cell.get("values")
    if values is not None and not isinstance(values, dict):
        raise TypeError(f"values: expected an object, got {type(values).__name__}")
    unfinished = ": ".join(filter(None, (cell["state"], cell["reason"])))
    for run in runs:
        inside = None if cell["state"] == _DONE else unfinished
        yield CampaignRun(run, path / _inside(path / CAMPAIGN, run), name, inside, values)
    if not runs:
        yield CampaignRun(name, None, name, unfinished, values)


def _inside(file: Path, run: str) -> str:
    """The name of a run, which must lie in its campaign."""
    parts = PurePath(run)
    if parts.is_absolute() or ".." in parts.parts or not parts.parts:
        raise RunCorruptError(f"{file}: runs: expected a folder within the campaign, got {run!r}")
    return run
