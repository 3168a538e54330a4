"""What a dry run of a paper's experiment tells: the tables and figures that its cells stand for."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tailscope.extra.papers.papers import PAPERS
from tailscope.units import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tailscope.experiment.campaign.cell import Cell
    from tailscope.extra.papers.part import Part


@dataclass(frozen=True)
class Shown:
    """A table or figure with its cells of an experiment."""

    paper: str
    part: str
    cells: int
    """Number of cells that stand for it."""
    ready: int
    """Number of these that run on this machine."""
    waiting: dict[str, int]
    """Reasons why others wait, and the number of cells of each."""
    needs: str
    """Difference from the paper, also of cells that run."""


def told(
    experiment: str, cells: Sequence[Cell], missing: Mapping[str, Sequence[str]]
) -> tuple[dict[str, object], list[tuple[str, str]]]:
    """Return what a dry run tells of these cells: for JSON, and as titles with lines."""
    parts = [
        (paper.name, part)
        for paper in PAPERS
        for part in paper.parts
        if part.experiment == experiment
    ]
    if not parts:
        return {}, []
    shown = [_shown(paper, part, cells, missing) for paper, part in parts]
    alone = sum(not any(part.has(cell.values) for _, part in parts) for cell in cells)
    return {"shows": [asdict(each) for each in shown]}, list(_lines(shown, alone))


def _shown(
    paper: str, part: Part, cells: Sequence[Cell], missing: Mapping[str, Sequence[str]]
) -> Shown:
    lacks = [missing.get(cell.name, ()) for cell in cells if part.has(cell.values)]
    return Shown(
        paper=paper,
        part=part.name,
        cells=len(lacks),
        ready=sum(not reasons for reasons in lacks),
        waiting=dict(Counter(reason for reasons in lacks for reason in dict.fromkeys(reasons))),
        needs=part.needs,
    )


def _lines(shown: Sequence[Shown], alone: int) -> Iterator[tuple[str, str]]:
    """Return a line for each table and figure; reasons are those of the lines below the cells."""
    for each in shown:
        if each.cells:
            text = f"{each.part}: {counted(each.cells, 'cell')}, {each.ready} run here"
            if waits := each.cells - each.ready:
                text += f", {waits} wait"
            yield each.paper, text + (f" ({each.needs})" if each.needs else "")
    if absent := [f"{each.paper} {each.part}" for each in shown if not each.cells]:
        yield "not in these", ", ".join(absent)
    if alone:
        yield "beside papers", counted(alone, "cell")
