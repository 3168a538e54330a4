"""Finding runs: where they lie below folders, what they are called, and whether they changed."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tailscope.exceptions import RunError, UsageError
from tailscope.store import layout
from tailscope.store.files import is_there, named_below, refuse_closed
from tailscope.store.record import plain
from tailscope.units import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

RUNS = Path("runs")
"""Folder in which runs are looked for, and into which ``tailscope run`` puts them."""

_FILE, _FOLDER, _NEITHER = "file", "folder", "neither"


@dataclass(frozen=True)
class RunPlace:
    """The place of a run."""

    path: Path
    """Its directory."""
    campaign: str | None
    """Name of the campaign around it."""

    def signature(self) -> str:
        """Return a fingerprint of the run: times, sizes and numbers of its files."""
        listed = [self.campaign or ""]
        for folder in (self.path, self.path / layout.CAPTURES):
            try:
                listed += [] if folder.is_symlink() else _files_of(folder)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                listed.append(str(error.strerror))
        return ";".join(listed)


def _files_of(folder: Path) -> list[str]:
    found = []
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            status = entry.stat(follow_symlinks=False)
            state = f"{status.st_mtime_ns},{status.st_size},{status.st_ino}"
            found.append(f"{entry.name!r}:{state}")
    return found


@dataclass
class FoundRuns:
    """Runs below folders."""

    runs: dict[str, RunPlace] = field(default_factory=dict)
    """Runs by name, in the order of names."""
    unread: list[str] = field(default_factory=list)
    """Folders that could not be looked into, and why."""


def find_runs(folders: Sequence[Path]) -> FoundRuns:
    """Find all runs below folders.

    A run is called by its path below the folder; below what the folders share, if there are
    several. Links to folders are not followed, and hidden folders not looked into.
    """
    for folder in folders:
        if not folder.is_dir():
            raise RunError(
                f"{folder}: no such folder",
                code="no-such-folder",
                hint="`tailscope run` makes ./runs; `tailscope runs list DIR` looks elsewhere",
            )
    tops = [folder.resolve() for folder in folders]
    shared = Path(os.path.commonpath(tops))
    if is_there(shared, layout.RUN):
        shared = shared.parent
    found = FoundRuns()
    for top in tops:
        for place in _walk(top, shared, found.unread):
            found.runs[_name(place.path, shared)] = place
    found.runs = dict(sorted(found.runs.items()))
    return found


def run_named(text: str, folder: Path = RUNS) -> Path:
    """The run directory that somebody means: a path, or a name of a run in a folder."""
    if is_there(Path(text), layout.RUN):
        return Path(text)
    refuse_closed(Path(text))
    runs = find_runs([folder]).runs if folder.is_dir() else {}
    if text in runs:
        return runs[text].path
    meant = [name for name in runs if name.endswith(f"/{text}")]
    if len(meant) == 1:
        return runs[meant[0]].path
    if meant:
        raise UsageError(
            f"{text}: several runs in {folder} have this name: {', '.join(meant)}",
            code="ambiguous-run",
        )
    raise UsageError(
        f"{text}: neither a run directory nor the name of a run in {folder}",
        code="no-such-run",
        hint=did_you_mean(text, runs)
        or named_below(Path(text), "`tailscope runs list` lists runs"),
    )


def _walk(top: Path, shared: Path, unread: list[str]) -> Iterator[RunPlace]:
    """Run directories at and below a folder; what cannot be looked into is added to `unread`."""
    left: list[tuple[Path, str | None]] = [(top, None)]
    while left:
        folder, campaign = left.pop()
        try:
            inside = _kinds_in(folder)
        except OSError as error:
            unread.append(f"{folder}: {error.strerror}")
            continue
        if layout.RUN in inside:
            yield RunPlace(folder, campaign)
        if inside.get(layout.RUN) == _FILE:
            continue
        if layout.CAMPAIGN in inside:
            campaign = _name(folder, shared)
        left += [
            (folder / name, campaign)
            for name, kind in inside.items()
            if kind == _FOLDER and not name.startswith(".") and name != layout.RUN
        ]


def _kinds_in(folder: Path) -> dict[str, str]:
    """Return the files of a folder, its folders, and what is neither; links are neither."""
    with os.scandir(folder) as entries:
        return {entry.name: _kind_of(entry) for entry in entries}


def _kind_of(entry: os.DirEntry[str]) -> str:
    if entry.is_dir(follow_symlinks=False):
        return _FOLDER
    return _FILE if entry.is_file(follow_symlinks=False) else _NEITHER


def _name(path: Path, shared: Path) -> str:
    return plain(path.name if path == shared else str(path.relative_to(shared)))
