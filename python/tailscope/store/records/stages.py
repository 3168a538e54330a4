"""Stages of packets within a device: a part of ``run.json``."""

from __future__ import annotations

from typing import Literal, TypeAlias

from tailscope.store.records.base import Count, Section

Way: TypeAlias = Literal["kernel", "loop"]


class StagesRecord(Section, frozen=True, kw_only=True):
    """A recording of the path of packets through a device."""

    way: Way = "kernel"
    """`kernel`: the kernel forwards. `loop`: a polling loop of tailscope does."""
    every: Count
    """Sampling: one of this many packets was traced; kernel drops were recorded for all."""
    events: Count
    """Events of the kernel recorded; of a loop, packets."""
    lost: Count
    """Those for which there was no room."""
    clock_error_ns: Count
    """Uncertainty of event times relative to packet times."""
