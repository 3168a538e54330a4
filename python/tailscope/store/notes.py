"""``notes.json``: what a user says of a run, beside what was measured.

It lies in the run directory and goes wherever that goes. No checksum covers it: words about a run
may change, the run may not.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from tailscope.exceptions import RunCorruptError, RunError, UsageError
from tailscope.store import layout
from tailscope.store.atomic import write_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

__all__ = ["Note", "Remarks", "add_note", "change_tags", "read_notes"]

_FORMAT = 1
_TAG = re.compile(r"\w[\w.:/+-]{0,63}")


@dataclass(frozen=True)
class Note:
    """Words, and when they were written."""

    written_unix_ns: int
    text: str


@dataclass(frozen=True)
class Remarks:
    """All that was said of a run.

    Attributes
    ----------
    tags : tuple of str
        In alphabetical order.
    notes : tuple of Note
        The oldest first.
    """

    tags: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()


def read_notes(run: Path) -> Remarks:
    """Read what was said of a run; nothing where there is no file.

    Raises
    ------
    RunCorruptError
        If the file is not as it was written.
    """
    path = run / layout.NOTES
    if not path.is_file():
        return Remarks()
    try:
        content = json.loads(path.read_bytes())
        if content["format"] != _FORMAT:
            raise ValueError(f"format: expected {_FORMAT}, got {content['format']!r}")
        tags = {_text(tag) for tag in content["tags"]}
        notes = [
            Note(_time(each["written_unix_ns"]), _text(each["text"])) for each in content["notes"]
        ]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunCorruptError(f"{path}: not as it was written: {error!r}") from None
    return Remarks(tuple(sorted(tags)), tuple(notes))


def change_tags(run: Path, *, add: Iterable[str] = (), remove: Iterable[str] = ()) -> Remarks:
    """Give a run tags, and take others from it.

    Parameters
    ----------
    run : Path
        The run directory.
    add, remove : iterable of str
        A tag that is there is not added again; one that is not there is not missed.

    Returns
    -------
    Remarks
        As they are now.

    Raises
    ------
    UsageError
        If a tag is none.
    RunError
        If there is no run.
    RunCorruptError
        If ``notes.json`` is not as it was written.
    """
    added = {_checked(tag) for tag in add}
    with _locked(run):
        before = read_notes(run)
        tags = (added | set(before.tags)) - set(remove)
        return _write(run, replace(before, tags=tuple(sorted(tags))))


def add_note(run: Path, text: str) -> Remarks:
    """Write a note about a run, beneath those that are there.

    Parameters
    ----------
    run : Path
        The run directory.
    text : str

    Returns
    -------
    Remarks
        As they are now.

    Raises
    ------
    UsageError
        If there is nothing in it.
    RunError
        If there is no run.
    RunCorruptError
        If ``notes.json`` is not as it was written.
    """
    if not text.strip():
        raise UsageError("a note: expected some text, got none")
    with _locked(run):
        before = read_notes(run)
        note = Note(time.time_ns(), text.strip())
        return _write(run, replace(before, notes=(*before.notes, note)))


def _checked(tag: str) -> str:
    if not _TAG.fullmatch(tag):
        raise UsageError(
            f"a tag: got {tag!r}, expected up to 64 letters, digits and . : / + - _, a letter, a"
            " digit or _ first"
        )
    return tag


@contextmanager
def _locked(run: Path) -> Iterator[None]:
    """Be the only one who changes the notes of a run.

    The lock is on ``run.json``: it is there, and nobody replaces it once a run is complete.
    """
    mark = run / layout.RUN
    try:
        handle = os.open(mark, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        raise RunError(f"{run}: not a run directory: no {layout.RUN} in it") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _write(run: Path, notes: Remarks) -> Remarks:
    content = json.dumps({"format": _FORMAT, **asdict(notes)}, indent=2)
    write_text(run / layout.NOTES, content + "\n")
    return notes


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a text, got {value!r}")
    return value


def _time(value: object) -> int:
    if not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise TypeError(f"expected a time in ns, got {value!r}")
    return value
