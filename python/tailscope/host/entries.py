"""The lines of a journal of changed settings, as types; `tailscope.host.journal` keeps it."""

from __future__ import annotations

import re

from msgspec import UNSET, Struct, UnsetType

FORMAT = 1
"""The version of the layout; journals from before it was written down are of this one too."""

_SETTING = re.compile(
    r"(/proc/(sys|irq)|/sys)/.+|affinity:\d+/.+|ethtool:[^/]+/[a-z]+/[a-z-]+", re.DOTALL
)


class HeadLine(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first line: who tuned which machine, since which of its starts."""

    line: int
    format: int | UnsetType = UNSET
    by: str
    machine: str | None
    boot: str | None
    crc32: str


class Entry(Struct, frozen=True, forbid_unknown_fields=True):
    """One change."""

    knob: str
    path: str
    original: str | None
    """What was there, exactly; None for a folder that was not."""
    wanted: str


class EntryLine(Entry, frozen=True, kw_only=True):
    """Any other line: a change, its number and a checksum."""

    line: int
    crc32: str

    def __post_init__(self) -> None:
        """See that it changes a setting: no other file is ever written."""
        if _SETTING.fullmatch(self.path) is None or ".." in self.path.split("/"):
            raise ValueError(f"got {self.path!r}, expected the path of a setting")

    @property
    def entry(self) -> Entry:
        """The change alone."""
        return Entry(self.knob, self.path, self.original, self.wanted)
