"""Files and folders that are either whole or not there.

Until it is whole, something is called ``.NAME.XXXXXXXX.tailscope-part`` in its folder, and its
writer holds a lock on it. The kernel releases the lock of a writer that dies: what is not locked
was left behind. The next writer in the folder removes it, or ``tailscope runs clean``.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SUFFIX = ".tailscope-part"

_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_HERE, _EXCHANGE = -100, 2
"""What ``renameat2`` takes for the working directory, and for two names that change places."""


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let an error of the system that names no file name this one."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that appears under its name when the block ends well, and never otherwise."""
    path = Path(path).resolve()
    if path.exists() and not path.is_file() and not path.is_dir():
        with naming(path), path.open("wb") as file:
            yield file
        return
    with _temporary(path) as (temporary, handle):
        try:
            with os.fdopen(os.dup(handle), "wb") as file:
                yield file
                file.flush()
                os.fsync(handle)
            temporary.replace(path)
        except OSError as error:
            if error.filename in (None, str(temporary)):
                error.filename = str(path)
            raise
    sync_folder(path.parent)


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Fill a folder that appears under its name when the block ends well, and never otherwise.

    Its files are synced by whoever writes them. What had the name before is removed.
    """
    path = Path(path).resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    with temporary_folder(path) as temporary:
        yield temporary
        sync_folder(temporary)
        if path.exists():
            shutil.copymode(path, temporary)
            _exchange(temporary, path)
        else:
            temporary.rename(path)
    sync_folder(path.parent)


@contextmanager
def temporary_folder(path: Path, mode: int = 0o777) -> Iterator[Path]:
    """Have a folder beside a path for a block, or until this process is killed."""
    with _temporary(path, mode) as (temporary, _):
        yield temporary


def write_bytes(path: Path, content: bytes) -> None:
    """Write a whole file, or nothing."""
    with replacing(path) as file:
        file.write(content)


def write_text(path: Path, content: str) -> None:
    """Write a whole UTF-8 file, or nothing."""
    write_bytes(path, content.encode("utf-8", "backslashreplace"))


def sync_folder(folder: Path) -> None:
    """Have the names in a folder outlast a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with naming(folder):
            os.fsync(handle)
    finally:
        os.close(handle)


def is_temporary(name: str) -> bool:
    """Return whether this is the name of what is not whole yet."""
    return name.startswith(".") and name.endswith(SUFFIX)


def remove_leftovers(folder: Path, *, dry_run: bool = False) -> list[Path]:
    """Remove from a folder what writers have left that were killed; return it."""
    with suppress(OSError):
        found = sorted(path for path in folder.iterdir() if is_temporary(path.name))
        return [path for path in found if _was_left(path, dry_run=dry_run)]
    return []


def leftovers_below(folder: Path, *, dry_run: bool = False) -> Iterator[Path]:
    """Remove what was left behind in a folder and in those within."""
    for inner, _, _ in os.walk(folder):
        yield from remove_leftovers(Path(inner), dry_run=dry_run)


@contextmanager
def _temporary(path: Path, folder_mode: int | None = None) -> Iterator[tuple[Path, int]]:
    """Hold a file, or a folder of a mode; at the end it has its name, or is removed."""
    remove_leftovers(path.parent)
    while (held := _held(path, folder_mode)) is None:
        pass
    try:
        yield held
    finally:
        _remove(held[0])
        os.close(held[1])


def _held(path: Path, folder_mode: int | None) -> tuple[Path, int] | None:
    """Make and lock it; None if another writer took it for a leftover in between."""
    temporary = path.with_name(f".{path.name[:200]}.{os.urandom(4).hex()}{SUFFIX}")
    made = False
    try:
        if folder_mode is not None:
            temporary.mkdir(folder_mode)
            made = True
        handle = os.open(temporary, _NEW if folder_mode is None else _LOOK, 0o666)
    except OSError as error:
        if made and isinstance(error, FileNotFoundError):
            return None
        error.filename = str(path)
        raise
    # A disk without locks has no leftovers either: nobody can tell them.
    with suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_EX)
    if os.fstat(handle).st_nlink:
        return temporary, handle
    os.close(handle)
    return None


def _exchange(new: Path, old: Path) -> None:
    """Let two folders change their names at once, so that one of them always has each."""
    call = ctypes.CDLL(None, use_errno=True).renameat2
    if call(_HERE, os.fsencode(new), _HERE, os.fsencode(old), _EXCHANGE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(old))


def _was_left(path: Path, *, dry_run: bool) -> bool:
    with suppress(OSError):
        handle = os.open(path, _LOOK)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return dry_run or _remove(path)
        finally:
            os.close(handle)
    return False


def _remove(path: Path) -> bool:
    """Remove a file or a folder as far as possible; return whether it is gone."""
    with suppress(OSError):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    return not os.path.lexists(path)
