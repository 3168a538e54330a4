"""A watch: the same run again and again, for days, each of them kept."""

from __future__ import annotations

import shutil
import time
from calendar import timegm
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tailscope.exceptions import RunError, TailscopeError, TestbedError, said
from tailscope.experiment.run.execute import execute
from tailscope.experiment.run.finish import finish
from tailscope.experiment.run.measured import most_important
from tailscope.experiment.run.room import check_room_to_keep
from tailscope.extra.watch.records import WatchedRun
from tailscope.extra.watch.thin import leave_out_packets
from tailscope.report.of_run import page_of
from tailscope.signals import uninterrupted
from tailscope.store import layout
from tailscope.store.directory import is_complete
from tailscope.store.files import is_there
from tailscope.store.reader import read_figures, read_info, read_mark
from tailscope.store.records.base import as_content
from tailscope.testbed.steady import SteadyClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tailscope.engine.analysis import Figure
    from tailscope.experiment.plan import RunPlan
    from tailscope.experiment.run.instance import Progress
    from tailscope.experiment.run.measured import Measured
    from tailscope.extra.watch.books import Books
    from tailscope.store.records.run import RunInfo
    from tailscope.testbed.cores import Cores

_NAME, _NAME_LENGTH = "%Y%m%dT%H%M%SZ", 16
_PAUSE_S = (10.0, 600.0)
"""Before a run is tried again that has failed: at first, and at most; twice as long each time."""


