"""Tables 6 and 7 in words: the same for the terminal and for a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailscope.extra.recommend.compare import cited
from tailscope.extra.recommend.tables import STATIC_SOURCE
from tailscope.units import count_text, percentile_name
from tailscope.words.figures import instrument_text

if TYPE_CHECKING:
    from tailscope.extra.recommend.tables import Ranked, TailCell, TailTables

_NOTHING = "-"
TAIL_HEADER = (
    *("technology", "device", "kernel", "optimised", "tail", "95 % interval"),
    *("max", "packets", "lost", "runs"),
)
RANK_HEADER = (
    *("technology", "device", "kernel", "optimised", "cache", "latency", "by"),
    *("security", "resources", "runs"),
)


def tail_title(table: TailTables) -> str:
    """Return the title of Table 6."""
    return f"Table 6: the tail {traffic_text(table)} (after containers2024 Table 6)"


def rank_title(table: TailTables) -> str:
    """Return the title of Table 7."""
    return f"Table 7: ranks {traffic_text(table)} (security, resources: {STATIC_SOURCE})"


def traffic_text(table: TailTables) -> str:
    """Say at which traffic the runs of both tables were measured."""
    facts = table.facts
    is_burst = facts.burst is not None and facts.burst > 1
    burst = f" in bursts of {facts.burst}" if is_burst else ""
    size = "" if facts.size_bytes is None else f", {facts.size_bytes} B"
    beside = ""
    if facts.co_runners:
        named = ", ".join(f"{workers} {kind}" for kind, workers in facts.co_runners[0])
        beside = f", beside co-runners ({named})"
    rate = f"{count_text(facts.rate_pps)} packets/s" + (
        f" {facts.pattern}" if facts.pattern else ""
    )
    recorded = ", with kernel events recorded" if facts.recorded[0] else ""
    return f"at {rate}{burst}{size}{beside}{recorded}"


def tail_row(cell: TailCell) -> tuple[str, ...]:
    """Return A row of Table 6."""
    place = cell.setting
    tail = (_NOTHING,) * 2
    if cell.tail is not None:
        value = f"{percentile_name(cell.tail.quantile)} {cell.tail.value_text()}"
        tail = (value, cell.tail.interval_text())
    return (
        f"{place.technology or 'unknown'}, {place.networking}",
        place.device or _NOTHING,
        place.kernel or "unknown",
        _yes_no(place.optimised),
        *tail,
        instrument_text(cell.least_max_ns, cell.max_ns),
        count_text(cell.tail.latency_ns.n) if cell.tail else _NOTHING,
        _NOTHING if cell.lost is None else count_text(cell.lost),
        cited(cell.runs) or _NOTHING,
    )


def rank_row(row: Ranked) -> tuple[str, ...]:
    """Return A row of Table 7."""
    return (
        row.technology or "unknown",
        row.device or _NOTHING,
        row.kernel or _NOTHING,
        _yes_no(row.optimised),
        row.cache or _NOTHING,
        _NOTHING if row.rank is None else str(row.rank),
        _NOTHING if row.tail is None else percentile_name(row.tail.quantile),
        " or ".join(row.security) or _NOTHING,
        row.resources or _NOTHING,
        cited(row.runs) or _NOTHING,
    )


def _yes_no(value: bool | None) -> str:
    return {None: "unknown", True: "yes", False: "no"}[value]
