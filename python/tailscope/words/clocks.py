"""When clocks of captures were in doubt, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailscope.units import counted, duration_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope.engine.analysis import ClockDoubt

_SIDES = {"pre": "before", "post": "behind"}
_REASONS = {
    "offset": "off by up to {offset}",
    "frequency": "its frequency jumped",
    "state": "not synchronised",
    "silence": "no log says",
}
_MOST = 3
_NS_PER_S = 1e9


def doubts_text(doubts: Sequence[ClockDoubt], begin_ns: int) -> str:
    """Say when the clock of one side was in doubt, in s since its first packet, and why."""
    total_ns = sum(doubt.end_ns - doubt.start_ns for doubt in doubts)
    longest = sorted(doubts, key=lambda doubt: doubt.start_ns - doubt.end_ns)[:_MOST]
    told = [_interval_text(doubt, begin_ns) for doubt in sorted(longest, key=_start_ns)]
    more = f", and {len(doubts) - _MOST} shorter ones" if len(doubts) > _MOST else ""
    return (
        f"the clock {_SIDES[doubts[0].side]} the device was in doubt for"
        f" {duration_text(total_ns)} in {counted(len(doubts), 'interval')}: {', '.join(told)}{more}"
    )


def _start_ns(doubt: ClockDoubt) -> int:
    return doubt.start_ns


def _interval_text(doubt: ClockDoubt, begin_ns: int) -> str:
    ends = ((ns - begin_ns) / _NS_PER_S for ns in (doubt.start_ns, doubt.end_ns))
    start, end = (f"{s:.3f} s" for s in ends)
    reason = _REASONS[doubt.reason].format(offset=duration_text(doubt.offset_ns or 0))
    return f"{start} to {end} ({reason})"
