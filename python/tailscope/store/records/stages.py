"""What was recorded of the way of packets through a device: a part of ``run.json``."""

from __future__ import annotations

from typing import Literal, TypeAlias

from tailscope.store.records.base import Count, Section

Way: TypeAlias = Literal["kernel", "loop"]


class StagesRecord(Section, frozen=True, kw_only=True):
    """What was recorded of the way of packets through a device."""

    way: Way = "kernel"
    """`kernel`: the kernel forwards. `loop`: a polling loop of tailscope does."""
    every: Count
    """Of so many packets, one was looked at; the kernel's drops were recorded of all."""
    events: Count
    """Events of the kernel recorded; of a loop, packets."""
    lost: Count
    """Those for which there was no room."""
    clock_error_ns: Count
    """By how much the times of events may be off those of packets."""
