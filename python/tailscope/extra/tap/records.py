"""``tap.json``: what a tap heard, and what it alerted of."""

from __future__ import annotations

from typing import Final, Literal

from tailscope.store.records.base import Count, Record, Section
from tailscope.store.records.messages import TappedFlow, TappedLink
from tailscope.store.records.verdict import JudgedRun

TAP_FORMAT: Final = 1


class Alert(Section, frozen=True, kw_only=True):
    """Seconds one behind the other that did not meet a term of the service level."""

    term: str
    """The term, as it was written."""
    start_unix_ns: Count
    """The begin of the first second."""
    seconds: Count
    """Their number."""


class Delay(Section, frozen=True, kw_only=True):
    """One thing that a packet waited for."""

    part: Literal["queue", "dut"]
    """`queue`: packets that left before it, at the usual pace; `dut`: what had the CPU that sent it
    while nothing left."""
    cause: str
    """Its name."""
    details: tuple[str, ...]
    """Further details, at most three."""
    waited_ns: Count
    """How long the packet waited for it."""


class DelayedPacket(Section, frozen=True, kw_only=True):
    """One of the worst packets, and what it waited for; all times sum to its latency."""

    pre_ns: Count
    """When it came, in Unix time."""
    latency_ns: Count
    """How long it took to leave."""
    flow: str
    """Its flow; empty if that is unknown."""
    cpus: tuple[Count, ...]
    """CPUs that were sending when it left. Only of a single one it is known that it sent this
    packet, and then what had this CPU is told."""
    service_ns: Count
    """What the fastest packet took."""
    delays: tuple[Delay, ...]
    """What it waited for, the longest first."""
    unexplained_ns: Count
    """The rest."""


class TapRecord(Record, frozen=True, kw_only=True):
    """What a tap heard of its two interfaces."""

    format: Literal[1] = TAP_FORMAT
    """Version of the format."""
    match_on: str
    """The key by which packets were matched."""
    filter: str
    """The filter of packets; empty without one."""
    seconds: Count
    """Seconds that were told."""
    seconds_missed: Count
    """Of those, seconds in which the tap itself missed frames."""
    unresolved: Count
    """Packets that nobody can judge, because frames were missed when they should have left."""
    pre: TappedLink
    """The interface by which packets came."""
    post: TappedLink
    """The interface by which they left."""
    flows: tuple[TappedFlow, ...]
    """Figures of each flow, at most 1000: those of the most packets first."""
    alerts: tuple[Alert, ...]
    """The latest alerts, at most 1000."""
    worst: tuple[DelayedPacket, ...] = ()
    """The worst packets of which captures were kept, the worst first, and what delayed them."""
    events_missing_because: str | None = None
    """Reason why no kernel events were recorded around them; null if they were."""
    events_lost: Count = 0
    """Kernel events that were lost, because buffers were full."""
    verdict: JudgedRun | None = None
    """The verdict on all packets, if a service level was given."""
