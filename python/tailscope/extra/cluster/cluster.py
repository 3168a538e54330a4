"""The workers that tasks are handed to: a scheduler of the user's, or a private one."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
from contextlib import ExitStack, contextmanager
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING

from tailscope.exceptions import ClusterError, UsageError
from tailscope.signals import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from distributed import Client, LocalCluster, Worker, WorkerPlugin

VERSIONED = ("tailscope", "dask", "distributed")
"""Packages that have to be of the same version on both sides."""

_LOCAL = re.compile(r"local(?::([1-9]\d{0,3}))?")
_REMOTE = re.compile(r"(tcp|tls)://\S+:\d+")
_CONNECT_S = 5.0
_CLOSE_S = 10.0
_LOCAL_CONFIG = {
    # A task that was lost is tried again alone, see `run_tasks`.
    "distributed.scheduler.allowed-failures": 0,
    # A task is with a process when it begins, not before: the end of a process blames no other one.
    "distributed.scheduler.worker-saturation": 1.0,
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}
_ENVIRONMENT = "distributed.nanny.pre-spawn-environ"
_TRIM = "MALLOC_TRIM_THRESHOLD_"
"""Dask sets it so low that memory is given back for each pair, and cleared again by the kernel."""


@contextmanager
def open_cluster(scheduler: str) -> Iterator[Client]:
    """Connect with a scheduler, or start processes of this machine, for a block.

    Those are reached over loopback with keys made for the occasion, have a private folder, and end
    with this process in whatever way it ends: ``local``, as many as CPUs that this one may run on,
    or ``local:N``. Certificates for ``tls://HOST:PORT`` are those of Dask's own configuration.
    """
    local = _LOCAL.fullmatch(scheduler)
    if local is None and _REMOTE.fullmatch(scheduler) is None:
        raise UsageError(
            f"--scheduler: expected tcp://HOST:PORT, tls://HOST:PORT or local[:N], got {scheduler}",
            code="scheduler-address",
        )
    _say_it_once()
    with ExitStack() as stack:
        if local is not None:
            workers = int(local[1]) if local[1] else len(os.sched_getaffinity(0))
            client = stack.enter_context(_processes(workers))
        else:
            client = stack.enter_context(_connected(scheduler))
            _refuse_others(scheduler, client)
        yield client


def _say_it_once() -> None:
    """Leave it to us to say what goes wrong: each part of Dask that notices would log it."""
    import distributed

    for name in (distributed.__name__, f"{distributed.__name__}.client"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


@contextmanager
def _connected(address: str) -> Iterator[Client]:
    from distributed import Client

    try:
        asyncio.run(_try(address))
    # What answers, and is no scheduler, may claim a message of any length.
    except (OSError, EOFError, ValueError, TypeError, MemoryError) as error:
        raise ClusterError(
            f"{address}: no Dask scheduler answers: {error}",
            code="no-scheduler",
            hint="`dask scheduler` starts one and prints its address; one that listens at tls:// "
            "asks for the certificates of Dask's configuration (distributed.comm.tls)",
        ) from None
    client = Client(address, timeout=_CONNECT_S, set_as_default=False)
    try:
        yield client
    finally:
        with uninterrupted():
            client.close(timeout=_CLOSE_S)


async def _try(address: str) -> None:
    """Connect once: a client that cannot would hold on for long."""
    from distributed.comm.core import connect
    from distributed.security import Security

    known = Security().get_connection_args("client")
    await (await connect(address, timeout=_CONNECT_S, **known)).close()


@contextmanager
def _processes(workers: int) -> Iterator[Client]:
    """A private cluster: one process a worker, one task at a time in each."""
    import dask
    from distributed import Client

    from tailscope.testbed.folder import RunFolder

    with ExitStack() as stack:
        folder = stack.enter_context(RunFolder())
        environment = dict(dask.config.get(_ENVIRONMENT))
        environment.pop(_TRIM, None)
        places = {"temporary-directory": str(folder.path), _ENVIRONMENT: environment}
        stack.enter_context(dask.config.set({**_LOCAL_CONFIG, **places}))
        cluster = stack.enter_context(_cluster(folder.path, workers))
        client = stack.enter_context(Client(cluster, set_as_default=False))
        client.register_plugin(_confined(workers))
        cluster.scale(workers)
        client.wait_for_workers(workers)
        yield client


def _confined(workers: int) -> WorkerPlugin:
    """Make what gives each worker CPUs of its own: an engine starts a thread for each it may use.

    A worker does it for itself as it starts, before it has a thread for tasks; one that takes the
    place of another has its name, and its CPUs.
    """
    from distributed import WorkerPlugin

    class Confined(WorkerPlugin):
        def setup(self, worker: Worker) -> None:
            os.sched_setaffinity(0, share_of(os.sched_getaffinity(0), int(worker.name), workers))

    return Confined()


def share_of(cpus: Collection[int], worker: int, workers: int) -> set[int]:
    """Return the CPUs of one of so many workers; several have the same where there are too few.

    >>> [share_of({0, 1, 4, 5, 6}, worker, 2) for worker in range(2)]
    [{0, 1}, {4, 5, 6}]
    >>> [share_of({0, 1}, worker, 3) for worker in range(3)]
    [{0}, {1}, {0}]
    """
    ordered = sorted(cpus)
    if workers >= len(ordered):
        return {ordered[worker % len(ordered)]}
    first, end = (index * len(ordered) // workers for index in (worker, worker + 1))
    return set(ordered[first:end])


@contextmanager
def _cluster(folder: Path, workers: int) -> Iterator[LocalCluster]:
    from distributed import LocalCluster
    from distributed.security import Security
    from distributed.system import MEMORY_LIMIT

    # The terminal's Ctrl-C reaches all processes of ours, and is for this one alone: threads, and
    # the processes that they start, have the mask of the thread that started them. The tracker
    # goes first: starting it takes the mask away.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        cluster = LocalCluster(
            n_workers=0,
            threads_per_worker=1,
            memory_limit=MEMORY_LIMIT // workers,
            host="127.0.0.1",
            security=Security.temporary(),
            dashboard_address=None,
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
            local_directory=str(folder),
            silence_logs=logging.CRITICAL,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    try:
        yield cluster
    finally:
        with uninterrupted():
            cluster.close(timeout=_CLOSE_S)


def _refuse_others(address: str, client: Client) -> None:
    found = client.get_versions(packages=list(VERSIONED))
    assert isinstance(found, dict), "the client is no asynchronous one"
    ours = found["client"]["packages"]
    # The scheduler too: it looks into the tasks that it hands on.
    sides = {f"the scheduler {address}": found["scheduler"]}
    sides |= {f"the worker {worker}": its for worker, its in found["workers"].items()}
    for side, its in sides.items():
        if differing := differing_versions(ours, its["packages"]):
            raise ClusterError(
                f"{side}: {differing}",
                code="versions-differ",
                hint="install the same versions on all machines",
            )


def differing_versions(expected: Mapping[str, str | None], got: Mapping[str, str | None]) -> str:
    """Say which of `VERSIONED` are not as expected; empty where all are.

    >>> ours = {"tailscope": "0.1.0", "dask": "2026.8.0", "distributed": "2026.8.0"}
    >>> differing_versions(ours, {**ours, "dask": None})
    'dask: expected 2026.8.0, got none'
    """
    return ", ".join(
        f"{name}: expected {expected[name]}, got {got.get(name) or 'none'}"
        for name in VERSIONED
        if got.get(name) != expected[name]
    )
