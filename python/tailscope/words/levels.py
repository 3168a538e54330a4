"""Which warnings of a run are but notes: nothing about its figures is in doubt."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tailscope.units import short_duration_text

if TYPE_CHECKING:
    from tailscope.store.records.run import RunInfo

_MATCHED = re.compile(r"matched ([\d.]+) % of a sample by (\w+).*")
_ALL_MATCHED_PERCENT = 99.0
_WHY = {
    "l3": "matched by IP packet: the device routes",
    "payload": "matched by payload: the device translates addresses, or changes tags",
    "inner": "matched by inner packet: the device is an end of a tunnel",
}
_NOTES = re.compile(
    r"the captures hold only the beginning of each packet|.* out of order by at most|"
    r"matched by the bytes of TCP streams[^:]*: (\d+) of \1 connections|"
    r".* expects to be forwarded, such as control traffic|the clocks are apart: .* taken out\.$"
)


_STOP_NS = 1_000_000_000
"""Length of a stall from which on no scheduler explains it."""


def note_of(warning: str) -> str | None:
    """Return what a warning says if it is but a note, in short; None if it is more."""
    matched = _MATCHED.fullmatch(warning)
    if matched is not None and float(matched[1]) >= _ALL_MATCHED_PERCENT:
        return _WHY.get(matched[2], warning)
    return warning if _NOTES.match(warning) else None


def stop_text(info: RunInfo) -> str:
    """Say that the generator was stopped, if it was."""
    if info.instrument is None or info.instrument.stalls.generator.stall_ns_max < _STOP_NS:
        return ""
    longest = short_duration_text(info.instrument.stalls.generator.stall_ns_max)
    return f"the generator stood still for {longest}: it was stopped, or had no CPU for so long"
