"""Files of this user in folders that nobody else may write to, so that nobody else made them."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from tailscope.exceptions import TuningError

if TYPE_CHECKING:
    from pathlib import Path

_OTHERS_MAY_WRITE = 0o022
_OTHERS_MAY = 0o077


def make_folder(folder: Path) -> None:
    """Make a folder unless it is there; anybody may see what is in it."""
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    _check(folder, folder.lstat(), stat.S_IFDIR, _OTHERS_MAY_WRITE)
    folder.chmod(0o755)  # Whatever the umask.


def open_file(file: Path, flags: int) -> int:
    """Open a file of this user's that nobody else may open, so that nobody else can lock it."""
    handle = os.open(file, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        _check(file, os.fstat(handle), stat.S_IFREG, _OTHERS_MAY)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _check(path: Path, status: os.stat_result, kind: int, forbidden: int) -> None:
    user, mode = os.geteuid(), status.st_mode
    if status.st_uid != user or stat.S_IFMT(mode) != kind or mode & forbidden:
        expected = "drwxr-xr-x" if kind == stat.S_IFDIR else "-rw-------"
        raise TuningError(
            f"{path}: got {stat.filemode(mode)} of user {status.st_uid},"
            f" expected {expected} of user {user}",
            code="journal-owner",
            hint="somebody else created it: inspect it, then remove it",
        )
