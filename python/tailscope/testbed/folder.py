"""The private folder of one measurement: sockets, shared memory, recordings, logs."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tailscope.signals import uninterrupted

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LOCK", "Folder", "RunFolder", "find_leftovers", "is_dead", "owner_of"]

_PREFIX = "tailscope-"
_NAME = re.compile(rf"{_PREFIX}\d+-[0-9a-f]{{8}}")
LOCK = "lock"
"""The file by which a measurement holds its folder."""


class Folder:
    """A folder of a measurement, or of a part of one.

    Attributes
    ----------
    name : str
        What everything else that belongs to it is called by, such as network namespaces.
    path : Path
    """

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

    Its lock is held for as long as the process lives, so that what a crash left behind can be told
    from what is in use (`find_leftovers`). Everything else that belongs to a measurement, such as
    network namespaces, carries the `name` of its folder.
    """

    def __init__(self) -> None:
        name = f"{_PREFIX}{os.getuid()}-{secrets.token_hex(4)}"
        super().__init__(name, _base() / name)
        self._lock = -1

    def __enter__(self) -> Self:
        try:
            with uninterrupted():
                self.path.mkdir(mode=0o700)
                flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC
                self._lock = os.open(self.path / LOCK, flags, 0o600)
                fcntl.flock(self._lock, fcntl.LOCK_EX)
        except KeyboardInterrupt:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        with uninterrupted():
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)


def find_leftovers() -> Iterator[Path]:
    """Find the folders of dead measurements that this user may remove."""
    for base in _bases():
        for path in sorted(base.glob(f"{_PREFIX}*-*")):
            ours = _NAME.fullmatch(path.name) and path.is_dir() and not path.is_symlink()
            if ours and _may_enter(path) and is_dead(path):
                yield path


def owner_of(name: str) -> str | None:
    """The name of the measurement to which a thing of this name belongs, if any."""
    found = _NAME.match(name)
    return found[0] if found and name[found.end() :][:1] in ("", "-") else None


def _bases() -> list[Path]:
    return list(dict.fromkeys((_base(), Path(tempfile.gettempdir()))))


def _base() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.access(runtime, os.W_OK | os.X_OK):
        return Path(runtime)
    return Path(tempfile.gettempdir())


def _may_enter(path: Path) -> bool:
    return os.getuid() in (0, path.stat().st_uid)


def is_dead(path: Path) -> bool:
    """Whether nobody holds the lock of a measurement's folder."""
    try:
        lock = os.open(path / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(lock)
