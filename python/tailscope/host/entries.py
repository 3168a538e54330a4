"""The lines of a journal of changed settings, as types; `tailscope.host.journal` keeps it."""

from __future__ import annotations

import re

from msgspec import UNSET, Struct, UnsetType

FORMAT = 1
"""Version of the journal's layout; journals without a version have this one, too."""

_SETTING = re.compile(
    r"(/proc/(sys|irq)|/sys)/.+|affinity:\d+/.+|ethtool:[^/]+/[a-z]+/[a-z-]+", re.DOTALL
)


class HeadLine(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first line: the command that tuned, the machine, and its boot."""

    line: int
    format: int | UnsetType = UNSET
    by: str
    machine: str | None
    boot: str | None
    crc32: str


class Entry(Struct, frozen=True, forbid_unknown_fields=True):
    """One change to a setting."""

    knob: str
    path: str
    original: str | None
    """Exact previous text; None for a folder that did not exist."""
    wanted: str


class EntryLine(Entry, frozen=True, kw_only=True):
    """Any other line: a change, its number and a checksum."""

    line: int
    crc32: str

    def __post_init__(self) -> None:
        """Check that the path is one of a setting, as no other file is ever written."""
        if _SETTING.fullmatch(self.path) is None or ".." in self.path.split("/"):
            raise ValueError(f"got {self.path!r}, expected the path of a setting")

    @property
    def entry(self) -> Entry:
        """Return the change without its number and checksum."""
        return Entry(self.knob, self.path, self.original, self.wanted)
