"""``watch.jsonl``: what became of each run of a watch, a line each."""

from __future__ import annotations

from typing import Final, Literal

from tailscope.store.records.base import Count, Record
from tailscope.store.records.campaign import CellFigures

WATCH_FORMAT: Final = 1


class WatchedRun(Record, frozen=True, kw_only=True):
    """The outcome of one run of a watch."""

    format: Literal[1] = WATCH_FORMAT
    """Version of the format."""
    run: str | None
    """Its run directory, within the watch's; null if there is none. Of one that `failed`, what was
    recorded and could not be analysed."""
    state: Literal["done", "partial", "failed"]
    """`done`; `partial`, if it is not all that was asked for; `failed`, if nothing is known of its
    packets."""
    reason: str | None = None
    """Why it is not done, or was not kept."""
    started_unix_ns: Count
    """When it began, by the machine's clock."""
    ended_unix_ns: Count
    """When it had ended. Of one that was killed: when the watch went on."""
    watched_s: float = 0.0
    """Seconds from its first packet to its last one."""
    figures: CellFigures | None = None
    """Its most important figures; null if nothing is known."""
    tainted: Count | None = None
    """As in `summary.json`."""
