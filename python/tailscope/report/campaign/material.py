"""Material for the page of a campaign: each run's figures, by the variables of the campaign."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tailscope.exceptions import TailscopeError
from tailscope.store import layout
from tailscope.store.atomic import write_text
from tailscope.store.campaign import (
    DONE,
    MISSING,
    CampaignCell,
    CampaignContent,
    campaign_content,
)
from tailscope.store.files import is_there
from tailscope.store.reader import read_figures, read_run
from tailscope.units import count_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tailscope.store.run import Run

    ReadAll = Callable[[Path, Sequence[str]], Iterable["CampaignReading"]]


class CampaignReading(NamedTuple):
    """The outcome of reading a run of a campaign."""

    name: str
    """The name of the run's folder, within that of the campaign."""
    run: Run | None
    """Its figures; None where they cannot be read."""
    problem: str | None
    """The reason why they cannot be read, or None."""
    has_page: bool
    """True if its ``report.html`` is there."""


def read_one(path: Path, name: str) -> CampaignReading:
    """Read what the page of a campaign shows of a run; what is wrong with it is part of that."""
    folder = path / name
    has_page = is_there(folder, layout.REPORT)
    try:
        return CampaignReading(name, read_figures(folder, label=name), None, has_page)
    except (TailscopeError, OSError) as error:
        return CampaignReading(name, None, str(error).removeprefix(f"{path}/"), has_page)


@dataclass(frozen=True)
class Combination:
    """All runs of a combination of values: its repeats, and instances of its device."""

    values: Mapping[str, str]
    """Of each variable that has several."""
    cells: tuple[CampaignCell, ...]
    readings: tuple[CampaignReading, ...]
    """Their runs."""

    @property
    def runs(self) -> list[Run]:
        """The runs that could be read."""
        return [reading.run for reading in self.readings if reading.run is not None]


@dataclass(frozen=True)
class CampaignMaterial:
    """A campaign."""

    content: CampaignContent
    varied: Mapping[str, list[str]]
    """Variables with several values, and these."""
    combinations: tuple[Combination, ...]
    """In the order of their values."""

    def counts(self) -> dict[str, int]:
        """Count cells by state; one with a run that cannot be read counts as ``unreadable``."""
        found: dict[str, int] = {}
        for combination in self.combinations:
            bad = {reading.name for reading in combination.readings if reading.problem}
            for cell in combination.cells:
                state = "unreadable" if bad & {*cell.runs} else cell.state
                found[state] = found.get(state, 0) + 1
        return found

    def problems(self) -> Iterator[str]:
        """Say of each run that cannot be read why, and why cells have none."""
        without: dict[str, list[str]] = {}
        for combination in self.combinations:
            for reading in combination.readings:
                if reading.problem is not None:
                    yield f"{reading.name}: left out: {reading.problem}"
            for cell in combination.cells:
                if cell.state != DONE and not cell.runs:
                    without.setdefault(unfinished(cell), []).append(cell.name)
        for reason, names in without.items():
            more = f" and {count_text(len(names) - 1)} more" if len(names) > 1 else ""
            yield f"{names[0]}{more}: no run: {reason}"


def _in_turn(path: Path, names: Sequence[str]) -> Iterator[CampaignReading]:
    return (read_one(path, name) for name in names)


def unfinished(cell: CampaignCell) -> str:
    """Describe the state of a cell that is not done, with the reason if there is one."""
    return ": ".join(filter(None, (cell.state, cell.reason)))


def draw_one(path: Path, name: str) -> CampaignReading:
    """Read a run as `read_one`, and draw its own page anew."""
    from tailscope.report.page import page

    try:
        write_text(path / name / layout.REPORT, page([read_run(path / name)]))
    except (TailscopeError, OSError) as error:
        problem = str(error).removeprefix(f"{path}/")
        return CampaignReading(name, None, problem, is_there(path / name, layout.REPORT))
    return read_one(path, name)


def read_material(path: Path, read: ReadAll | None = None) -> CampaignMaterial:
    """Read a campaign; a run that cannot be read is part of it, with the reason."""
    content = campaign_content(path)
    names = [name for cell in content.cells for name in cell.runs]
    found = (read or _in_turn)(path, list(dict.fromkeys(names)))
    readings = {reading.name: reading for reading in found}
    varied = {name: values for name, values in content.variables.items() if len(values) > 1}
    groups: dict[tuple[str, ...], list[CampaignCell]] = {}
    for cell in content.cells:
        groups.setdefault(tuple(cell.values.get(name, MISSING) for name in varied), []).append(cell)

    def place(values: tuple[str, ...]) -> list[int]:
        pairs = zip(varied.values(), values, strict=True)
        return [known.index(value) if value in known else len(known) for known, value in pairs]

    return CampaignMaterial(
        content,
        varied,
        tuple(
            Combination(
                dict(zip(varied, values, strict=True)),
                tuple(cells),
                tuple(readings[name] for cell in cells for name in cell.runs),
            )
            for values in sorted(groups, key=place)
            for cells in [sorted(groups[values], key=lambda cell: cell.repeat)]
        ),
    )
