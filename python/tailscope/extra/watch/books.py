"""The books of a watch: a line for each of its runs, which is there once the run has ended."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Self

import msgspec

from tailscope.exceptions import RunCorruptError, RunError, RunExistsError
from tailscope.extra.watch import LOG
from tailscope.extra.watch.records import WATCH_FORMAT, WatchedRun
from tailscope.store import layout
from tailscope.store.owner import is_vacant, owned
from tailscope.store.records.base import as_content, read_record
from tailscope.units import shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_SHOWN = 40


@dataclass(frozen=True)
class Account:
    """A summary of all runs of a watch."""

    runs: int
    failed: int
    lasted_s: float
    watched_s: float
    """Time from the begin of the first run to the end of the last one; and how much of it packets
    were being sent."""
    sent: int
    lost: int
    unsent: int
    """Packets."""

    @classmethod
    def of(cls, runs: Sequence[WatchedRun]) -> Account:
        """Add them up."""
        known = [run.figures for run in runs if run.figures is not None]
        lasted_ns = sum(run.ended_unix_ns - run.started_unix_ns for run in runs)
        # The clock may have been set back while nothing was watched.
        lasted_ns += sum(
            max(0, run.started_unix_ns - before.ended_unix_ns) for before, run in pairwise(runs)
        )
        return cls(
            runs=len(runs),
            failed=sum(run.state == "failed" for run in runs),
            lasted_s=lasted_ns / 1e9,
            watched_s=sum(run.watched_s for run in runs),
            sent=sum(figures.sent for figures in known),
            lost=sum(figures.lost for figures in known),
            unsent=sum(figures.unsent for figures in known),
        )


class Books:
    """The books of a watch, open to be written: no other process has them.

    Lines that find no room on the disk are kept, and written with the next one.
    """

    def __init__(self, file: int, path: Path, runs: list[WatchedRun], size_bytes: int) -> None:
        self._file, self.path, self.runs = file, path, runs
        self._size_bytes, self._waiting = size_bytes, b""

    @classmethod
    @contextmanager
    def open(cls, path: Path) -> Iterator[Self]:
        """Open the books in a folder, or begin them.

        A line that was being written when the watch was killed is taken away: what it said is not
        known.
        """
        name = path / LOG
        _refuse_other(path)
        with owned(path):
            # What was there before it was ours may have changed.
            _refuse_other(path)
            flags = os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
            file = os.open(name, flags, 0o600)
            try:
                runs, size_bytes = _read(name)
                yield cls(file, path, runs, size_bytes)
            finally:
                os.close(file)

    @staticmethod
    def read(path: Path) -> list[WatchedRun]:
        """Read the books of a watch that may be going on."""
        if not (path / LOG).is_file():
            raise RunError(f"{path}: no watch: no {LOG} in it", code="not-a-watch")
        return _read(path / LOG)[0]

    def write(self, run: WatchedRun) -> bool:
        """Write a line; whether it, and all before it, are on the disk."""
        self.runs.append(run)
        self._waiting += msgspec.json.encode(as_content(run)) + b"\n"
        try:
            os.ftruncate(self._file, self._size_bytes)
            written = os.pwrite(self._file, self._waiting, self._size_bytes)
            os.fsync(self._file)
        except OSError:
            return False
        if written < len(self._waiting):
            return False
        self._size_bytes += written
        self._waiting = b""
        return True


def _refuse_other(path: Path) -> None:
    """Refuse a folder that holds anything but a watch."""
    # A watch begins with its books, so these are looked for last.
    if path.exists() and not is_vacant(path) and not (path / LOG).exists():
        raise RunExistsError(
            f"{path}: exists, and is no watch: no {LOG} in it",
            code="not-a-watch",
            hint="choose another --out",
        )


def _read(name: Path) -> tuple[list[WatchedRun], int]:
    """The lines of a file, and the size of those that are whole."""
    content = name.read_bytes()
    size_bytes = content.rfind(b"\n") + 1
    lines = content[:size_bytes].splitlines()
    runs = [
        read_record(line, WatchedRun, f"{name}: line {number}", newest=WATCH_FORMAT)
        for number, line in enumerate(lines, 1)
    ]
    for number, run in enumerate(runs, 1):
        if run.run is not None and not layout.is_inside(run.run):
            raise RunCorruptError(
                f"{name}: line {number}: run: expected a folder within the watch, got"
                f" {shortened(run.run, _SHOWN)!r}",
                code="run-outside-watch",
            )
    return runs, size_bytes
