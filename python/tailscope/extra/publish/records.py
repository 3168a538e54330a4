"""``publication.json`` and ``environment.json``: of a campaign that was published as a site."""

from __future__ import annotations

from typing import Final, Literal

from tailscope.store.records.base import Count, Record, Section
from tailscope.store.records.host import HostRecord

PUBLICATION_FORMAT: Final = 1
ENVIRONMENT_FORMAT: Final = 2


class PublishedCampaign(Section, frozen=True, kw_only=True):
    """The identity of a published campaign."""

    name: str
    """Its name."""
    started_unix_ns: Count | None
    """Start of the campaign."""


class PublicationRecord(Record, frozen=True, kw_only=True):
    """The content of a publication."""

    format: Literal[1] = PUBLICATION_FORMAT
    """Version of the format."""
    campaign: PublishedCampaign
    """The campaign: the site may be replaced by a later publication of the same one."""
    files: tuple[str, ...]
    """Files of the site."""
    left_out: dict[str, Count]
    """Files that were not published, and their sizes."""


class EnvironmentRecord(Section, frozen=True, kw_only=True):
    """A machine with its settings and versions, and the runs that have it."""

    host: HostRecord
    """The machine."""
    hosts: dict[str, HostRecord]
    """Machine of each role; in a laboratory."""
    knobs: dict[str, str | None]
    """Settings of the host."""
    tailscope_version: str
    """The version of tailscope."""
    python_version: str | None
    """The version of Python."""
    device_version: str | None
    """The version of the device."""
    runs: tuple[str, ...]
    """The runs."""


class EnvironmentsRecord(Record, frozen=True, kw_only=True):
    """The environments of a campaign."""

    format: Literal[2] = ENVIRONMENT_FORMAT
    """Version of the format."""
    environments: tuple[EnvironmentRecord, ...]
    """Each of them once."""
