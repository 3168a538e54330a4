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
    assert found.summary["clock_drift_ppm"] == 0, "less than 5 s tell no drift"
    assert 0 < found.summary["clock_drift_ppm_error"] < 20, "but bound it"


def test_an_offset_that_is_known_has_no_bounds(tmp_path: Path) -> None:
    traffic = stream(904)
    behind = on_another_clock(traffic.behind(routed_frame), 5_000_000)
    taps = in_files(tmp_path, traffic.before(udp_frame), behind)
    found = tailscope.analyze(*taps, clocks="offset=5ms").summary
    assert found["clock_offset_ns_low"] is found["clock_offset_ns_high"] is None
    assert 0 < found["clock_drift_ppm_error"] < 20, "a drift is not known with it"


@pytest.mark.parametrize("drift_ppm", [-30, 30])
def test_a_drift_of_a_short_capture_is_suspected(tmp_path: Path, drift_ppm: int) -> None:
    """Nobody said that there are two clocks; a verdict must not rest on one."""
    traffic = stream(905)
    behind = on_another_clock(traffic.behind(routed_frame), 0, drift_ppm)
    found = tailscope.analyze(*in_files(tmp_path, traffic.before(udp_frame), behind))
    drifted_ns = drift_ppm * found.summary["span_s"] * 1e3
    assert found.summary["clock_drift_suspected_ns"] == pytest.approx(drifted_ns, rel=0.2)
    assert found.summary["clock_offset_ns"] in (None, 0)


def test_a_drift_that_is_stated_wrongly_is_suspected(tmp_path: Path) -> None:
    traffic = stream(906)
    behind = on_another_clock(traffic.behind(routed_frame), 5_000_000, 30)
    taps = in_files(tmp_path, traffic.before(udp_frame), behind)
    right, wrong = (
        tailscope.analyze(*taps, clocks=f"offset=5ms,drift={drift}ppm").summary
        for drift in (30, -30)
    )
    assert right["clock_drift_suspected_ns"] is None
    assert wrong["clock_drift_suspected_ns"] > 0
