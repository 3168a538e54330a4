"""``kvm.json``: whether a machine can run guests by itself."""

from __future__ import annotations

from typing import Final, Literal

from tailscope.store.records.base import Record

KVM_FORMAT: Final = 2


class KvmRecord(Record, frozen=True, kw_only=True):
    """The outcome of a trial boot of a guest with KVM."""

    format: Literal[2] = KVM_FORMAT
    """Version of the format."""
    guest: str
    """Release of the guest's kernel."""
    may_use_kvm: bool
    """True if `/dev/kvm` may be used."""
    cpu_model: str | None
    """Model of the processor."""
    kernel: str | None
    """Name, release and version of the machine's kernel, as `uname` prints them."""
    has_kvm: bool
    """True if the guest booted."""
