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
    verdict: JudgedRun | None = None
    """The verdict on all packets, if a service level was given."""
