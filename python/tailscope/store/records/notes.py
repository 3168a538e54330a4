"""``notes.json``: what its user says of a run."""

from __future__ import annotations

from typing import Final, Literal

from tailscope.store.records.base import Count, Record, Section

NOTES_FORMAT: Final = 1


class Note(Section, frozen=True, kw_only=True):
    """Words, and when they were written."""

    written_unix_ns: Count
    """Time at which the note was written."""
    text: str
    """Text of the note."""


class NotesRecord(Record, frozen=True, kw_only=True):
    """Tags and notes of a run."""

    format: Literal[1] = NOTES_FORMAT
    """Version of the format."""
    tags: tuple[str, ...]
    """Tags, in alphabetical order."""
    notes: tuple[Note, ...]
    """Notes, oldest first."""
