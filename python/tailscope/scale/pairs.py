"""Many pairs on the workers of a scheduler: one task a pair."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tailscope.exceptions import CaptureError, RunError
from tailscope.scale.cluster import open_cluster
from tailscope.scale.pair import Figures, PairPlan, analyze_pair
from tailscope.scale.shared import Shared, aside, shared_folders
from tailscope.scale.tasks import Task, run_tasks, stop_if_unwanted
from tailscope.store.directory import refuse_foreign

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from tailscope.scale.tasks import Done

__all__ = ["analyze_pairs"]


class _Work(NamedTuple):
    """A pair as a worker gets it."""

    plan: PairPlan
    sizes: tuple[int, int]
    shared: Shared


def analyze_pairs(
    scheduler: str,
    plans: Sequence[PairPlan],
    folders: Sequence[Path],
    *,
    progress: Callable[[Done], None] | None = None,
) -> Generator[Figures | Exception]:
    """Analyse pairs on workers, which write what was asked for.

    Parameters
    ----------
    scheduler : str
        As `open_cluster` takes it.
    plans : sequence of PairPlan
        With absolute paths, which mean the same to the workers.
    folders : sequence of Path
        Where all results lie.
    progress : callable, optional
        Receives how far they are; sizes are in bytes.

    Yields
    ------
    Figures or Exception
        Of each pair in the order of the plans, or why there are none: what `analyze_pair` raises,
        or a `ClusterError`.
    """
    with shared_folders(*folders) as shared, open_cluster(scheduler) as client:
        prepared = [_prepared(plan, shared) for plan in plans]
        tasks = [task for task in prepared if isinstance(task, Task)]
        outcomes = run_tasks(client, tasks, progress=progress)
        for task in prepared:
            if not isinstance(task, Task):
                yield task
                continue
            outcome = next(outcomes)
            yield outcome.error or outcome.result


def _prepared(plan: PairPlan, shared: Shared) -> Task | Exception:
    try:
        if plan.out is not None:
            refuse_foreign(plan.out)
        sizes = Path(plan.pre).stat().st_size, Path(plan.post).stat().st_size
    except (RunError, OSError) as error:
        return error
    return Task(_analyze, _Work(plan, sizes, shared), size=sum(sizes))


def _analyze(work: _Work) -> Figures:
    """Analyse a pair; called on a worker."""
    _check(work)
    with aside(work.plan, work.shared.token) as plan:
        return analyze_pair(plan, stop_if_unwanted())


def _check(work: _Work) -> None:
    """See that this worker sees the same captures and folders."""
    work.shared.check()
    for name, expected in zip((work.plan.pre, work.plan.post), work.sizes, strict=True):
        got = Path(name).stat().st_size if Path(name).exists() else None
        if got != expected:
            seen = "none" if got is None else f"{got} bytes"
            raise CaptureError(
                f"{name}: not the same on the worker: expected {expected} bytes, got {seen}",
                hint="captures have to lie on storage that all workers see under the same path",
            )
