"""``publication.json`` and ``environment.json``: of a campaign that was published as a site."""

from __future__ import annotations

from typing import Final, Literal

from tailscope.store.records.base import Count, Record, Section
from tailscope.store.records.host import HostRecord

PUBLICATION_FORMAT: Final = 1
ENVIRONMENT_FORMAT: Final = 2


class PublishedCampaign(Section, frozen=True, kw_only=True):
    """Which campaign was published."""

    name: str
    """Its name."""
    started_unix_ns: Count | None
    """When it was started."""


class PublicationRecord(Record, frozen=True, kw_only=True):
    """What a publication consists of."""

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
    """In a laboratory: the machine of each role."""
    knobs: dict[str, str | None]
    """How the host was set."""
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
