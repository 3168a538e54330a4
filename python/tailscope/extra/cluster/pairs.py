"""Many pairs on the workers of a scheduler: one task a pair, or several of a large one."""

from __future__ import annotations

import shutil
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, NamedTuple

from tailscope.engine.analysis import Series, reads_twice
from tailscope.engine.slices import Part, Split, analyze_slice, merge, split
from tailscope.exceptions import (
    CaptureError,
    ClocksApartError,
    ClusterError,
    KeysRepeatError,
    RunError,
    TailscopeError,
)
from tailscope.experiment.run.pair import Figures, PairPlan, analyze_pair, files_of, write_pair
from tailscope.extra.cluster.cluster import open_cluster
from tailscope.extra.cluster.shared import Shared, aside, shared_folders
from tailscope.extra.cluster.tasks import Task, run_tasks, stop_if_unwanted
from tailscope.report.of_run import page_of
from tailscope.store.atomic import replacing
from tailscope.store.directory import refuse_foreign
from tailscope.store.latency import LatencyFile
from tailscope.store.packets import Packets

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from pathlib import Path

    from tailscope.cli.progress import TasksDone
    from tailscope.engine.analysis import Analysis, PacketSink, Sink

SLICE_BYTES = 64 << 20
"""Least size of a slice of captures: less is analysed sooner than it is divided."""


class _Work(NamedTuple):
    """A pair as a worker gets it."""

    plan: PairPlan
    sizes: tuple[int, int]
    shared: Shared
    number: int

    @property
    def size(self) -> int:
        """The size of both captures in bytes."""
        return sum(self.sizes)

    @property
    def keeps_rows(self) -> bool:
        """True if every match of its slices is written, and not only counted."""
        return self.plan.csv_folder is not None

    @property
    def rows(self) -> Path:
        """The shared folder in which the matches of its slices wait to be merged."""
        return self.shared.places[0] / f"rows{self.number}"


def analyze_pairs(
    scheduler: str,
    plans: Sequence[PairPlan],
    folders: Sequence[Path],
    *,
    progress: Callable[[TasksDone], None] | None = None,
) -> Generator[Figures | Exception]:
    """Analyse pairs on workers, which write what was asked for."""
    with ExitStack() as stack:
        shared = stack.enter_context(shared_folders(*folders))
        client = stack.enter_context(open_cluster(scheduler))
        prepared = [_prepared(plan, shared, number) for number, plan in enumerate(plans)]
        works = [work for work in prepared if isinstance(work, _Work)]
        share = max(1, sum(work.size for work in works)), sum(client.nthreads().values())
        tasks = [_task(work, *share) for work in works]
        outcomes = stack.enter_context(closing(run_tasks(client, tasks, progress=progress)))
        for work in prepared:
            if not isinstance(work, _Work):
                yield work
                continue
            outcome = next(outcomes)
            if work.keeps_rows:
                shutil.rmtree(work.rows, ignore_errors=True)
            if outcome.error is not None:
                yield _known(outcome.error)
            else:
                assert outcome.result is not None, "figures are returned"
                yield outcome.result


def _known(error: Exception) -> Exception:
    """Return an expected error; make any other a `ClusterError`, a bug that costs one pair."""
    if isinstance(error, TailscopeError | OSError):
        return error
    return ClusterError(
        f"internal, on a worker: {type(error).__name__}: {error}", code="worker-internal"
    )


def _prepared(plan: PairPlan, shared: Shared, number: int) -> _Work | Exception:
    try:
        if plan.out is not None:
            refuse_foreign(plan.out)
        sizes = _size(plan.pre), _size(plan.post)
    except (RunError, OSError) as error:
        return error
    return _Work(plan, sizes, shared, number)


