"""Locks of directories: only the process that holds one may write.

Runs and campaigns are written where they are read later, and the lock is held from before the first
file until behind the last one. So no two processes ever write into one directory, and what one of
them takes back is its own. The kernel releases the lock of a process that dies: then the directory
is free again, and what is in it tells the next owner what to do with it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from tailscope.exceptions import RunExistsError
from tailscope.signals import uninterrupted
from tailscope.store.atomic import SUFFIX, is_temporary

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOCK = f".owner{SUFFIX}"
"""The file in a directory that its owner has locked; it is there only as long as there is one."""

_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
_HELD = (errno.EWOULDBLOCK, errno.EACCES)
_LOOKS, _LOOK_S = 5, 0.01
"""Who looks whether a lock was left behind holds it for a moment."""


@contextmanager
def owned(path: Path) -> Iterator[None]:
    """Own a directory within a block; remove it at the end if it was made and is still empty."""
    was_made, lock = not path.exists(), None
    try:
        with uninterrupted():
            lock = _taken(path)
        yield
    finally:
        if lock is not None:
            with suppress(OSError):
                # Where it was removed with its directory, another one's may be there by now.
                if os.fstat(lock).st_nlink:
                    (path / LOCK).unlink()
                if was_made:
                    path.rmdir()
            os.close(lock)


def refuse_owned(path: Path) -> None:
    """Refuse to work on a directory that another process owns."""
    try:
        lock = os.open(path / LOCK, _FLAGS)
    except OSError:
        return
    try:
        _lock(lock, path)
        if os.fstat(lock).st_nlink:
            (path / LOCK).unlink()
    finally:
        os.close(lock)


def is_owned(path: Path) -> bool:
    """Return whether a process owns a directory."""
    try:
        lock = os.open(path / LOCK, _FLAGS)
    except OSError:
        return False
    try:
        _lock(lock, path)
    except RunExistsError:
        return True
    finally:
        os.close(lock)
    return False


def is_vacant(path: Path) -> bool:
    """Return whether there is nothing in a directory but what an owner that has died began with."""
    return all(is_temporary(each.name) for each in path.iterdir())


def _taken(path: Path) -> int:
    while True:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            lock = os.open(path / LOCK, _FLAGS | os.O_CREAT, 0o600)
        except FileNotFoundError:
            continue  # Its owner has just removed it.
        try:
            _lock(lock, path)
        except BaseException:
            os.close(lock)
            raise
        if os.fstat(lock).st_nlink:
            return lock
        os.close(lock)  # Its owner has just let go of it.


def _lock(lock: int, path: Path) -> None:
    """Lock the file of a directory; on a disk without locks, nobody else has."""
    for look in range(_LOOKS):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _HELD:
                return
        else:
            return
        if look + 1 < _LOOKS:
            time.sleep(_LOOK_S)
    raise RunExistsError(
        f"{path}: another process is working on it",
        code="run-in-use",
        hint="wait until it has ended, or choose another directory",
    )
