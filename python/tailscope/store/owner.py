"""Who may write into a directory: the one process that holds its lock.

Runs and campaigns are written where they are read later, and the lock is held from before the first
file until behind the last one. So no two processes ever write into one directory, and what one of
them takes back is its own. The kernel releases the lock of a process that dies: then the directory
is free again, and what is in it tells the next owner what to do with it.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from tailscope.exceptions import RunExistsError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["LOCK", "holds_only_lock", "is_owned", "owned"]

LOCK = ".lock"
"""The file in a directory that its owner has locked; it is there only as long as there is one."""

_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
_HELD = (errno.EWOULDBLOCK, errno.EACCES)


@contextmanager
def owned(path: Path) -> Iterator[None]:
    """Own a directory within a block; one that was made and is still empty at its end is removed.

    Parameters
    ----------
    path : Path
        Made, with access for its owner only, if it is not there.

    Raises
    ------
    RunExistsError
        If another process owns it.
    """
    was_made = not path.exists()
    lock = _taken(path)
    try:
        yield
    finally:
        with suppress(OSError):
            (path / LOCK).unlink()
            if was_made:
                path.rmdir()
        os.close(lock)


def is_owned(path: Path) -> bool:
    """Whether a process owns a directory."""
    try:
        lock = os.open(path / LOCK, _FLAGS)
    except OSError:
        return False
    try:
        return not _locked(lock)
    finally:
        os.close(lock)


def holds_only_lock(path: Path) -> bool:
    """Whether there is nothing in a directory but perhaps its lock."""
    return all(each.name == LOCK for each in path.iterdir())


def _taken(path: Path) -> int:
    while True:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            lock = os.open(path / LOCK, _FLAGS | os.O_CREAT, 0o600)
        except FileNotFoundError:
            continue  # Its owner has just removed it.
        if not _locked(lock):
            os.close(lock)
            raise RunExistsError(
                f"{path}: another process is working on it",
                hint="wait until it has ended, or choose another directory",
            )
        if os.fstat(lock).st_nlink:
            return lock
        os.close(lock)  # Its owner has just let go of it.


def _locked(lock: int) -> bool:
    """Lock a file; whether nobody else has. On a disk without locks, nobody has."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in _HELD
    return True
