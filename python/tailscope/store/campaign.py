"""Reading a campaign: which runs it has, and which it lacks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from tailscope.exceptions import RunCorruptError
from tailscope.store.layout import CAMPAIGN

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["CampaignRun", "is_campaign", "read_campaign"]


class CampaignRun(NamedTuple):
    """A run of a campaign, or a cell that has none.

    Attributes
    ----------
    name : str
        Of the cell, or the run within the campaign.
    path : Path or None
        Its directory; None where there is none.
    reason : str or None
        Why there is none.
    """

    name: str
    path: Path | None
    reason: str | None


def is_campaign(path: Path) -> bool:
    """Whether a directory is a campaign's."""
    return (path / CAMPAIGN).is_file()


def read_campaign(path: Path) -> list[CampaignRun]:
    """The runs of a campaign, in their order, and cells without any.

    Raises
    ------
    RunCorruptError
        If ``campaign.json`` is not as it was written.
    """
    file = path / CAMPAIGN
    try:
        found = []
        for cell in json.loads(file.read_bytes())["cells"]:
            found += [CampaignRun(str(run), _inside(path, run), None) for run in cell["runs"]]
            if not cell["runs"]:
                reason = ": ".join(filter(None, (cell["state"], cell["reason"])))
                found.append(CampaignRun(str(cell["name"]), None, reason))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunCorruptError(f"{file}: not as it was written: {error!r}") from None
    return found


def _inside(path: Path, name: str) -> Path:
    found = path / name
    if not found.resolve().is_relative_to(path.resolve()):
        raise ValueError(f"expected a run within the campaign, got {name!r}")
    return found
