"""The private folder of a measurement, with sockets, shared memory, recordings and logs."""

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
from tailscope.store.atomic import temporary_folder
from tailscope.testbed.removal import remove_tree

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX = "tailscope-"
_NAME = re.compile(rf"{_PREFIX}(\d+)-[0-9a-f]{{8}}")
_OF_DPDK = re.compile(r"[][,=]")
"""Characters by which DPDK splits an option, such as one that names a socket in the folder."""
_IN_MEMORY = "/dev/shm"  # noqa: S108 - the folder in it is private
_LAST_BASES = ("/tmp", _IN_MEMORY)  # noqa: S108 - likewise
_RECORDING = "-recording"
"""Suffix of the name of a recording that is kept beside the folder."""
LOCK = "lock"
"""Name of the file that a measurement locks to hold its folder."""
_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Flags to open what may be another user's, without following, waiting or writing."""
_LOOKS, _LOOK_S = 100, 0.01


class Folder:
    """A folder of a measurement, or of a part of it."""

    def __init__(self, name: str, path: Path) -> None:
        self.name, self.path = name, path

    def make(self, name: str) -> Path:
        """Make a folder inside this one."""
        path = self.path / name
        path.mkdir(mode=0o700)
        return path

    def part(self, name: str) -> Folder:
        """Make a folder with its own name inside this one."""
        return Folder(f"{self.name}-{name}", self.make(name))


class RunFolder(Folder):
    """A folder that only its owner can enter, removed when the block ends.

    Its lock is held from before it has its name until it is removed. This tells what a crash left
    behind from what is in use (`is_held`). Everything else that belongs to a measurement, such as
    network namespaces, carries the `name` of its folder. It is in memory if that is asked to have
    room for so many bytes, and has.
    """

    def __init__(self, *, on_disk: bool = False, memory_bytes: int = 0) -> None:
        name = f"{_PREFIX}{os.getuid()}-{secrets.token_hex(4)}"
        base = Path(tempfile.gettempdir()) if on_disk else _base(memory_bytes)
        super().__init__(name, base / name)
        self._lock = -1

    @property
    def spare(self) -> Path:
        """Return the place for a recording that the run directory does not take."""
        return self.path.with_name(f"{self.name}{_RECORDING}")

    def __enter__(self) -> Self:
        try:
            with uninterrupted():
                self._lock = _made(self.path)
        except KeyboardInterrupt:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        with uninterrupted():
            with suppress(OSError):
                remove_tree(self.path, last=LOCK)
            os.close(self._lock)


def _made(path: Path) -> int:
    """Make a folder and return its held lock: under its name, a free lock means a crash."""
    with temporary_folder(path, 0o700) as new:
        lock = os.open(new / LOCK, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            new.rename(path)
        except BaseException:
            os.close(lock)
            raise
        return lock


def find_folders() -> Iterator[Path]:
    """Find the folders of measurements, dead or alive, that this user may remove.

    This excludes those whose owner or lock is not as tailscope makes them.
    """
    for base in bases():
        with suppress(OSError):
            for path in sorted(base.iterdir()):
                if _NAME.fullmatch(path.name) and may_remove(path.name) and _is_made(path):
                    yield path


def find_recordings() -> list[Path]:
    """Find the recordings beside the folders of this user's measurements; root finds all."""
    recordings = []
    for base in bases():
        with suppress(OSError):
            for path in sorted(base.glob(f"{_PREFIX}*{_RECORDING}*")):
                owner = owner_of(path.name)
                if owner is not None and may_remove(owner) and path.is_dir():
                    recordings.append(path)
    return recordings


def folders_of(name: str) -> list[Path]:
    """Return the places where the folder of a measurement may be for this user."""
    return [base / name for base in bases()]


def owner_of(name: str) -> str | None:
    """Return the name of the measurement to which something of this name belongs, if any."""
    owner = _NAME.match(name)
    return owner[0] if owner and name[owner.end() :][:1] in ("", "-") else None


def may_remove(owner: str) -> bool:
    """Return True if this user may remove what belongs to a measurement."""
    return os.geteuid() in (0, _user_of(owner))


def is_held(path: Path) -> bool | None:
    """Return True if some process holds the lock of a measurement's folder.

    The result is True as well if this user may not look, and None if there is no such folder.
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
    """Remove the folder of a dead measurement, and return True if this call removed it.

    The lock is held meanwhile: a measurement that is about to start waits, and makes another one.
    """
    with ExitStack() as stack:
        with suppress(FileNotFoundError):
            lock = stack.enter_context(_opened_lock(path))
            if not _taken(lock) or os.fstat(lock).st_nlink == 0:
                return False
        try:
            remove_tree(path, last=LOCK)
        except FileNotFoundError:
            return False
        return True


def bases() -> list[Path]:
    """Return where the folders of this user's measurements may be."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    bases = (*((runtime,) if runtime else ()), tempfile.gettempdir(), *_LAST_BASES)
    return [Path(base) for base in dict.fromkeys(bases)]


def _base(memory_bytes: int) -> Path:
    """Return the first folder for private folders that DPDK can name and another user does not own.

    Root has no way into a folder of another user once it has given its capabilities back.
    """
    for base in (*_in_memory(memory_bytes), *bases()):
        with suppress(OSError):
            is_own = base.stat().st_uid in (0, os.geteuid())
            if is_own and not _OF_DPDK.search(str(base)) and os.access(base, os.W_OK | os.X_OK):
                return base
    return Path(tempfile.gettempdir())


def _in_memory(needed_bytes: int) -> list[Path]:
    """Return the folder in memory if so much is needed and fits; a container's may be small."""
    with suppress(OSError):
        if 0 < needed_bytes <= shutil.disk_usage(_IN_MEMORY).free:
            return [Path(_IN_MEMORY)]
    return []


def _user_of(owner: str) -> int:
    name = _NAME.match(owner)
    assert name is not None, "it is the name of a measurement"
    return int(name[1])


def _is_made(path: Path) -> bool:
    """Return True if a folder and its lock are as tailscope makes them."""
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
    """Open the lock of a folder that may not be made by a measurement."""
    with ExitStack() as stack:
        folder = os.open(path, _LOOK | os.O_DIRECTORY)
        stack.callback(os.close, folder)
        lock = os.open(LOCK, _LOOK, dir_fd=folder)
        stack.callback(os.close, lock)
        status = os.fstat(lock)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.fstat(folder).st_uid:
            raise OSError(errno.EINVAL, "not made by tailscope", str(path / LOCK))
        yield lock


def _taken(lock: int) -> bool:
    """Take a lock, and return True if no measurement holds it.

    A process that only looks at a lock holds it for a moment, too, but shares it.
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
