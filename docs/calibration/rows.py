"""Tables 4 and 5 of containers2024, theirs and ours, row by row, and Figure 18.

They stand on the page of that experiment, and are made of the same data as the calibration.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from docs.reference.markdown import table

from tailscope.extra.tail.models.model import Settings
from tailscope.extra.tail.source import LatencySource
from tailscope.extra.tail.table import table_of
from tailscope.report.drawing import grid_svg

if TYPE_CHECKING:
    from tailscope.extra.tail.table import TailTable

PAGE = Path(__file__).parents[1] / "extra" / "tail" / "containers2024.md"
BEGIN, END = "<!-- rows: made by `make calibration` -->", "<!-- end of rows -->"
FIGURE = "tails-shapes"
METADATA = re.compile(r"\s*<metadata>.*?</metadata>", re.DOTALL)
FOLDERS = {4: "containers2024-scenario2", 5: "containers2024-rates"}


class Printed(NamedTuple):
    """A row as the paper has it."""

    table: int
    setting: str
    exceedances: str
    bounded: str


PRINTED = (
    Printed(4, "bare-metal/rt-optimized", "0.83", "58.3 %"),
    Printed(4, "bare-metal/vanilla-non-optimized", "1.33", "100.0 %"),
    Printed(4, "vm/rt-optimized", "1.25", "50.0 %"),
    Printed(4, "vm/vanilla-non-optimized", "2.58", "66.7 %"),
    Printed(4, "container/rt/optimized", "1.42", "83.3 %"),
    Printed(4, "container/rt/non-optimized", "7.67", "100.0 %"),
    Printed(4, "container/nohz/optimized", "1.25", "75.0 %"),
    Printed(4, "container/nohz/non-optimized", "1.67", "83.3 %"),
    Printed(4, "container/vanilla/optimized", "2.92", "75.0 %"),
    Printed(4, "container/vanilla/non-optimized", "2.29", "71.4 %"),
    Printed(4, "kernel/rt-optimized", "2.50", "33.3 %"),
    Printed(4, "kernel/vanilla-non-optimized", "22.73", "63.6 %"),
    Printed(5, "bare-metal/rt-optimized", "3.30", "60.0 %"),
    Printed(5, "bare-metal/vanilla-non-optimized", "0.33", "16.7 %"),
    Printed(5, "vm/rt-optimized", "4.00", "58.3 %"),
    Printed(5, "vm/vanilla-non-optimized", "2.58", "25.0 %"),
    Printed(5, "container/rt/optimized", "3.83", "66.7 %"),
    Printed(5, "container/vanilla/non-optimized", "1.50", "16.7 %"),
    Printed(5, "container/vanilla/optimized", "not printed", ""),
    Printed(5, "kernel/rt-optimized", "not printed", ""),
)
HEADER = (
    *("table, setting", "printed: exceedances, bounded"),
    *("Equation 1, here: runs", "packets", "bursts", "bounded"),
    *("tailscope: runs", "bursts", "inside"),
)
ABSENT = "data not here"


def write_rows(data: Path) -> None:
    """Write the rows into the page, and draw the figure beside it."""
    found = {
        number: table_of([LatencySource(data / folder, None)], Settings(), 0)
        for number, folder in FOLDERS.items()
    }
    text = table(HEADER, rows(found))
    page = PAGE.read_text()
    between = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
    assert len(between.findall(page)) == 1, PAGE
    PAGE.write_text(between.sub(lambda _: f"{BEGIN}\n\n{text}\n\n{END}", page))
    every = replace(found[4], runs=[run for each in found.values() for run in each.runs])
    (shapes,) = (picture for picture in every.pictures("") if picture.name == FIGURE)
    drawing = METADATA.sub("", grid_svg([shapes]).decode())
    (PAGE.parent / f"{FIGURE}.svg").write_text(drawing)


def rows(found: dict[int, TailTable]) -> list[list[str]]:
    """A row for each of the paper, and for what else there is of its settings."""
    settings = {
        (number, str(line["setting"])): line
        for number, each in found.items()
        for line in each.settings()
    }
    lines = []
    for row in PRINTED:
        line = settings.get((row.table, row.setting))
        ours = [ABSENT, *("-" for _ in HEADER[3:])]
        if line is not None:
            ours = [
                str(line["equation_1_runs"]),
                _number(line["equation_1_exceedances_packets_mean"]),
                _number(line["equation_1_exceedances_bursts_mean"]),
                _share(line["equation_1_bounded_share"]),
                str(line["runs"] - line["refused"]),
                _number(line["exceedances_bursts_mean"]),
                _share(line["inside_share"]),
            ]
        printed = ", ".join(filter(None, (row.exceedances, row.bounded)))
        lines.append([f"{row.table}, {row.setting}", printed, *ours])
    return lines


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"
