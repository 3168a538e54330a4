"""Access to a machine's settings: texts at paths beneath a root.

A path is one of

- a file, such as ``/proc/sys/vm/stat_interval``;
- a folder, with a slash at its end: its text is empty, and writing makes it;
- ``affinity:PID/NAME``: the CPUs of a task, if that is still its name (`tasks`);
- ``ethtool:CARD/GROUP/FIELD``: a setting of a network card (`cards`).

The last two are of this machine only: beneath another root they are files as well.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tailscope.host import cards, tasks

if TYPE_CHECKING:
    from collections.abc import Iterator

_NO_FILES = {
    "affinity": (tasks.read_affinity, tasks.write_affinity),
    "ethtool": (cards.read_setting, cards.write_setting),
}
_GONE = (errno.ENOENT, errno.ESRCH, errno.ENODEV)


def chosen(text: str) -> str:
    """Return the value in a file's text: the word in brackets if the kernel lists all words.

    >>> chosen("always [madvise] never")
    'madvise'
    """
    bracketed = re.search(r"\[([^\]]+)\]", text)
    return bracketed[1] if bracketed else text.strip()


class Machine:
    """The settings of a machine."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root

    @property
    def is_this(self) -> bool:
        """Return True if this process runs on the machine."""
        return self.root == Path("/")

    @property
    def run_folder(self) -> Path:
        """Return the folder of the journal, which a reboot empties together with the changes."""
        return self.root / "run" / "tailscope"

    def read(self, path: str) -> str | None:
        """Read a text exactly; return None if there is none or it cannot be read.

        Bytes that are no UTF-8 become lone surrogates, and themselves again when written.
        """
        scheme, _, rest = path.partition(":")
        with suppress(OSError):
            if path.endswith("/"):
                return "" if self._file(path).is_dir() else None
            if self.is_this and scheme in _NO_FILES:
                return _NO_FILES[scheme][0](rest)
            return os.fsdecode(self._file(path).read_bytes())
        return None

    def link(self, path: str) -> str:
        """Read what a symbolic link names."""
        return str(self._file(path).readlink())

    def exists(self, path: str) -> bool:
        """Return True if a path exists, readable or not."""
        scheme, _, rest = path.partition(":")
        if self.is_this and scheme in _NO_FILES:
            try:
                _NO_FILES[scheme][0](rest)
            except OSError as error:
                return error.errno not in _GONE
            return True
        return self._file(path).exists()

    def is_settable(self, path: str) -> bool:
        """Return True if root can write to a file."""
        with suppress(OSError):
            return bool(self._file(path).stat().st_mode & stat.S_IWUSR)
        return False

    def write(self, path: str, text: str) -> None:
        """Write a text, in one piece, as the kernel wants it."""
        scheme, _, rest = path.partition(":")
        if path.endswith("/"):
            self._file(path).mkdir(exist_ok=True)
        elif self.is_this and scheme in _NO_FILES:
            _NO_FILES[scheme][1](rest, text)
        else:
            file = os.open(self._file(path), os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
            try:
                os.write(file, os.fsencode(text))
            finally:
                os.close(file)

    def remove_folder(self, path: str) -> None:
        """Remove a folder that `write` made."""
        self._file(path).rmdir()

    @contextmanager
    def holding(self, path: str, content: bytes) -> Iterator[None]:
        """Write to a file and keep it open within a block; the kernel forgets it afterwards."""
        file = os.open(self._file(path), os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(file, content)
            yield
        finally:
            os.close(file)

    def glob(self, pattern: str) -> list[str]:
        """List the paths that match a pattern, numbers in them in the order of numbers."""
        paths = (f"/{path.relative_to(self.root)}" for path in self.root.glob(pattern.lstrip("/")))
        return sorted(paths, key=natural)

    def _file(self, path: str) -> Path:
        return self.root / path.lstrip("/")


def natural(name: str) -> list[tuple[int, str]]:
    """Return a key to sort by what is between numbers, and by numbers."""
    return [
        (int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)
    ]
