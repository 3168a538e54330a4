"""The machine that runs this, as records have it."""

from __future__ import annotations

from msgspec import convert

from tailscope.host.fingerprint import fingerprint
from tailscope.store.records.host import HostRecord

__all__ = ["this_host"]


def this_host() -> HostRecord:
    """The fingerprint of this machine."""
    return convert(fingerprint(), HostRecord)
