"""Files of a run directory are input: reading one ends, whoever wrote it and whatever it is.

Only regular files are read. A pipe never ends, to open a device may do something by itself, and a
link leads to what the run does not hold. So no link within a directory is followed; the directory
itself may be reached through one.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager
from io import BufferedReader, FileIO
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final

from tailscope.exceptions import RunCorruptError
from tailscope.store import layout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _typeshed import WriteableBuffer

MOST_RECORD_BYTES: Final = 16 << 20
"""The most that is read of a JSON file."""

MOST_CAMPAIGN_BYTES: Final = 64 << 20
"""The most that is read of ``campaign.json``, which has an entry for each cell."""

MOST_NOISE_BYTES: Final = 1 << 30
"""The most that is read of ``noise.parquet`` where no checksum says how much it is."""

_HEAD_BYTES = 128

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a folder",
    stat.S_IFSOCK: "a socket",
}


def is_there(folder: Path, name: str) -> bool:
    """Return whether a directory has an entry of this name, whatever that is."""
    return os.path.lexists(folder / name)


def refuse_closed(folder: Path) -> None:
    """Raise `PermissionError` if this user may not look whether a folder holds a run."""
    try:
        os.lstat(folder / layout.RUN)
    except PermissionError:
        raise
    except (OSError, ValueError):
        return


def runs_at(path: Path) -> list[Path]:
    """A run itself, or the runs right below a folder, such as those of a watch."""
    if is_there(path, layout.RUN):
        return [path]
    return sorted(each.parent for each in path.glob(f"*/{layout.RUN}"))


def campaigns_below(path: Path) -> list[Path]:
    """The campaigns right below a folder that is no run."""
    if is_there(path, layout.RUN):
        return []
    return sorted(each.parent for each in path.glob(f"*/{layout.CAMPAIGN}"))


def named_below(path: Path, otherwise: str) -> str:
    """Return a hint that names a run right below a folder, if there is one."""
    below = runs_at(path)
    return f"runs are below it, such as {below[0]}" if below else otherwise


def holds_packets(run: Path) -> bool:
    """Return whether packets were recorded in a run directory, and it is known what they are."""
    if not is_there(run, layout.RECORDED):
        return False
    try:
        # The header of an array of which nothing was written yet.
        return b"(0,)" not in read_head(run, f"{layout.RECORDING}/departure_tsc.npy")
    except OSError:
        # A timestamper's captures.
        return True


def read_head(folder: Path, name: str) -> bytes:
    """Read the first bytes of a file."""
    with opened(folder, name) as file:
        return file.read(_HEAD_BYTES)


def size_of(folder: Path, name: str) -> int:
    """The size of a file in bytes."""
    with _place(folder, name) as (at, last):
        status = os.stat(last, dir_fd=at, follow_symlinks=False)
    _check_kind(status, folder / name)
    return status.st_size


def handle_of(folder: Path, name: str, flags: int = os.O_RDONLY) -> int:
    """Open a file; the caller closes it."""
    with _place(folder, name) as (at, last):
        _check_kind(os.stat(last, dir_fd=at, follow_symlinks=False), folder / name)
        handle = os.open(last, flags | _FILE, dir_fd=at)
    try:
        _check_kind(os.fstat(handle), folder / name)
    except BaseException:
        os.close(handle)
        raise
    return handle


def opened(folder: Path, name: str) -> BufferedReader:
    """Open a file for reading, as `handle_of`."""
    return BufferedReader(_NamedFile(handle_of(folder, name), folder / name))


class _NamedFile(FileIO):
    """A file that was opened by a descriptor, whose errors name it all the same."""

    def __init__(self, handle: int, path: Path) -> None:
        super().__init__(handle, "rb")
        self._path = path

    def readinto(self, buffer: WriteableBuffer) -> int | None:
        try:
            return super().readinto(buffer)
        except OSError as error:
            error.filename = str(self._path)
            raise


def read_file(folder: Path, name: str, *, most_bytes: int, size_bytes: int | None = None) -> bytes:
    """Read a whole file."""
    with opened(folder, name) as file:
        found = os.fstat(file.fileno()).st_size
        if size_bytes is not None and found != size_bytes:
            raise RunCorruptError(
                f"{folder / name}: size_bytes: expected {size_bytes}, got {found}",
                code="size-differs",
            )
        if found > most_bytes:
            raise RunCorruptError(
                f"{folder / name}: expected at most {most_bytes} bytes, got {found}",
                code="file-too-large",
            )
        return file.read(found)


@contextmanager
def _place(folder: Path, name: str) -> Iterator[tuple[int, str]]:
    """Open the folder that a file is in; gives it, and the last part of the name."""
    *inner, last = PurePath(name).parts
    try:
        at = os.open(folder, _FOLDER)
        try:
            for part in inner:
                outer, at = at, _inner(at, part, folder / name)
                os.close(outer)
            yield at, last
        finally:
            os.close(at)
    except OSError as error:
        error.filename = str(folder / name)
        raise


def _inner(outer: int, part: str, path: Path) -> int:
    try:
        return os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=outer)
    except NotADirectoryError:
        raise RunCorruptError(
            f"{path}: expected {part} to be a folder, and no link", code="not-a-folder"
        ) from None


def _check_kind(status: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "a device")
        raise RunCorruptError(
            f"{path}: expected a regular file, got {kind}",
            code="not-regular-file",
            hint="move or link the whole directory of a run, not files of it",
        )
