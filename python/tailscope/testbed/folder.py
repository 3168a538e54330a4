"""The private folder of one measurement: sockets, shared memory, recordings, logs."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tailscope.signals import uninterrupted
from tailscope.testbed.removal import remove_tree

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX = "tailscope-"
_NAME = re.compile(rf"{_PREFIX}(\d+)-[0-9a-f]{{8}}")
_KEPT = "-recording"
"""Ends the name of what was recorded in a folder, and is kept."""
_NEW = re.compile(r"\.[0-9a-f]{8}")
"""Ends the name of a folder while its lock is not held yet."""
LOCK = "lock"
"""The file by which a measurement holds its folder."""
_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Opens what may be another user's: nothing is followed, waited for or written."""
_LOOKS, _LOOK_S = 100, 0.01


class Folder:
    """A folder of a measurement, or of a part of one."""

    def __init__(self, name: str, path: Path) -> None:
        self.name, self.path = name, path

    def make(self, name: str) -> Path:
        """Make a folder within."""
        path = self.path / name
        path.mkdir(mode=0o700)
        return path

    def part(self, name: str) -> Folder:
        """Make a folder within that has a name of its own."""
        return Folder(f"{self.name}-{name}", self.make(name))


class RunFolder(Folder):
    """A folder that only its owner can enter, gone when the block ends.

    Its lock is held from before it has its name until it is gone, so that what a crash left behind
    can be told from what is in use (`is_held`). Everything else that belongs to a measurement, such
    as network namespaces, carries the `name` of its folder.
    """

    def __init__(self) -> None:
        name = f"{_PREFIX}{os.getuid()}-{secrets.token_hex(4)}"
        super().__init__(name, _base() / name)
        self._lock = -1

    @property
    def spare(self) -> Path:
        """Where to keep what was recorded in it, if the run directory does not take it."""
        return self.path.with_name(f"{self.name}{_KEPT}")

    def __enter__(self) -> Self:
        try:
            with uninterrupted():
                while (lock := _made(self.path)) is None:
                    pass
                self._lock = lock
        except KeyboardInterrupt:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        with uninterrupted():
            with suppress(OSError):
                remove_tree(self.path, last=LOCK)
            os.close(self._lock)


def _made(path: Path) -> int | None:
    """Make a folder and return its lock, held; None if somebody cleaned it away before it was.

    It has another name until then: under its own, a lock that nobody holds means a crash.
    """
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    with ExitStack() as undo:
        new.mkdir(mode=0o700)
        undo.callback(shutil.rmtree, new, ignore_errors=True)
        try:
            flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC
            lock = os.open(new / LOCK, flags, 0o600)
            undo.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.fstat(lock).st_nlink == 0:
                return None
            new.rename(path)
        except FileNotFoundError:
            return None
        undo.pop_all()
        return lock


def find_folders() -> Iterator[Path]:
    """Find the folders of measurements, dead or alive, that this user may remove.

    Those that are being made are among them. What has such a name but not the owner and the lock
    that tailscope gives it is not.
    """
    for base in _bases():
        with suppress(OSError):
            for path in sorted(base.iterdir()):
                owner = owner_of(_named(path.name))
                if owner is not None and may_remove(owner) and _is_made(path):
                    yield path


def find_recordings() -> list[Path]:
    """Find what measurements of this user, or for root of all, have kept beside their folders."""
    found = []
    for base in _bases():
        with suppress(OSError):
            for path in sorted(base.glob(f"{_PREFIX}*{_KEPT}*")):
                owner = owner_of(path.name)
                if owner is not None and may_remove(owner) and path.is_dir():
                    found.append(path)
    return found


def folders_of(name: str) -> list[Path]:
    """Where this user would look for the folder of a measurement."""
    return [base / name for base in _bases()]


def owner_of(name: str) -> str | None:
    """The name of the measurement to which a thing of this name belongs, if any."""
    found = _NAME.match(name)
    return found[0] if found and name[found.end() :][:1] in ("", "-") else None


def may_remove(owner: str) -> bool:
    """Whether this user may remove what belongs to a measurement."""
    return os.geteuid() in (0, _user_of(owner))


def is_held(path: Path) -> bool | None:
    """Whether somebody holds the lock of a measurement's folder.

    Where this user must not look, somebody may; None where there is no such folder.
    """
    try:
        with _opened_lock(path) as lock:
            return not _locked(lock, fcntl.LOCK_SH)
    except PermissionError:
        return True
    except FileNotFoundError:
        return False if path.is_dir() else None
    except OSError:
        return None


def remove_dead(path: Path) -> bool:
    """Remove the folder of a measurement; whether it was a dead one that nobody else removed.

    The lock is held meanwhile: one who is about to begin here waits, and makes another folder.
    """
    with ExitStack() as stack:
        try:
            lock = stack.enter_context(_opened_lock(path))
        except FileNotFoundError:
            if _NEW.fullmatch(path.suffix):
                return _removed_empty(path)
        else:
            if not _taken(lock) or os.fstat(lock).st_nlink == 0:
                return False
        try:
            remove_tree(path, last=LOCK)
        except FileNotFoundError:
            return False
        return True


def _bases() -> list[Path]:
    return list(dict.fromkeys((_base(), Path(tempfile.gettempdir()))))


def _base() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.access(runtime, os.W_OK | os.X_OK):
        return Path(runtime)
    return Path(tempfile.gettempdir())


def _named(name: str) -> str:
    """What a folder is called, or will be when it is made; empty if that is no measurement's."""
    found = _NAME.match(name)
    if found is None or not (found.end() == len(name) or _NEW.fullmatch(name, found.end())):
        return ""
    return found[0]


def _user_of(owner: str) -> int:
    found = _NAME.match(owner)
    assert found is not None, "it is the name of a measurement"
    return int(found[1])


def _is_made(path: Path) -> bool:
    """Whether a folder and the lock in it are as tailscope makes them."""
    user = _user_of(path.name)
    try:
        folder = path.lstat()
        if not stat.S_ISDIR(folder.st_mode) or folder.st_uid != user:
            return False
        with suppress(FileNotFoundError):
            lock = (path / LOCK).lstat()
            return stat.S_ISREG(lock.st_mode) and lock.st_uid == user
    except OSError:
        return False
    return True


@contextmanager
def _opened_lock(path: Path) -> Iterator[int]:
    """Open the lock of a folder without believing that a measurement made it."""
    with ExitStack() as stack:
        folder = os.open(path, _LOOK | os.O_DIRECTORY)
        stack.callback(os.close, folder)
        lock = os.open(LOCK, _LOOK, dir_fd=folder)
        stack.callback(os.close, lock)
        found = os.fstat(lock)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.fstat(folder).st_uid:
            raise OSError(errno.EINVAL, "not made by tailscope", str(path / LOCK))
        yield lock


def _taken(lock: int) -> bool:
    """Take a lock that others at most look at; whether nobody holds it.

    Who looks holds it for a moment, too, but shares it.
    """
    for _ in range(_LOOKS):
        if _locked(lock, fcntl.LOCK_EX):
            return True
        if not _locked(lock, fcntl.LOCK_SH):
            return False
        time.sleep(_LOOK_S)
    return False


def _locked(lock: int, how: int) -> bool:
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _removed_empty(path: Path) -> bool:
    with suppress(OSError):
        path.rmdir()
        return True
    return False