def _task(work: _Work, total: int, threads: int) -> Task[Figures]:
    """One task, or several for a pair of well more than a thread's share.

    To divide a pair takes a pass over it, which is not worth it for a little more.
    """
    at_most = min(round(work.size * threads / total), work.size // SLICE_BYTES)
    # Slices do not tell flows apart, which a run directory does, and are of one file.
    is_whole = any(len(files_of(name)) > 1 for name in (work.plan.pre, work.plan.post))
    if at_most < 2 or work.plan.out is not None or is_whole:
        return Task(_analyze, work, size=work.size)
    split = Task(_split, (work, at_most), size=0)
    slices = tuple(
        Task(_analyze_slice, (work, index), needs=(split,), size=work.size // at_most)
        for index in range(at_most)
    )
    return Task(_merge, work, needs=slices, size=0)


def _analyze(work: _Work) -> Figures:
    """Analyse a pair; called on a worker."""
    _check(work)
    with aside(work.plan, work.shared) as plan:
        return analyze_pair(plan, page_of, stop_if_unwanted())


def _split(item: tuple[_Work, int]) -> Split:
    """Divide a pair; called on a worker."""
    work, at_most = item
    _check(work)
    plan = work.plan
    if reads_twice(plan.clocks):
        return Split((), "not divided: the clocks are to be estimated")
    try:
        return split(
            plan.pre,
            plan.post,
            at_most=at_most,
            match_on=plan.match_on,
            clocks=plan.clocks,
            trim=plan.trim_ns,
            window=plan.window_ns,
            worst=plan.worst,
            progress=stop_if_unwanted(),
        )
    except ClocksApartError as error:
        return Split((), f"not divided: {error}")


def _analyze_slice(item: tuple[_Work, int], found: Split) -> Part | None:
    """Analyse one slice of a pair that has several; called on a worker."""
    work, index = item
    _check(work)
    if len(found.slices) < 2 or index >= len(found.slices):
        return None
    plan = work.plan
    with ExitStack() as stack:
        sink = stack.enter_context(_written(work.rows / _name(index))) if work.keeps_rows else None
        return analyze_slice(
            plan.pre, plan.post, found.slices[index], sink=sink, progress=stop_if_unwanted()
        )


@contextmanager
def _written(path: Path) -> Iterator[Sink]:
    """Keep the matches of a slice in a file."""
    path.parent.mkdir(exist_ok=True)
    with replacing(path) as file, LatencyFile(file) as rows:
        yield lambda *columns: rows.write(Series(*columns))


def _merge(work: _Work, *slices: Part | None) -> Figures:
    """Put the slices of a pair together; called on a worker."""
    parts = [part for part in slices if part is not None]
    if not parts:
        return _analyze(work)
    _check(work)
    look = stop_if_unwanted()
    try:
        found = merge(parts)
    except (KeysRepeatError, ClocksApartError):
        return _analyze(work)
    if found.deserves_second_look:
        return _analyze(work)

    def find(*, sink: Sink | None, packets: PacketSink | None) -> Analysis:
        assert packets is None, "only counted, or written as CSV"
        if sink is not None:
            for index in range(len(parts)):
                path = work.rows / _name(index)
                with Packets(path.open("rb"), str(path)) as rows:
                    for columns in rows.batches("seq", "pre_ns", "latency_ns"):
                        look()
                        sink(*columns)
        return found

    with aside(work.plan, work.shared) as plan:
        return write_pair(plan, page_of, find)


def _name(index: int) -> str:
    return f"{index}.parquet"


def _size(capture: str) -> int:
    """The size of all files of a capture in bytes."""
    return sum(file.stat().st_size for file in files_of(capture))


def _check(work: _Work) -> None:
    """See that this worker sees the same captures and folders."""
    work.shared.check()
    for name, expected in zip((work.plan.pre, work.plan.post), work.sizes, strict=True):
        is_there = all(file.exists() for file in files_of(name))
        got = _size(name) if is_there else None
        if got != expected:
            seen = "none" if got is None else f"{got} bytes"
            raise CaptureError(
                f"{name}: not the same on the worker: expected {expected} bytes, got {seen}",
                code="file-differs",
                hint="captures must be on storage that all workers see under the same path",
            )
