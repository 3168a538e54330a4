"""Removal of folders that others may have written into."""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: Path, *, last: str | None = None) -> None:
    """Remove a folder of any depth.

    Folders within are moved to the top before they are entered, so that two open folders suffice
    for any depth. The kernel does not move a mount point, so none is ever entered. No link is
    followed, even if another process changes the folder meanwhile.
    """
    problems: list[OSError] = []
    with _opened(path) as top:
        waiting = _emptied(top, top, problems, keep=last)
        while waiting:
            name = waiting.pop()
            with _collected(problems):
                with _opened(name, top) as folder:
                    waiting += _emptied(folder, top, problems)
                os.rmdir(name, dir_fd=top)
        if problems:
            raise problems[0]
        if last is not None:
            with suppress(FileNotFoundError):
                os.unlink(last, dir_fd=top)
    path.rmdir()


def _emptied(
    folder: int, top: int, problems: list[OSError], *, keep: str | None = None
) -> list[str]:
    """Remove the files of a folder, move its folders to the top, and return their new names."""
    with os.scandir(folder) as entries:
        listed = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    moved = []
    for name, is_folder in listed:
        if name == keep:
            continue
        with _collected(problems):
            if is_folder:
                new = secrets.token_hex(8)
                os.rename(name, new, src_dir_fd=folder, dst_dir_fd=top)
                moved.append(new)
            else:
                os.unlink(name, dir_fd=folder)
    return moved


@contextmanager
def _opened(path: Path | str, parent: int | None = None) -> Iterator[int]:
    folder = os.open(path, _FOLDER, dir_fd=parent)
    try:
        yield folder
    finally:
        os.close(folder)


@contextmanager
def _collected(problems: list[OSError]) -> Iterator[None]:
    """Collect the error of a block, unless something is only gone already."""
    try:
        yield
    except FileNotFoundError:
        pass
    except OSError as problem:
        problems.append(problem)
