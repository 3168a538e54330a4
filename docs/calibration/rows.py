"""Tables 4 and 5 of containers2024, theirs and ours, row by row, and Figure 18.

They stand on the page of that experiment, and are made of the same data as the calibration.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from docs.calibration.tail import LEVEL, SPLIT, answer, known, tables
from docs.reference.markdown import table

from tailscope.exceptions import EvidenceError
from tailscope.extra.tail.models.bursts import usual_run_length_ns
from tailscope.extra.tail.models.equation1 import equation_1
from tailscope.extra.tail.models.setting import PRIOR, largest
from tailscope.report.drawing import grid_svg
from tailscope.report.picture import Axis, Layer, Picture

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tailscope.extra.tail.models.equation1 import Equation1

PAGE = Path(__file__).parents[1] / "extra" / "tail" / "containers2024.md"
BEGIN, END = "<!-- rows: made by `make calibration` -->", "<!-- end of rows -->"
FIGURE = "tails-shapes"
METADATA = re.compile(r"\s*<metadata>.*?</metadata>", re.DOTALL)
MACHINES = {4: "Intel", 5: "AMD"}


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


class Row(NamedTuple):
    """What was said of a run, and what came of it."""

    setting: str
    equation_1: Equation1 | None
    """The prediction of the authors' method; None where its threshold is not in the table."""
    bursts: int
    """Bursts of the rest beyond tailscope's return level."""
    is_inside: bool
    """True if the largest latency of the rest lies in tailscope's interval."""


def write_rows(data: Path) -> None:
    """Write the rows into the page, and draw the figure beside it."""
    found = list(compared(data))
    text = table(HEADER, [line(printed, found) for printed in PRINTED])
    page = PAGE.read_text()
    between = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
    assert len(between.findall(page)) == 1, PAGE
    PAGE.write_text(between.sub(lambda _: f"{BEGIN}\n\n{text}\n\n{END}", page))
    drawing = METADATA.sub("", grid_svg([shapes(found)]).decode())
    (PAGE.parent / f"{FIGURE}.svg").write_text(drawing)


def compared(data: Path) -> Iterator[Row]:
    """Foretell each run by both methods, tailscope by the first parts of its setting, too."""
    every = list(tables(data))
    runs = [known(*run) for run in every]
    for at, (run, published) in enumerate(zip(runs, every, strict=True)):
        like = [
            other.first
            for place, other in enumerate(runs)
            if place != at and other.setting == run.setting
        ]
        level_ns = largest([run.first], like, run.ahead_ns, LEVEL).level_ns
        length_ns = usual_run_length_ns(published.excesses.gap_ns)
        theirs = None
        with suppress(EvidenceError):
            theirs = equation_1(published.excesses, SPLIT, length_ns)
        inside = answer([run.first], like, run.ahead_ns, run, PRIOR).is_inside
        yield Row(run.setting, theirs, int((run.rest_ns > level_ns).sum()), inside)


def line(printed: Printed, found: Sequence[Row]) -> list[str]:
    """A row of the paper, and what there is of its setting."""
    own = [row for row in found if row.setting == f"{MACHINES[printed.table]}: {printed.setting}"]
    theirs = [row.equation_1 for row in own if row.equation_1 is not None]
    name = f"{printed.table}, {printed.setting}"
    said = ", ".join(filter(None, (printed.exceedances, printed.bounded)))
    if not own:
        return [name, said, ABSENT, *("-" for _ in HEADER[3:])]
    return [
        *(name, said, str(len(theirs))),
        f"{np.mean([each.exceedances_packets for each in theirs]):.2f}",
        f"{np.mean([each.exceedances_bursts for each in theirs]):.2f}",
        f"{100 * np.mean([each.is_bounded for each in theirs]):.1f} %",
        *(str(len(own)), f"{np.mean([row.bursts for row in own]):.2f}"),
        f"{100 * np.mean([row.is_inside for row in own]):.1f} %",
    ]


def shapes(found: Sequence[Row]) -> Picture:
    """Figure 18: the shapes of the laws of Equation 1, of each table."""
    layers = []
    for at, (number, machine) in enumerate(MACHINES.items()):
        xi = np.sort(
            [
                row.equation_1.chosen.xi
                for row in found
                if row.setting.startswith(machine) and row.equation_1 is not None
            ]
        )
        share = np.arange(1, len(xi) + 1) / len(xi)
        name = f"Table {number}"
        layers.append(Layer("steps", "", name, {"x": xi, "y": share}, name, at))
    return Picture(
        FIGURE,
        "Bounded or not: the shape ξ of the laws of Equation 1",
        "Figure 18: a law with ξ below 0 has a largest latency.",
        Axis("ξ", "xi"),
        Axis("share of runs", "share", limits=(0.0, 1.0)),
        tuple(layers),
    )
