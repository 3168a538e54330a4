"""``kept``: where a conclusion comes from that lies beside a run; part of several records."""

from __future__ import annotations

from typing import Literal

from tailscope.store.layout import FORMAT
from tailscope.store.records.base import Count, Record, Section


class Origin(Section, frozen=True, kw_only=True):
    """The origin of a conclusion."""

    summary_sha256: str
    """Checksum of the `summary.json` that it was drawn from, as in `run.json`. If the run has
    another one, the conclusion is left out with a warning."""
    tailscope_version: str
    """The version of tailscope that kept it."""
    command: tuple[str, ...]
    """The command that was called."""
    written_unix_ns: Count
    """Time at which it was kept."""
    content_sha256: str
    """Checksum of everything but `kept`: a conclusion that was changed is left out likewise."""


class KeptRecord(Record, frozen=True, kw_only=True):
    """A conclusion that can be kept beside a run."""

    format: Literal[2] = FORMAT
    """Version of the layout, as in `run.json`."""
    kept: Origin | None = None
    """Origin of the conclusion; null before it is kept in a run."""
