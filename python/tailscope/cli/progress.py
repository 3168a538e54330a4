"""A progress bar for those who wait at a terminal."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, NamedTuple, Self

from tailscope.cli.terminal import say

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.progress import Progress

PATIENCE_S = 1.0


class TasksDone(NamedTuple):
    """The progress of tasks."""

    tasks: int
    of_tasks: int
    """Tasks that have an outcome, without those that others need."""
    size: int
    of_size: int
    """The sizes of all."""
    workers: int
    """How many there are."""


class ProgressBar:
    """Shows progress on standard error when that is a terminal and it takes more than a second."""

    def __init__(self, what: str, unit: str = "bytes") -> None:
        self._what, self._unit = what, unit
        self._bar: Progress | None = None
        self._show_after_s = time.monotonic() + PATIENCE_S

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    @property
    def callback(self) -> Callable[[int, int | None], None] | None:
        """Progress callback of the engine; None if nobody watches."""
        return self._advance if sys.stderr.isatty() else None

    def _advance(self, done: int, total: int | None) -> None:
        if self._bar is None:
            if time.monotonic() < self._show_after_s:
                return
            self._bar = self._started(total)
        self._bar.update(self._bar.task_ids[0], description=self._what, completed=done, total=total)

    def _started(self, total: int | None) -> Progress:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        count = DownloadColumn() if self._unit == "bytes" else MofNCompleteColumn()
        bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            count,
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        bar.add_task(self._what, total=total)
        bar.start()
        return bar


class TasksBar(ProgressBar):
    """Shows how far the workers of a scheduler are."""

    def __init__(self, things: str, unit: str = "bytes") -> None:
        super().__init__(things, unit)
        self._things = things
        self._has_said = False

    def show(self, done: TasksDone) -> None:
        """Show it, or once, anywhere, that there is no worker to wait for."""
        if not done.workers and not self._has_said:
            self._has_said = True
            say("the scheduler has no workers: waiting for the first", stream=sys.stderr)
        workers = f"{done.workers} workers" if done.workers else "no worker yet"
        self._what = f"{done.tasks} of {done.of_tasks} {self._things}, {workers}"
        if self.callback is not None:
            self._advance(done.size, done.of_size)
