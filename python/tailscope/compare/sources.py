"""Pairs of runs to compare."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tailscope.exceptions import RunError, UsageError
from tailscope.store.campaign import is_campaign, read_campaign
from tailscope.store.files import refuse_closed, runs_at
from tailscope.store.layout import CAMPAIGN, RUN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tailscope.store.campaign import CampaignRun


@dataclass(frozen=True)
class ComparedSide:
    """A run, runs that repeat each other, or a campaign."""

    name: str
    path: Path
    cells: dict[str, list[Path]] = field(default_factory=dict)
    """Runs that repeat each other, by the values that vary in a campaign; runs outside of a
    campaign are a single cell without a name.
    """
    unfinished: dict[str, list[str]] = field(default_factory=dict)
    """Cells of which runs are missing, or not done, and why each of them."""

    def names(self, cell: str) -> dict[Path, str]:
        """Return the runs of a cell with the name of each."""
        return {
            run: f"{self.name}{str(run).removeprefix(str(self.path))}" for run in self.cells[cell]
        }


@dataclass(frozen=True)
class ComparedRuns:
    """Runs that are compared."""

    cell: str
    """The values that they have in common; empty without a campaign."""
    baseline: str
    candidate: str
    """Names of both sides."""
    baseline_runs: tuple[Path, ...]
    candidate_runs: tuple[Path, ...]
    names: Mapping[Path, str]
    """Name of each of these runs."""


def read_source(path: Path, label: str | None = None) -> ComparedSide:
    """Find the runs at a path."""
    refuse_closed(path)
    source = ComparedSide(label or str(path), path)
    if is_campaign(path):
        for run in read_campaign(path):
            cell = _cell(run)
            if run.path is not None and run.unfinished is None:
                source.cells.setdefault(cell, []).append(run.path)
            else:
                source.unfinished.setdefault(cell, []).append(f"{run.name}: {run.unfinished}")
        return source
    runs = runs_at(path)
    if not runs:
        raise RunError(
            f"{path}: expected a run, a campaign, or a folder of runs that repeat each other,"
            f" got no {RUN} and no {CAMPAIGN} in it",
            code="not-a-run",
            hint="`tailscope run --out DIR` writes a run",
        )
    source.cells[""] = runs
    return source


def _cell(run: CampaignRun) -> str:
    """Return what a run shares with its repeats: the values, and its device among several."""
    if run.values is None:
        return run.cell
    texts = [f"{name}={value}" for name, value in run.values.items()]
    inside = run.name.removeprefix(run.cell).strip("/")
    return ", ".join([*texts, *filter(None, [inside])])


def pairs_of(sources: Sequence[ComparedSide]) -> tuple[list[ComparedRuns], list[str]]:
    """Join cells with the same values: those of the first source with those of each other one."""
    first, *others = sources
    pairs, left_out = [], []
    for source in sources:
        left_out += [f"{source.name}: {why}" for each in source.unfinished.values() for why in each]
    for other in others:
        is_one_each = _is_one_each(first, other)
        for cell, runs in first.cells.items():
            match = next(iter(other.cells)) if is_one_each else cell
            if match in other.cells:
                candidates = tuple(other.cells[match])
                _check_apart(first, other, runs, candidates)
                names = {**first.names(cell), **other.names(match)}
                pairs.append(
                    ComparedRuns(cell, first.name, other.name, tuple(runs), candidates, names)
                )
            else:
                left_out.append(f"{other.name}: no run with {cell or 'no values that vary'}")
        if not is_one_each:
            left_out += [
                f"{first.name}: no run with {cell or 'no values that vary'}"
                for cell in other.cells
                if cell not in first.cells
            ]
    return pairs, left_out


def _check_apart(
    first: ComparedSide, other: ComparedSide, runs: Sequence[Path], candidates: Sequence[Path]
) -> None:
    """See that no run stands on both sides."""
    candidate_places = {path.resolve() for path in candidates}
    for run in runs:
        if run.resolve() in candidate_places:
            raise UsageError(
                f"{run}: expected on one side, got it in {first.name} and in {other.name}",
                code="run-on-both-sides",
                hint="name the runs of each side, or move them to two folders",
            )


def _is_one_each(first: ComparedSide, other: ComparedSide) -> bool:
    """Return whether both sides have a single cell each, whatever its values.

    Of a campaign, one that is left because others are unfinished is not: values decide there.
    """
    if not len(first.cells) == len(other.cells) == 1:
        return False
    is_run = "" in first.cells or "" in other.cells
    return is_run or all(
        source.unfinished.keys() <= source.cells.keys() for source in (first, other)
    )
