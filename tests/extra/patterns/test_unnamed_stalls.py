"""Stalls that `tailscope explain` tells beside what was recorded: those without a cause."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import captures
import numpy as np
import pytest
from synthetic import info_of

from tailscope.extra.patterns import explain
from tailscope.extra.patterns.explain import patterns_of, stalls_beyond, unnamed_stalls
from tailscope.extra.patterns.models.series import Series
from tailscope.extra.patterns.source import Searched
from tailscope.extra.patterns.words import stalls_text
from tailscope.noise.attribution import NEVER, Blocked

if TYPE_CHECKING:
    from pathlib import Path

    from tailscope.extra.patterns.models.holds import Holds

Run = Callable[..., Any]

SECOND = 1_000_000_000
BEGIN_S, LASTED_S = 1_600_000_000, 40
GAP_NS, USUAL_NS, STALL_NS = 2_000_000, 10_000, 40_000_000
STALLED_S = (1, 5, 8, 13, 21, 26, 30, 37)
HELD = STALL_NS // GAP_NS
TOLD = "Unexplained stalls"


def stalling() -> np.ndarray:
    """Latencies of a device that stalls at eight moments."""
    took = np.full(LASTED_S * SECOND // GAP_NS, USUAL_NS)
    took += np.random.default_rng(1).integers(0, 500, len(took))
    for second in STALLED_S:
        at = second * SECOND // GAP_NS
        took[at : at + HELD] += STALL_NS - GAP_NS * np.arange(HELD)
    return took


def caused(count: int, share: float) -> Blocked:
    """What recorded a share of each of the first stalls."""
    start_ns = (BEGIN_S + np.array(STALLED_S[:count])) * SECOND
    end_ns = start_ns + round(share * STALL_NS)
    none = np.zeros(count, np.int64)
    return Blocked(start_ns, end_ns, none, none, none == 0, ["timer"], [""])


@pytest.mark.parametrize(
    ("blocked", "stalls"),
    [
        (NEVER, 8),
        (caused(3, 1.0), 5),
        (caused(3, 0.6), 5),
        (caused(3, 0.4), 8),
        (caused(8, 1.0), None),
    ],
)
def test_stalls_of_which_less_than_half_has_a_cause_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blocked: Blocked, stalls: int | None
) -> None:
    took = stalling()
    series = Series(np.arange(len(took)) * GAP_NS, took)
    searched = Searched(series, len(took), 0, len(took) - 1, BEGIN_S * SECOND)
    told: list[Holds] = []

    def keep(found: Holds) -> str:
        told.append(found)
        return stalls_text(found)

    monkeypatch.setattr(explain, "read_series", lambda *_: searched)
    monkeypatch.setattr(explain, "stalls_text", keep)
    parts = {"unexplained": 200}
    tail = cast("Any", SimpleNamespace(threshold_ns=GAP_NS, excess_ns=1000, parts_ns=parts))
    text = unnamed_stalls(tmp_path, info_of(), tail, blocked)
    assert (text is None) == (stalls is None)
    assert [found.stalls for found in told] == ([] if stalls is None else [stalls])
    for found in told:
        assert found.packets == found.stalls * HELD
        assert found.duration_ns_p50 == pytest.approx(STALL_NS, rel=0.01)
        assert found.observed_s == pytest.approx(LASTED_S, rel=0.01)
    parts["unexplained"] = 199
    assert unnamed_stalls(tmp_path, info_of(), tail, blocked) is None


@pytest.mark.parametrize("rate_pps", [500, 10_000])
def test_batches_of_the_device_are_no_stalls_of_their_own(rate_pps: int) -> None:
    """`model aliasing` tells those stalls alone that `explain` tells: no group of a batch."""
    gaps_ns = np.random.default_rng(11).exponential(1e9 / rate_pps, 30_000)
    arrival_ns = np.cumsum(gaps_ns).astype(np.int64)
    arrival_ns -= arrival_ns[0]
    released_ns = arrival_ns.reshape(-1, 4)[:, -1:] + 5_000 + 200 * np.arange(4)
    batches = Series(arrival_ns, released_ns.ravel() - arrival_ns)
    found = patterns_of(Searched(batches, len(arrival_ns), 0, len(arrival_ns) - 1), None)
    assert [named.pattern for named in found.named] == ["batching"]
    assert found.unnamed_stalls is stalls_beyond(batches, 0) is None
    held = Series(np.arange(len(stalling())) * GAP_NS, stalling())
    assert stalls_beyond(held, 0) is not None


def test_counters_alone_do_not_say_that_a_stall_has_no_cause(
    tailscope: Run, tmp_path: Path
) -> None:
    pre, post = captures.pair(tmp_path, stalling().tolist(), start=BEGIN_S * SECOND, gap=GAP_NS)
    assert tailscope("analyze", pre, post, "--out", tmp_path / "run").returncode == 0
    counts = 4 * np.arange(LASTED_S + 10)
    counted = tmp_path / "irq.csv"
    rows = "".join(f"{count};{BEGIN_S - 5 + at}000000\n" for at, count in enumerate(counts))
    counted.write_text(f"TLB_TLB_shootdowns_CPU0;timestamp_us\n{rows}")
    polls = tmp_path / "perf.txt"
    polls.write_text(
        "".join(
            f"{name:>16} {pid:5} [002] {at}.000000000: sched:sched_switch: prev_comm={name}"
            f" prev_pid={pid} ==> next_comm={following} next_pid={after} next_prio=1\n"
            for name, pid, at, following, after in (
                ("swapper/2", 0, BEGIN_S - 1, "l2fwd", 50),
                ("l2fwd", 50, BEGIN_S + LASTED_S + 1, "swapper/2", 0),
            )
        )
    )
    by_counters = tailscope("explain", tmp_path / "run", "--interrupts", counted)
    by_trace = tailscope("explain", tmp_path / "run", "--trace", polls, "--cpus", 2)
    assert (by_counters.returncode, by_trace.returncode) == (0, 0), by_trace.stderr
    assert TOLD not in by_counters.stdout
    assert TOLD in by_trace.stdout
    assert f"{len(STALLED_S)} times" in by_trace.stdout
