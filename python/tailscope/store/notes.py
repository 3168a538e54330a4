"""``notes.json``: what a user says of a run, beside what was measured.

It lies in the run directory and goes wherever that goes. No checksum covers it: words about a run
may change, the run may not.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tailscope.exceptions import RunError, UsageError
from tailscope.store import layout
from tailscope.store.atomic import write_text
from tailscope.store.files import MOST_RECORD_BYTES, handle_of, read_file
from tailscope.store.records.base import encode, read_record
from tailscope.store.records.notes import NOTES_FORMAT, Note, NotesRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_TAG = re.compile(r"\w[\w.:/+-]{0,63}")


@dataclass(frozen=True)
class Remarks:
    """All that was said of a run."""

    tags: tuple[str, ...] = ()
    """In alphabetical order."""
    notes: tuple[Note, ...] = ()
    """The oldest first."""


def read_notes(run: Path) -> Remarks:
    """Read what was said of a run; nothing where there is no file."""
    path = run / layout.NOTES
    try:
        content = read_file(run, layout.NOTES, most_bytes=MOST_RECORD_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return Remarks()
    found = read_record(content, NotesRecord, path, newest=NOTES_FORMAT)
    return Remarks(tuple(sorted(set(found.tags))), found.notes)


def change_tags(run: Path, *, add: Iterable[str] = (), remove: Iterable[str] = ()) -> Remarks:
    """Give a run tags, and take others from it."""
    added = {_checked(tag) for tag in add}
    with _locked(run):
        before = read_notes(run)
        tags = (added | set(before.tags)) - set(remove)
        return _write(run, replace(before, tags=tuple(sorted(tags))))


def add_note(run: Path, text: str) -> Remarks:
    """Write a note about a run, beneath those that are there."""
    if not text.strip():
        raise UsageError("a note: expected some text, got none", code="empty-note")
    with _locked(run):
        before = read_notes(run)
        note = Note(written_unix_ns=time.time_ns(), text=text.strip())
        return _write(run, replace(before, notes=(*before.notes, note)))


def _checked(tag: str) -> str:
    if not _TAG.fullmatch(tag):
        raise UsageError(
            f"a tag: got {tag!r}, expected up to 64 letters, digits and . : / + - _, a letter, a"
            " digit or _ first",
            code="tag",
        )
    return tag


@contextmanager
def _locked(run: Path) -> Iterator[None]:
    """Be the only one who changes the notes of a run.

    The lock is on ``run.json``: it is there, and nobody replaces it once a run is complete.
    """
    try:
        handle = handle_of(run, layout.RUN, os.O_RDWR)
    except (FileNotFoundError, NotADirectoryError):
        raise RunError(
            f"{run}: not a run directory: no {layout.RUN} in it", code="not-a-run"
        ) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _write(run: Path, notes: Remarks) -> Remarks:
    record = NotesRecord(tags=notes.tags, notes=notes.notes)
    write_text(run / layout.NOTES, encode(record))
    return notes
