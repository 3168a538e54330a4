"""Removal of what dead measurements left behind, such as processes, folders and namespaces."""

from __future__ import annotations

import errno
import os
import select
import signal
from collections import defaultdict
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tailscope.exceptions import TestbedError
from tailscope.store.atomic import remove_leftovers
from tailscope.testbed.containers import container_names, lock_folders, remove_cgroups
from tailscope.testbed.folder import (
    LOCK,
    bases,
    find_folders,
    folders_of,
    is_held,
    may_remove,
    owner_of,
    remove_dead,
)
from tailscope.testbed.places import FOLDER, MARK
from tailscope.testbed.removal import remove_tree
from tailscope.testbed.tasks import environment_of, processes, status_of
from tailscope.testbed.tracefs import instances, remove_leftover, tracefs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    _Identity = tuple[int, int]

_END_S = 5.0
_GONE = " (deleted)"
_FIRST_PIDS = 0xEFFFFFFC
"""Inode of the process namespace in which all processes are visible."""


class Leftover(NamedTuple):
    """Something that a dead measurement left behind."""

    what: str
    """Description of the leftover."""
    reason: str | None = None
    """Reason why it is still there; None if it was removed, or in a dry run."""

    @property
    def sentence(self) -> str:
        """Return what to say to whoever did not ask for cleaning."""
        became = "removed" if self.reason is None else f"cannot be removed: {self.reason}"
        return f"left by a measurement that was killed: {self.what}: {became}"


@dataclass(frozen=True)
class _Thing:
    """Something that belongs to a measurement, dead or alive."""

    owners: frozenset[str]
    """Names of the measurements to which it may belong."""
    what: str
    remove: Callable[[], bool]
    """Function that removes it, and returns True if it was still there."""
    folders: tuple[Path, ...] = ()
    """Further places where the folder of the measurement may be."""


class _Marked(NamedTuple):
    """A process that a measurement started."""

    pid: int
    owner: str
    words: list[str]
    folders: tuple[Path, ...]


def clean(*, dry_run: bool = False) -> Iterator[Leftover]:
    """Remove what dead measurements left behind, and nothing of those that run."""
    with ExitStack() as stack:
        things = list(_things(stack))
        # A measurement holds its lock before it makes anything. Who is dead is therefore decided
        # after the things are listed: the owner of each is seen to live, or has died.
        dead = _dead(things)
        for thing in things:
            if thing.owners <= dead:
                yield from [Leftover(thing.what)] if dry_run else _removed(thing)
    for base in bases():
        yield from (Leftover(str(path)) for path in remove_leftovers(base, dry_run=dry_run))


def clean_if_dead() -> Iterator[Leftover]:
    """Remove what dead measurements left behind, if the folder of one is there.

    This is for what is about to measure: a tracer that was left behind goes on taking time of its
    CPUs, and recordings take memory. To look for a folder costs next to nothing.
    """
    if any(is_held(path) is False for path in find_folders()):
        yield from clean()


def _removed(thing: _Thing) -> Iterator[Leftover]:
    try:
        if thing.remove():
            yield Leftover(thing.what)
    except (FileNotFoundError, ProcessLookupError):
        pass  # Another process removed it first.
    except OSError as error:
        name = f"{os.fsdecode(error.filename)}: " if error.filename is not None else ""
        yield Leftover(thing.what, f"{name}{error.strerror}")


def _dead(things: Iterable[_Thing]) -> set[str]:
    """Return the measurements that do not hold their lock.

    A lock counts wherever it is: a measurement may have a private file system. If processes are
    out of sight, as from within a container, only a folder whose lock is free proves a death.
    """
    holders, sees_all = _holders()
    folders: defaultdict[str, set[Path]] = defaultdict(set)
    for thing in things:
        for owner in thing.owners:
            folders[owner].update(folders_of(owner), thing.folders)
    dead = set()
    for owner in folders.keys() - holders:
        held = set(map(is_held, folders[owner]))
        if True not in held and (sees_all or False in held):
            dead.add(owner)
    return dead


def _holders() -> tuple[set[str], bool]:
    """Return the measurements whose lock some process has open, and whether all are visible."""
    holders = set()
    own = _identity(Path("/proc/self/ns/pid"))
    sees_all = own is None or own[1] == _FIRST_PIDS
    for pid in processes():
        try:
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    path = link.readlink()
                    name = path.parent.name
                    if path.name.removesuffix(_GONE) == LOCK and owner_of(name) == name:
                        holders.add(name)
        except PermissionError:
            sees_all = sees_all and not _is_ours(pid)
        except OSError:
            pass  # The process has ended.
    return holders, sees_all


def _is_ours(pid: int) -> bool:
    users = status_of(pid).get("Uid", "").split()
    return os.geteuid() == 0 or str(os.getuid()) in users


