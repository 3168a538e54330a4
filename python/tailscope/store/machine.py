"""The machine that runs this, as records have it."""

from __future__ import annotations

from pathlib import Path

from msgspec import convert

from tailscope.host.fingerprint import fingerprint
from tailscope.store.records.host import HostRecord

_BOOT = Path("/proc/sys/kernel/random/boot_id")


def this_host() -> HostRecord:
    """The fingerprint of this machine."""
    return convert(fingerprint(), HostRecord)


def boot_id() -> str:
    """Return the kernel's identifier of this boot, which is unique."""
    return _BOOT.read_text().strip()