@dataclass
class Watch:
    """The runs of a watch, and its books."""

    plan: RunPlan
    """The plan of each run."""
    cores: Cores
    books: Books
    keep: int
    """Number of the newest runs that keep their single packets."""
    lasts_s: float | None = None
    """Time limit for starting runs, in seconds; None until somebody ends it."""
    _clock: SteadyClock = field(default_factory=SteadyClock)

    def check(self) -> None:
        """Check that the existing runs are of this plan."""
        kept = self._kept
        if not kept:
            return
        ours, theirs = (
            as_content(each) for each in (self.plan.record(), read_info(self._path(kept[-1])).plan)
        )
        differs = [name for name in {**theirs, **ours} if theirs.get(name) != ours.get(name)]
        if differs:
            raise RunError(
                f"{self.books.path}: belongs to another watch: {', '.join(sorted(differs))} differ",
                code="other-watch",
                hint="go on with the options that it was begun with, or choose another --out",
            )

    def take_up(self, command: Sequence[str]) -> list[WatchedRun]:
        """Write down what became of runs that the watch was killed in.

        What was recorded is analysed. Of what was still on its way nothing is known.
        """
        found = []
        for path in self._unwritten():
            run = self._became(path, command)
            self.books.write(run)
            found.append(run)
        return found

    def runs(
        self, progress: Progress | None, ending: Callable[[], None]
    ) -> Iterator[tuple[WatchedRun, Measured | None]]:
        """Watch: carry out one run after another.

        A run that fails is written down, and another one follows, unless none was ever kept.
        """
        ends_s = None if self.lasts_s is None else time.monotonic() + self.lasts_s
        pause_s, has_measured = _PAUSE_S[0], bool(self._kept)
        self._leave_out()
        while ends_s is None or time.monotonic() < ends_s:
            started_ns = self._clock.now_ns()
            try:
                try:
                    run, measured = self._run(started_ns, progress, ending)
                except (TailscopeError, OSError) as error:
                    if not has_measured:
                        raise
                    run, measured = self._failed(started_ns, said(error)), None
                with uninterrupted():
                    self.books.write(run)
                    self._leave_out()
            except KeyboardInterrupt:
                # It may come once the run is whole, while the testbed is being taken down.
                self._write_whole()
                raise
            yield run, measured
            if measured is None:
                time.sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_S[1])
                continue
            pause_s, has_measured = _PAUSE_S[0], True
            if measured.interrupted:
                return

    def _unwritten(self) -> Iterator[Path]:
        """Find the runs in the folder that have no line."""
        known = {run.run for run in self.books.runs}
        for path in sorted(self.books.path.iterdir()):
            if path.name not in known and path.is_dir() and read_mark(path) is not None:
                yield path

    def _write_whole(self) -> None:
        """Write the lines of complete runs that have none."""
        with uninterrupted():
            for path in self._unwritten():
                if is_complete(path):
                    self.books.write(self._line_of(path, self._began_ns(path)))

    def _became(self, path: Path, command: Sequence[str]) -> WatchedRun:
        """Make the line of a run that the watch was killed in, and finish or remove it."""
        began_ns = self._began_ns(path)
        if is_there(path, layout.RECORDED):
            try:
                finish(path, page_of, command=command)
            except (TailscopeError, OSError) as error:
                return replace(self._failed(began_ns, said(error)), run=path.name)
        elif not is_complete(path):
            shutil.rmtree(path)
            return self._failed(began_ns, "the watch was killed")
        return self._line_of(path, began_ns)

    def _line_of(self, path: Path, began_ns: int) -> WatchedRun:
        """Make the line of a complete run out of its files."""
        read = read_figures(path)
        return _line(path.name, began_ns, read.info.written_unix_ns, read.summary, read.info)

    def _run(
        self, started_ns: int, progress: Progress | None, ending: Callable[[], None]
    ) -> tuple[WatchedRun, Measured]:
        folder = self._folder(started_ns)
        out, why = self._room(folder)
        [measured] = execute(
            self.plan, self.cores, out=out, draw=page_of, progress=progress, ending=ending
        )
        run = _line(
            None if out is None else folder.name,
            started_ns,
            self._clock.now_ns(),
            measured.figures,
            measured.info,
            [*(lack.what for lack in measured.lacks), *([why] if why else [])],
        )
        return run, measured

    def _room(self, folder: Path) -> tuple[Path | None, str | None]:
        """Return the folder for a run; if the disk is full None, and why: it is measured anyway."""
        try:
            check_room_to_keep(self.plan.volume(), folder)
        except TestbedError as error:
            return None, f"not kept: {error}"
        return folder, None

    def _failed(self, started_ns: int, reason: str) -> WatchedRun:
        """The line of a run of which nothing is known."""
        return WatchedRun(
            run=None,
            state="failed",
            reason=reason,
            started_unix_ns=started_ns,
            ended_unix_ns=max(started_ns, self._clock.now_ns()),
        )

    def _leave_out(self) -> None:
        """Remove the single packets of all runs but the newest ones.

        Where that fails, as on a full disk, it is tried again behind the next run.
        """
        with suppress(OSError):
            for name in self._kept[: -self.keep]:
                if (self._path(name) / layout.LATENCY).exists():
                    leave_out_packets(self._path(name))

    def _folder(self, started_ns: int) -> Path:
        """A folder by the time, of which there is none yet."""
        name = time.strftime(_NAME, time.gmtime(started_ns // 1_000_000_000))
        names = (name, *(f"{name}-{number}" for number in range(2, 1000)))
        return next(path for each in names if not (path := self._path(each)).exists())

    def _began_ns(self, path: Path) -> int:
        """Return when a run began: its directory says the second; others may have ended in it."""
        said_ns = timegm(time.strptime(path.name[:_NAME_LENGTH], _NAME)) * 1_000_000_000
        before_ns = max((run.ended_unix_ns for run in self.books.runs), default=0)
        return min(max(said_ns, before_ns), self._clock.now_ns())

    @property
    def _kept(self) -> list[str]:
        return [run.run for run in self.books.runs if run.run is not None and run.state != "failed"]

    def _path(self, name: str) -> Path:
        return self.books.path / name


def _line(
    folder: str | None,
    started_ns: int,
    ended_ns: int,
    figures: Mapping[str, Figure],
    info: RunInfo,
    reasons: Sequence[str] = (),
) -> WatchedRun:
    watched_s, tainted = figures["pre_duration_s"], figures["tainted"]
    return WatchedRun(
        run=folder,
        state="partial" if info.partial else "done",
        reason="; ".join([*info.partial, *reasons]) or None,
        started_unix_ns=started_ns,
        ended_unix_ns=max(started_ns, ended_ns),
        watched_s=watched_s if isinstance(watched_s, float) else 0.0,
        figures=most_important(figures, info),
        tainted=tainted if isinstance(tainted, int) else None,
    )
