"""What tailscope does on the device's CPU taints samples as the generator's own stalls do."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tailscope.engine.analysis import Clock, Recording, analyze_recording
from tailscope.experiment.run.evaluate import with_own_work

CLOCK = Clock(tsc_hz=2_100_000_007, tsc=123_456_789_012, unix_ns=1_700_000_000_000_000_000)


def recording(stalls: list[tuple[int, int]]) -> Recording:
    """Ten packets, a millisecond apart, each of 100 µs; stalls in ticks after the first."""
    first = CLOCK.tsc + CLOCK.tsc_hz
    each, takes = CLOCK.tsc_hz // 1000, CLOCK.tsc_hz // 10_000
    departures = first + each * np.arange(10)
    return Recording(
        CLOCK,
        departures.astype(np.uint64),
        departures.astype(np.uint64),
        np.arange(10, dtype=np.uint64),
        (departures + takes).astype(np.uint64),
        np.zeros(0, np.uint64),
        np.array([first + start for start, _ in stalls], np.uint64),
        np.array([lasts for _, lasts in stalls], np.uint64),
    )


def tainted(seen: Recording) -> list[int]:
    series = analyze_recording(seen).series
    assert series.tainted is not None
    return np.flatnonzero(series.tainted).tolist()


def ns_after(us: int) -> int:
    return CLOCK.unix_ns + 1_000_000_000 + us * 1000


def test_own_work_taints_what_was_under_way() -> None:
    seen = recording([(CLOCK.tsc_hz * 4 // 1000, CLOCK.tsc_hz // 20_000)])
    assert tainted(seen) == [4]
    start = np.array([ns_after(2_010), ns_after(6_500)], np.int64)
    end = np.array([ns_after(2_090), ns_after(6_900)], np.int64)
    assert tainted(with_own_work(seen, start, end)) == [2, 4]
    none = np.zeros(0, np.int64)
    same = with_own_work(seen, none, none)
    assert same.stall_start_tsc.tolist() == seen.stall_start_tsc.tolist()
    assert same.stall_duration_tsc.tolist() == seen.stall_duration_tsc.tolist()


@settings(deadline=None)
@given(st.integers(-(10**15), 10**15), st.integers(1, 5_000_000_000))
def test_a_time_is_within_its_tick(after_ns: int, tsc_hz: int) -> None:
    clock = Clock(tsc_hz, 10**18, 10**18)
    ns = clock.unix_ns + after_ns
    tsc = int(clock.all_at_tsc(np.array([ns], np.int64))[0])
    assert tsc == clock.tsc + after_ns * tsc_hz // 1_000_000_000
    assert clock.at_ns(tsc) <= ns
