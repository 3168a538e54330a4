"""Tasks on the workers of a scheduler: repeated where a worker is lost, stopped with us."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import tailscope
from tailscope.cli.progress import TasksDone
from tailscope.exceptions import ClusterError, WorkerLostError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from distributed import Client, Future

_LOOK_S = 0.05
_EVERY_S = 0.5
_TRIES = 3

Item = TypeVar("Item")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Task(NamedTuple, Generic[T_co]):
    """A call of a function on a worker."""

    function: Callable[..., T_co]
    """Of a module that workers can import. It may be called more than once, and by two workers at a
    time: one that is taken for lost may still be at work."""
    item: object
    """Its first argument."""
    needs: tuple[Task[object], ...] = ()
    """Their results are its further arguments. One that several need is done once."""
    size: int = 1
    """What it counts for in progress."""


class TaskOutcome(NamedTuple, Generic[T_co]):
    """The outcome of a task."""

    result: T_co | None
    """What the function returned; None where it raised something."""
    error: Exception | None
    """What it raised instead, as if it had been called here; `WorkerLostError` where it ended every
    worker."""


def map_tasks(
    client: Client,
    function: Callable[[Item], T],
    items: Iterable[Item],
    *,
    progress: Callable[[TasksDone], None] | None = None,
) -> Generator[TaskOutcome[T]]:
    """Call a function for each item, on workers, and yield the outcomes in their order."""
    return run_tasks(client, [Task(function, item) for item in items], progress=progress)


def run_tasks(
    client: Client, tasks: Sequence[Task[T]], *, progress: Callable[[TasksDone], None] | None = None
) -> Generator[TaskOutcome[T]]:
    """Run tasks on workers, and yield their outcomes in order.

    A task whose worker is lost is repeated. One that was lost as often as the scheduler allows may
    have been beside another that ended their worker, or both may have been too large together: it
    is tried again alone, after all others. If workers are lost twice more, that is its outcome.
    When the generator is closed, what runs is stopped.
    """
    watch = _Watch(client, tasks, progress)
    try:
        yield from watch.outcomes()
    finally:
        watch.release()


class _Watch(Generic[T]):
    """Submits tasks and collects their outcomes, while it tells how far they are."""

    def __init__(
        self, client: Client, tasks: Sequence[Task[T]], progress: Callable[[TasksDone], None] | None
    ) -> None:
        self._client, self._tasks, self._progress = client, tasks, progress
        self._running: dict[int, _Submitted[T]] = {}
        self._suspects: list[int] = []
        self._lost: Counter[int] = Counter()
        self._done: dict[int, TaskOutcome[T]] = {}
        self._looked_s = time.monotonic()
        self._workers = 0

    def outcomes(self) -> Generator[TaskOutcome[T]]:
        """The outcome of each task, in their order."""
        for index, task in enumerate(self._tasks):
            self._running[index] = _Submitted(self._client, task)
        for index in range(len(self._tasks)):
            while index not in self._done:
                self._collect()
                self._look()
                if not self._running and self._suspects:
                    alone = self._suspects.pop(0)
                    self._running[alone] = _Submitted(self._client, self._tasks[alone])
            yield self._done[index]
            self._done[index] = TaskOutcome(None, None)

    def release(self) -> None:
        """Have the workers stop what runs."""
        for submitted in self._running.values():
            submitted.release()

    def _collect(self) -> None:
        ended = {index: each for index, each in self._running.items() if each.future.done()}
        if not ended:
            time.sleep(_LOOK_S)
        for index, submitted in ended.items():
            del self._running[index]
            outcome = submitted.outcome()
            is_lost = isinstance(outcome.error, WorkerLostError)
            self._lost[index] += is_lost
            if is_lost and self._lost[index] < _TRIES:
                self._suspects.append(index)
            else:
                self._done[index] = outcome
            submitted.release()

    def _look(self) -> None:
        now_s = time.monotonic()
        if now_s - self._looked_s < _EVERY_S:
            return
        self._looked_s = now_s
        if self._progress is not None and self._client.status == "running":
            self._workers = len(self._client.nthreads())
            self._progress(self._far())

    def _far(self) -> TasksDone:
        sizes = [sum(each.size for each in _with_needs(task)) for task in self._tasks]
        done = sum(sizes[index] for index in self._done)
        done += sum(submitted.done_size() for submitted in self._running.values())
        return TasksDone(len(self._done), len(sizes), done, sum(sizes), self._workers)


class _Submitted(Generic[T]):
    """A task that workers have, with those that it needs."""

    def __init__(self, client: Client, task: Task[T]) -> None:
        self._all = _with_needs(task)
        self._futures: dict[int, Future[object]] = {}
        for each in self._all:
            needed = [self._futures[id(need)] for need in each.needs]
            future = client.submit(
                _call, tailscope.__version__, each.function, each.item, needed, pure=False
            )
            self._futures[id(each)] = future
        # The task stands behind all that it needs.
        self.future: Future[T] = future

    def done_size(self) -> int:
        """Return how much of its size is done, its needs included."""
        return sum(task.size for task in self._all if self._futures[id(task)].done())

    def outcome(self) -> TaskOutcome[T]:
        """Return its outcome; refuse one that the scheduler has lost."""
        from distributed import KilledWorker

        if self.future.status not in ("finished", "error"):
            raise ClusterError(
                f"the scheduler is gone: a task is {self.future.status}",
                code="scheduler-lost",
                hint="complete results are kept",
            )
        error = self.future.exception()
        if error is None:
            return TaskOutcome(self.future.result(), None)
        if isinstance(error, KilledWorker):
            error = WorkerLostError(
                "every worker that takes it dies, even if it runs alone: the last one was"
                f" {error.last_worker.address}",
                hint="the worker may have run out of memory; see its log",
            )
        return TaskOutcome(None, error)

    def release(self) -> None:
        """Have the workers forget it."""
        for future in self._futures.values():
            future.release()


def _with_needs(task: Task[object]) -> list[Task[object]]:
    """A task behind all that it needs, each of them once."""
    found = [each for need in task.needs for each in _with_needs(need)]
    return list({id(each): each for each in (*found, task)}.values())


def _call(version: str, function: Callable[..., T], item: object, needed: list[object]) -> T:
    """Call the function of a task; a worker that came late has not been asked for its version."""
    if version != tailscope.__version__:
        raise ClusterError(
            f"this worker has another tailscope: expected {version}, got {tailscope.__version__}",
            code="versions-differ",
            hint="install the same version on all machines",
        )
    return function(item, *needed)


def stop_if_unwanted() -> Callable[..., None]:
    """Make a function that ends the task on whose worker it is called when nobody waits for it.

    It is fit to be the `progress` of an analysis, and raises where the task was given up, or its
    worker is being closed: then another one repeats it.
    """
    from distributed import Reschedule, Status, get_worker

    worker = get_worker()
    key = worker.get_current_task()

    def look(*_progress: object) -> None:
        task = worker.state.tasks.get(key)
        is_closing = worker.status in (Status.closing, Status.closed, Status.failed)
        if is_closing or task is None or task.state == "cancelled":
            raise Reschedule

    return look
