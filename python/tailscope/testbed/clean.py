"""What dead measurements left behind: processes, folders, namespaces, groups of containers."""

from __future__ import annotations

import os
import shutil
import signal
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tailscope.exceptions import TestbedError
from tailscope.testbed.containers import container_names, remove_cgroups
from tailscope.testbed.folder import LOCK, find_leftovers, is_dead, owner_of
from tailscope.testbed.places import FOLDER, MARK
from tailscope.testbed.tasks import environment_of, processes, status_of
from tailscope.testbed.tracefs import instances, remove_instance, tracefs

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["clean"]

_END_S = 5.0


class _Left(NamedTuple):
    """A process of a measurement."""

    pid: int
    owner: str
    words: list[str]


def clean(*, dry_run: bool = False) -> Iterator[str]:
    """Remove what dead measurements left behind; those that run are left alone.

    Parameters
    ----------
    dry_run : bool
        Only say what there is.

    Yields
    ------
    str
        Each thing that was removed.
    """
    processes = list(_marked())
    containers = {_container(left.words) for left in processes} - {None}
    for left in processes:
        if not dry_run:
            _kill(left.pid)
        yield f"process {left.pid}: {Path(left.words[0]).name}"
    for path in find_leftovers():
        if not dry_run:
            shutil.rmtree(path)
        yield str(path)
    if os.geteuid() != 0:
        return
    live = _live()
    yield from _clean_namespaces(live, dry_run=dry_run)
    yield from _clean_tracers(live, dry_run=dry_run)
    for name in container_names():
        owner = owner_of(name)
        if name in containers or (owner is not None and owner not in live):
            if not dry_run:
                remove_cgroups(name)
            yield f"groups of container {name}"


def _clean_namespaces(live: set[str], *, dry_run: bool) -> Iterator[str]:
    """Remove namespaces of measurements that are not `live`, and who is in them."""
    from pyroute2 import netns

    for name in netns.listnetns():
        owner = owner_of(name)
        if owner is None or owner in live:
            continue
        for process in _processes_in(name):
            if not dry_run:
                _kill(process)
            yield f"process {process} in network namespace {name}"
        if not dry_run:
            with suppress(OSError):
                netns.remove(name)
        yield f"network namespace {name}"


def _clean_tracers(live: set[str], *, dry_run: bool) -> Iterator[str]:
    """Remove instances of the tracer of measurements that are not `live`, where there is one."""
    with ExitStack() as stack:
        try:
            root = stack.enter_context(tracefs())
        except TestbedError:
            return
        for name in instances(root):
            owner = owner_of(name)
            if owner is None or owner in live:
                continue
            if not dry_run:
                try:
                    remove_instance(root, name)
                except OSError as error:
                    raise TestbedError(
                        f"kernel tracer {name}: it cannot be removed: {error.strerror}",
                        hint="end the process that reads from it, and clean again",
                    ) from None
            yield f"kernel tracer {name}"


def _live() -> set[str]:
    """Measurements whose lock some process has open, wherever their folders are."""
    found = set()
    for pid in processes():
        with suppress(OSError):
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    path = link.readlink()
                    if path.name == LOCK and owner_of(path.parent.name) is not None:
                        found.add(path.parent.name)
    return found


def _marked() -> Iterator[_Left]:
    """Processes that a dead measurement has started, as far as this user may look."""
    for pid in processes():
        with suppress(OSError):
            # A kernel's task, or another user's process, shows nothing.
            known = environment_of(pid)
            owner = owner_of(known.get(MARK, ""))
            words = os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes()).split("\0")
            if owner is not None and words[0] and not _lives(known, owner):
                yield _Left(pid, owner, words)


def _lives(environment: dict[str, str], owner: str) -> bool:
    """Whether the measurement runs, whose folder the process was told."""
    told = Path(environment.get(FOLDER, ""))
    folder = next((path for path in (told, *told.parents) if path.name == owner), None)
    return folder is not None and folder.is_dir() and not is_dead(folder)


def _container(words: list[str]) -> str | None:
    """The name of the container that a process keeps."""
    if Path(words[0]).name != "lxc-execute" or "-n" not in words:
        return None
    return words[words.index("-n") + 1]


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    deadline_s = time.monotonic() + _END_S
    while _exists(pid) and time.monotonic() < deadline_s:
        time.sleep(0.01)


def _exists(pid: int) -> bool:
    """Whether a process is there, and more than what its parent did not wait for."""
    return status_of(pid).get("State", "Z")[:1] != "Z"


def _processes_in(namespace: str) -> list[int]:
    from pyroute2.netns import NETNS_RUN_DIR

    with suppress(OSError):
        here = Path(NETNS_RUN_DIR, namespace).stat()
        return [pid for pid in processes() if _is_in(pid, here)]
    return []


def _is_in(pid: int, namespace: os.stat_result) -> bool:
    with suppress(OSError):
        own = Path(f"/proc/{pid}/ns/net").stat()
        return (own.st_dev, own.st_ino) == (namespace.st_dev, namespace.st_ino)
    return False
