"""The figures of a campaign as files."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from typing import TYPE_CHECKING

from tailscope.report.campaign.figures import families
from tailscope.report.campaign.matrix import table_of_runs
from tailscope.report.formats import LOOKS, STYLES
from tailscope.report.picture import table_of
from tailscope.store.atomic import write_text
from tailscope.units import printable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tailscope.report.campaign.figures import Family
    from tailscope.report.campaign.material import CampaignMaterial
    from tailscope.report.formats import Style

RUNS = "runs.csv"
"""All runs of the campaign, a row each."""

_COLUMNS = 3
_LOW = 0.8


def write_families(
    material: CampaignMaterial, folder: Path, formats: Sequence[str], style: str
) -> list[Path]:
    """Write each family as one drawing, a CSV of what it shows, and all runs as CSV."""
    from tailscope.report.drawing import write_grid

    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for family in families(material):
        paths = [folder / f"{family.name}.{kind}" for kind in formats]
        columns, look = laid_out(family, style)
        write_grid(paths, family.pictures, columns=columns, title=title_of(family), style=look)
        table = folder / f"{family.name}.csv"
        write_text(table, _table(family))
        written += [*paths, table]
    write_text(folder / RUNS, table_of_runs(material))
    return [*written, folder / RUNS]


def laid_out(family: Family, style: str = STYLES[0]) -> tuple[int, Style]:
    """Return how many figures of a family stand side by side, and the style for that many."""
    look = LOOKS[style]
    columns = min(_COLUMNS, len(family.pictures))
    if columns > 1:
        # As wide as a page, rather than one of its columns.
        width_in = max(look.width_in, LOOKS["screen"].width_in)
        look = replace(look, width_in=width_in, height_in=look.height_in * _LOW)
    return columns, look


def title_of(family: Family) -> str:
    """The title of a family, and how many of its figures are left out."""
    left = f" ({family.left_out} more left out)" if family.left_out else ""
    return f"{family.title}{left}"


def _table(family: Family) -> str:
    """Return the data of all figures of a family as CSV, with the title of each figure."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for number, picture in enumerate(family.pictures):
        head, *rows = csv.reader(io.StringIO(table_of(picture)))
        if number == 0:
            writer.writerow(["figure", *head])
        writer.writerows([printable(picture.title), *row] for row in rows)
    return text.getvalue()