def _things(stack: ExitStack) -> Iterator[_Thing]:
    """Find everything of measurements, dead or alive, that this user may remove."""
    marked = list(_marked())
    for left in marked:
        end = partial(_end, left.pid, partial(_is_marked, left.pid, left.owner))
        what = f"process {left.pid}: {Path(left.words[0]).name}"
        yield _Thing(frozenset({left.owner}), what, end, left.folders)
    yield from _namespaces({left.pid for left in marked})
    yield from _tracers(stack)
    if os.geteuid() == 0:
        yield from _containers(marked)
        for path in lock_folders():
            what = f"locks of containers {path}"
            yield _Thing(frozenset({path.name}), what, partial(_remove_locks, path))
    # Folders come last: if cleaning is cut short, they still tell the next one who is dead.
    for path in find_folders():
        yield _Thing(frozenset({path.name}), str(path), partial(remove_dead, path), (path,))


def _marked() -> Iterator[_Marked]:
    """Find the processes of measurements, as far as this user may look."""
    for pid in processes():
        # Tasks of the kernel and processes of other users show no environment.
        environment = environment_of(pid)
        owner = owner_of(environment.get(MARK, ""))
        if owner is None or not may_remove(owner):
            continue
        with suppress(OSError):
            words = os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes()).split("\0")
            if words[0]:
                yield _Marked(pid, owner, words, _folders(pid, environment, owner))


def _folders(pid: int, environment: dict[str, str], owner: str) -> tuple[Path, ...]:
    """Return the measurement's folder in a process's environment, by the path of that process."""
    folder = Path(environment.get(FOLDER, ""))
    paths = (path for path in (folder, *folder.parents) if path.name == owner)
    return tuple(Path(f"/proc/{pid}/root/{path}") for path in paths)


def _is_marked(pid: int, owner: str) -> bool:
    return owner_of(environment_of(pid).get(MARK, "")) == owner


def _namespaces(marked: set[int]) -> Iterator[_Thing]:
    """Find network namespaces, and the processes in them that have no mark."""
    from pyroute2 import netns

    members = _members()
    for name in sorted(netns.listnetns()):
        owner = owner_of(name)
        if owner is None or not may_remove(owner):
            continue
        namespace = _identity(Path(netns.NETNS_RUN_DIR, name))
        for pid in sorted(members[namespace] - marked):
            end = partial(_end, pid, partial(_is_in, pid, namespace))
            what = f"process {pid} in network namespace {name}"
            yield _Thing(frozenset({owner}), what, end)
        remove = partial(_remove_namespace, name)
        yield _Thing(frozenset({owner}), f"network namespace {name}", remove)


def _members() -> defaultdict[_Identity | None, set[int]]:
    """Return the processes in each network namespace but our own."""
    members: defaultdict[_Identity | None, set[int]] = defaultdict(set)
    for pid in processes():
        members[_identity(Path(f"/proc/{pid}/ns/net"))].add(pid)
    for other in (_identity(Path("/proc/self/ns/net")), None):
        members.pop(other, None)
    return members


def _identity(path: Path) -> _Identity | None:
    with suppress(OSError):
        status = path.stat()
        return status.st_dev, status.st_ino
    return None


def _is_in(pid: int, namespace: _Identity | None) -> bool:
    return _identity(Path(f"/proc/{pid}/ns/net")) == namespace


def _remove_namespace(name: str) -> bool:
    from pyroute2 import netns

    netns.remove(name)
    return True


def _tracers(stack: ExitStack) -> Iterator[_Thing]:
    """Find instances of the kernel's tracer, if there is one."""
    try:
        root = stack.enter_context(tracefs())
    except TestbedError:
        return
    for name in instances(root):
        owner = owner_of(name)
        if owner is not None and may_remove(owner):
            remove = partial(remove_leftover, root, name)
            yield _Thing(frozenset({owner}), f"kernel tracer {name}", remove)


def _containers(marked: Iterable[_Marked]) -> Iterator[_Thing]:
    """Find control groups of containers; a container with a chosen name belongs to its keeper."""
    keepers: defaultdict[str, set[str]] = defaultdict(set)
    for left in marked:
        if Path(left.words[0]).name == "lxc-execute" and "-n" in left.words[:-1]:
            keepers[left.words[left.words.index("-n") + 1]].add(left.owner)
    for name in sorted(container_names()):
        owner = owner_of(name)
        owners = keepers[name] | (set() if owner is None else {owner})
        if owners:
            remove = partial(remove_cgroups, name)
            yield _Thing(frozenset(owners), f"groups of container {name}", remove)


def _remove_locks(path: Path) -> bool:
    remove_tree(path)
    return True


def _end(pid: int, is_meant: Callable[[], bool]) -> bool:
    """End a process, and return True if it was the right one: process numbers are used again."""
    handle = os.pidfd_open(pid)
    try:
        if not is_meant():
            return False
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        end = select.poll()
        end.register(handle, select.POLLIN)
        if not end.poll(_END_S * 1000):
            raise TimeoutError(errno.ETIMEDOUT, f"it did not end within {_END_S:g} s")
    finally:
        os.close(handle)
    return True
