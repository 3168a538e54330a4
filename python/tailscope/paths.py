"""Files and folders as people name them: what an error of one means, and what to do about it."""

from __future__ import annotations

import errno
import os
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tailscope.exceptions import STANDARD_OUTPUT

if TYPE_CHECKING:
    from tailscope.exceptions import TailscopeError

_OF_THE_KERNEL = tuple(map(Path, ("/proc", "/sys", "/dev")))
_MOST_NAMES = 4

_STEPS = {
    errno.EACCES: "`ls -l` shows who may; name another path, or run it as that user",
    errno.EPERM: "run it as root, or name another path",
    errno.EIO: "`dmesg` may say what is wrong with that disk; write to another",
    errno.ENOMEM: "end other programs, and repeat the command",
    errno.EAGAIN: "end other programs, and repeat the command",
    errno.ENOSPC: "free some space, or write to another disk",
    errno.EDQUOT: "free some space, or write to another disk",
    errno.EROFS: "name a folder of a disk that can be written",
    errno.EMFILE: "`ulimit -n` shows how many files may be open, and raises it",
    errno.ENAMETOOLONG: "give it a shorter name",
    errno.ELOOP: "`ls -l` shows where its links lead",
}


def hint_of(error: Exception) -> str | None:
    """Return what can be done about an error, wherever it comes from."""
    return step_after(error) if isinstance(error, OSError) else getattr(error, "hint", None)


def step_after(error: OSError) -> str:
    """Return what can be done about an error of the system."""
    if error.filename in (None, STANDARD_OUTPUT):
        return _STEPS.get(error.errno or 0, "try it again; `dmesg` may say more")
    path = Path(os.fsdecode(error.filename))
    if error.errno == errno.ENOENT:
        return step_to(path)
    if error.errno == errno.EACCES and (closed := _closed_above(path)):
        return (
            f"you may not enter {closed}: `ls -ld {closed}` shows who may; name another path, or"
            " run it as that user"
        )
    if error.errno in (errno.EISDIR, errno.ENOTDIR, errno.EEXIST):
        return f"{_listed(path)}; name another path" if path.is_dir() else "name another path"
    return _STEPS.get(error.errno or 0, f"`ls -l {path}` shows what it is; name another path")


def step_to(path: Path) -> str:
    """Return what can be done where a path is not there: which one may be meant, or what is."""
    folder = path.parent
    if any(folder == each or each in folder.parents for each in _OF_THE_KERNEL):
        return "nothing can be kept there: name a folder of a disk"
    if not folder.is_dir():
        return f"there is no folder {folder}: `mkdir -p {folder}` makes it"
    near = get_close_matches(path.name, _names(folder), 2)
    meant = " or ".join(str(folder / name) for name in near)
    return f"did you mean {meant}?" if near else _listed(folder)


def refuse_absent(
    path: Path, kind: type[TailscopeError], code: str, otherwise: str | None = None
) -> None:
    """Refuse a path of a file that cannot be read, before anything opens it."""
    what = "no such file or folder" if not path.exists() else "a folder, expected a file"
    if not path.exists() or path.is_dir():
        hint = _listed(path) if path.is_dir() else step_to(path)
        raise kind(f"{path}: {what}", code=code, hint="; ".join(filter(None, (hint, otherwise))))


def _closed_above(path: Path) -> Path | None:
    """Return the first folder above a path that this user may not enter, if there is one."""
    may_enter = partial(os.access, mode=os.X_OK, effective_ids=True)
    return next((folder for folder in reversed(path.parents) if not may_enter(folder)), None)


def _names(folder: Path) -> list[str]:
    try:
        return sorted(each.name for each in folder.iterdir() if each.name[:1] != ".")
    except OSError:
        return []


def _listed(folder: Path) -> str:
    """Say what a folder has."""
    names = _names(folder)
    where = "this folder" if folder == Path() else str(folder)
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    if not names:
        return f"nothing is in {where}"
    return f"{where} has {', '.join(names[:_MOST_NAMES])}{more}"
