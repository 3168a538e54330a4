"""What an estimate of two clocks may be off by holds the truth."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

import tailscope

from .case import in_files
from .frames import CLIENT, SERVER, routed_frame, udp_frame
from .stream import on_another_clock, stream

if TYPE_CHECKING:
    from pathlib import Path

SLOW_GAP_NS = 10_000_000

answer = partial(udp_frame, src=SERVER, dst=CLIENT, sport=5001, dport=40_000, size=26)


@pytest.mark.parametrize(
    ("offset_ns", "drift_ppm"), [(3_000_000, 20), (-3_000_000, -20), (-777, 0)]
)
def test_one_direction_bounds_the_offset_from_above(
    tmp_path: Path, offset_ns: int, drift_ppm: float
) -> None:
    traffic = stream(901, gap_ns=SLOW_GAP_NS)
    behind = on_another_clock(traffic.behind(routed_frame), offset_ns, drift_ppm)
    taps = in_files(tmp_path, traffic.before(udp_frame), behind)
    found = tailscope.analyze(*taps, clocks="estimate").summary
    fastest = int(traffic.latency_ns.max())
    assert found["clock_offset_ns_low"] is None
    assert offset_ns <= found["clock_offset_ns_high"] <= offset_ns + fastest
    error_ppm = found["clock_drift_ppm_error"]
    assert abs(found["clock_drift_ppm"] - drift_ppm) <= error_ppm < 1


@pytest.mark.parametrize("offset_ns", [3_000_000, -3_000_000])
def test_both_directions_bound_it_from_both_sides(tmp_path: Path, offset_ns: int) -> None:
    there, back = stream(902), stream(903)
    before = sorted([*there.before(udp_frame), *back.behind(partial(answer, ttl=63))])
    behind = sorted([*there.behind(routed_frame), *back.before(answer)])
    taps = in_files(tmp_path, before, on_another_clock(behind, offset_ns))
    found = tailscope.analyze(*taps, clocks="estimate")
    low, high = (found.summary[f"clock_offset_ns_{end}"] for end in ("low", "high"))
    assert low <= offset_ns <= high
    assert f"{low} to {high} ns" in " ".join(found.warnings)
    assert found.summary["clock_drift_ppm_error"] is None, "less than 5 s tell no drift"


def test_what_is_known_has_no_bounds(tmp_path: Path) -> None:
    traffic = stream(904)
    behind = on_another_clock(traffic.behind(routed_frame), 5_000_000)
    taps = in_files(tmp_path, traffic.before(udp_frame), behind)
    found = tailscope.analyze(*taps, clocks="offset=5ms").summary
    names = ("clock_offset_ns_low", "clock_offset_ns_high", "clock_drift_ppm_error")
    assert [found[name] for name in names] == [None] * 3
