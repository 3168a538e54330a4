"""A clock that slips is not told as latency, and a device that stalls is, whatever the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from clock_faults import BEGIN_NS, FORMATS, GAP_NS, KINDS, Fault, S, capture, faults, log

from tailscope.engine.analysis import analyze
from tailscope.extra.witness.doubts import clock_doubts

if TYPE_CHECKING:
    from pathlib import Path

    from tailscope.engine.analysis import Analysis, ClockDoubt

LIMIT_NS = 100_000
"""What ``--clock-limit`` is by itself: logs that are better than that lower it."""
ERROR_NS = 2_000
"""Largest error of a latency: offsets in these logs are up to 200 ns."""
SMALL_MS = {"least_ms": 0.2, "most_ms": 10}
MARGIN_NS = {"ptp4l": S // 4, "phc2sys": S // 4, "chrony": 5 * S // 4}
"""How much longer than the fault the clock is in doubt: chrony's times are whole seconds."""


def analysed(
    folder: Path, fault: Fault, form: str, *, is_clock: bool
) -> tuple[Analysis, list[ClockDoubt], dict[int, int]]:
    made = capture(folder, fault, is_clock=is_clock)
    spec = log(folder, fault, form, is_clock=is_clock)
    captures = {"pre": str(made.pre), "post": str(made.post)}
    doubts = clock_doubts([spec], LIMIT_NS, captures)
    doubted = tuple(
        [(doubt.start_ns, doubt.end_ns) for doubt in doubts if doubt.side == side]
        for side in ("pre", "post")
    )
    analysis = analyze(made.pre, made.post, clocks="detect", doubts=doubted)
    inside = [doubt for doubt in doubts if BEGIN_NS < doubt.end_ns < BEGIN_NS + fault.ends_ns]
    return analysis, inside, made.true_ns


def check_clock(folder: Path, fault: Fault, form: str) -> None:
    """No packet's latency is off by more than usual, and what is sound has its latency."""
    analysis, doubts, true_ns = analysed(folder, fault, form, is_clock=True)
    summary, series = analysis.summary, analysis.series
    assert summary["lost"] == 0
    assert summary["negative"] == 0
    assert summary["count"] + summary["untimed"] == len(true_ns)
    pairs = zip(series.seq.tolist(), series.latency_ns.tolist(), strict=True)
    assert max(abs(ns - true_ns[seq]) for seq, ns in pairs) <= ERROR_NS
    most = (fault.lasts_ns + 2 * MARGIN_NS[form] + 2 * abs(fault.by_ns)) // GAP_NS
    assert 0 < summary["untimed"] <= most
    assert {doubt.side for doubt in doubts} == {fault.side}
    assert max(doubt.offset_ns or 0 for doubt in doubts) > ERROR_NS


def check_device(folder: Path, fault: Fault, form: str) -> None:
    """All packets have the latency that they had: none is excused."""
    analysis, doubts, true_ns = analysed(folder, fault, form, is_clock=False)
    summary, series = analysis.summary, analysis.series
    assert doubts == []
    assert summary["untimed"] == 0
    assert summary["clock_slips"] == 0
    assert dict(zip(series.seq.tolist(), series.latency_ns.tolist(), strict=True)) == pytest.approx(
        true_ns, abs=1
    )
    assert max(true_ns.values()) > 0.8 * abs(fault.by_ns)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("fault", faults(len(KINDS)), ids=lambda fault: fault.kind)
def test_a_clock_is_no_device(tmp_path: Path, fault: Fault, form: str) -> None:
    check_clock(tmp_path, fault, form)


@pytest.mark.parametrize("fault", faults(2, **SMALL_MS), ids=lambda fault: fault.kind)
def test_a_device_is_no_clock(tmp_path: Path, fault: Fault) -> None:
    check_device(tmp_path, fault, "phc2sys")


@pytest.mark.long
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("sizes_ms", [{}, SMALL_MS], ids=["10 to 50 ms", "0.2 to 10 ms"])
def test_fifty_clocks_and_fifty_devices(
    tmp_path: Path, form: str, sizes_ms: dict[str, float]
) -> None:
    for fault in faults(50, **sizes_ms):
        check_clock(tmp_path, fault, form)
        check_device(tmp_path, fault, form)
