"""Polled counters and slow packets: what is associated, what is not, and what cannot be told."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from errors import raises
from hypothesis import given, settings
from hypothesis import strategies as st
from polled import SECOND, readings, slow_at
from scipy.stats import binom
from single_packets import packets
from wording import assert_wording

from tailscope.exceptions import UsageError
from tailscope.noise.arrangements import arranged, arrangement_count, runs
from tailscope.noise.association import LEVEL, associate, slow_packets
from tailscope.noise.clocks import Offsets, align, offsets_of

KNOWN = Offsets({"": 0}, 0)
UNKNOWN = Offsets({}, 0)
UNLIKELY = 1e-4
"""Probability that a test of a rate fails although the rate is right."""


@given(st.lists(st.booleans(), min_size=1, max_size=9))
def test_arrangements_are_all_that_have_the_same_stretches(given_marks: list[bool]) -> None:
    marks = np.array(given_marks)
    n, lengths = len(marks), runs(marks)
    every = {
        chosen
        for chosen in combinations(range(n), int(marks.sum()))
        if sorted(runs(np.isin(np.arange(n), chosen))) == sorted(lengths)
    }
    associated = arranged(n, lengths)
    assert {tuple(np.flatnonzero(row).tolist()) for row in associated} == every
    assert len(associated) == len(every) == arrangement_count(n, lengths)


@given(st.integers(0, 40), st.integers(1, 6))
def test_a_sample_of_arrangements_keeps_the_stretches(seed: int, many: int) -> None:
    lengths = np.random.default_rng(seed).integers(1, 4, many).tolist()
    for row in arranged(40, lengths, most=1 if arrangement_count(40, lengths) > 1 else 0)[:50]:
        assert sorted(runs(row)) == sorted(lengths)


@given(
    st.lists(st.integers(0, 3), min_size=8, max_size=8),
    st.sets(st.integers(0, 7), min_size=2, max_size=3),
)
@settings(deadline=None)
def test_the_p_value_is_the_share_of_arrangements(counts: list[int], slow: set[int]) -> None:
    """Against every order of the windows that has the same stretches, one by one."""
    marks = np.isin(np.arange(8), list(slow))
    lengths = sorted(runs(marks))
    others = [
        order
        for chosen in combinations(range(8), len(slow))
        if sorted(runs(order := np.isin(np.arange(8), chosen))) == lengths
    ]
    associated = associate(
        [readings(np.array([counts]).T)],
        slow_at([at + 0.5 for at in slow], 8),
        KNOWN,
    )
    if len(lengths) < 2 or len(others) < 1 / LEVEL:
        assert associated.counters == ()
        assert associated.files[0].not_tested_because is not None
        return
    if not associated.counters:
        assert np.count_nonzero(counts) < 2 or associated.regular
        return
    observed = sum(np.array(counts)[marks])
    as_high = sum(sum(np.array(counts)[order]) >= observed for order in others)
    assert associated.counters[0].p_value == pytest.approx(as_high / len(others))


def test_the_sum_of_the_devices_cpu_is_judged_first() -> None:
    """Counters of CPU 1 among 25 that move at random, and a queue of a card that moves along."""
    windows, slow = 30, (4, 14)
    counts = np.random.default_rng(5).poisson(0.7, (windows, 28))
    counts[:, :3] = 0
    counts[list(slow), :2] = [[5, 3], [4, 2]]
    counts[list(slow), 2] = 9
    names = [("TLB", 1), ("CAL", 1), ("eno1-TxRx-1", 0), *((f"other {n}", 0) for n in range(25))]
    file = replace(readings(counts), names=names)
    late = slow_at([at + 0.3 for at in slow], windows)
    searched = associate([file], late, UNKNOWN)
    assert "eno1-TxRx-1" in {row.counter for row in searched.counters if row.is_associated}
    named = associate([file], late, UNKNOWN, {"guest": (1,)})
    assert [(row.cpu, row.is_associated) for row in named.sums] == [(1, True)]
    assert {row.counter for row in named.counters if row.is_associated} == {"TLB", "CAL"}
    assert {row.cpu for row in named.counters} == {1}
    nothing = associate([file], late, UNKNOWN, {"guest": (2,)})
    assert (nothing.sums, nothing.counters) == ((), ())


def test_single_counters_of_a_cpu_that_is_not_found_are_not_tested() -> None:
    counts = np.random.default_rng(6).poisson(3, (40, 1))
    associated = associate([readings(counts)], slow_at([3, 11, 27], 40), KNOWN, {"guest": (0,)})
    assert [row.is_associated for row in associated.sums] == [False]
    assert (associated.counters, associated.tested) == ((), 1)


def null_alarms(seed: int, offsets: Offsets, windows: int, lasted_s: int) -> bool:
    """Return True if any counter is named although slow packets come independently."""
    random = np.random.default_rng(seed)
    counts = np.column_stack(
        [
            random.poisson(0.3, windows),
            random.poisson(5, windows),
            5 * (random.random(windows) < 0.1),
            np.repeat(random.poisson(2, windows // 4 + 1), 4)[:windows],
        ]
    )
    # Bursts that last longer than a window, too.
    begin = random.random(random.integers(3, 7)) * (lasted_s - 3)
    slow = slow_at([*begin, *(begin[:2] + 0.9)], lasted_s)
    associated = associate([readings(counts)], slow, offsets)
    return any(row.is_associated for row in associated.counters)


@pytest.mark.parametrize(
    ("offsets", "windows", "seeds"),
    [
        pytest.param(KNOWN, 40, 60, id="known"),
        pytest.param(UNKNOWN, 60, 8, id="searched"),
        pytest.param(KNOWN, 40, 200, id="known, often", marks=pytest.mark.long),
        pytest.param(UNKNOWN, 60, 30, id="searched, often", marks=pytest.mark.long),
    ],
)
def test_counters_that_have_nothing_to_do_with_it_are_named_at_the_stated_level(
    offsets: Offsets, windows: int, seeds: int
) -> None:
    alarms = sum(null_alarms(seed, offsets, windows, 40) for seed in range(seeds))
    assert alarms <= binom.isf(UNLIKELY, seeds, LEVEL), f"{alarms} of {seeds}"


def planted(seed: int, windows: int, shift_s: float = 0.0) -> tuple[list[float], np.ndarray]:
    """Eight slow moments, and a counter that moved then and once elsewhere, on CPU 1 of 3."""
    random = np.random.default_rng(seed)
    slow = sorted((random.permutation(18)[:8] * 2 + 1.5).tolist())
    counts = random.poisson(4, (windows, 3))
    counts[:, 1] = 0
    counts[[int(at + shift_s) for at in slow], 1] = 3
    counts[windows - 1, 1] = 1
    return slow, counts


@pytest.mark.parametrize("seed", range(5))
def test_a_counter_that_moves_with_slow_packets_is_associated(seed: int) -> None:
    slow, counts = planted(seed, 40)
    associated = associate([readings(counts)], slow_at(slow, 40), KNOWN)
    best = associated.counters[0]
    assert best.cpu == 1
    assert best.is_associated
    assert associated.evidence == "associated"
    assert (best.slow_count, best.rest_count) == (24, 1)
    assert best.ratio == pytest.approx(24 / 8 / (1 / 32))
    assert best.ratio is not None
    assert best.ratio_ci_low is not None
    assert 1 < best.ratio_ci_low < best.ratio < (best.ratio_ci_high or np.inf)


@pytest.mark.parametrize("seed", range(3))
def test_an_unknown_offset_is_searched(seed: int) -> None:
    """The counters began 13.3 s earlier, by a clock that began then."""
    slow, counts = planted(seed, 60, 13.3)
    associated = associate([readings(counts)], slow_at(slow, 40), UNKNOWN)
    best = associated.counters[0]
    assert best.cpu == 1
    assert best.is_associated
    assert associated.files[0].alignment.basis == "unknown"
    assert best.best_offset_ns is not None
    assert abs(best.best_offset_ns + 13.3 * SECOND) < SECOND
    assert best.ratio_ci_low is None


def test_an_error_of_the_offset_widens_what_may_be_slow() -> None:
    slow, counts = planted(1, 40)
    files = [readings(counts)]
    exact, wide = (
        associate(files, slow_at(slow, 40), Offsets({"": 0}, error_ns))
        for error_ns in (0, SECOND * 45 // 100)
    )
    assert exact.files[0].slow_windows == 8
    assert wide.files[0].slow_windows == 8
    shifted = associate(
        files, slow_at([at - 0.45 for at in slow], 40), Offsets({"": 0}, SECOND // 10)
    )
    assert shifted.files[0].slow_windows > 8
    searched = associate(files, slow_at(slow, 40), Offsets({"": 2 * SECOND}, 3 * SECOND))
    assert searched.counters[0].best_offset_ns is not None


def test_a_clock_like_counter_cannot_be_associated() -> None:
    slow, counts = planted(2, 40)
    counts[:, 2] = 250
    counts[::5, 2] = 251
    associated = associate([readings(counts)], slow_at(slow, 40), KNOWN)
    assert [(row.cpu, round(row.rate_hz)) for row in associated.regular] == [(2, 250)]
    assert {row.cpu for row in associated.counters} == {0, 1}


@pytest.mark.parametrize(
    ("seconds", "packets", "name"),
    [
        ([5.5], 12, "episodes"),
        ([5.5, 9.5], 2, "packets"),
        ([at + 0.5 for at in range(40) if at % 4], 5, "windows"),
    ],
)
def test_too_little_evidence_is_said(seconds: list[float], packets: int, name: str) -> None:
    _, counts = planted(3, 40)
    associated = associate([readings(counts)], slow_at(seconds, 40, packets=packets), KNOWN)
    assert associated.counters == ()
    assert_wording(f"noise/too-few-{name}", str(associated.files[0].not_tested_because))


def test_clocks_that_do_not_meet_are_refused() -> None:
    _, counts = planted(4, 40)
    with raises(UsageError, "times-apart") as unix:
        associate([readings(counts, start_ns=1_700_000_000 * SECOND)], slow_at([1], 40), UNKNOWN)
    assert "--offset" in (unix.value.hint or "")
    with raises(UsageError, "times-apart") as given:
        associate([readings(counts)], slow_at([1], 40), Offsets({"": 100 * SECOND}, 0))
    assert all(text in str(given.value) for text in ("guest: ", "100.000000 to 140.000000"))


def test_offsets_are_read_with_names_and_signs() -> None:
    offsets = offsets_of(["-25.8s", "host=3ms"], "10us", ["guest", "host"])
    assert (offsets.of("guest"), offsets.of("host"), offsets.error_ns) == (
        -25_800_000_000,
        3_000_000,
        10_000,
    )
    for texts, code, got in (
        (["cat=1s"], "offset-name", "'cat'"),
        (["1s", "2s"], "offset-twice", ""),
        (["host=1s", "host=2s"], "offset-twice", "host"),
    ):
        with raises(UsageError, code) as error:
            offsets_of(texts, "0s", ["guest", "host"])
        assert str(error.value).startswith("--offset: ") and got in str(error.value)
    with pytest.raises(UsageError) as malformed:
        offsets_of(["--1s"], "0s", ["guest", "host"])
    assert str(malformed.value).startswith("--offset: ")


@given(st.integers(1, 3_000), st.integers(0, 9))
@settings(deadline=None)
def test_slow_packets_are_never_fewer_than_ten_where_there_are_as_many(n: int, seed: int) -> None:
    latency = np.random.default_rng(seed).permutation(n) + 1_000
    with packets(np.arange(n) * 1_000, latency) as all_of_them:
        slow = slow_packets(all_of_them, all_of_them.latencies(), None)
    assert len(slow.start_ns) == np.count_nonzero(latency > slow.threshold_ns)
    assert len(slow.start_ns) >= min(10, n // 100)


def test_what_a_recording_says_of_its_own_clock_is_used() -> None:
    """perf notes the monotonic clock beside Unix time, in microseconds."""
    begin_ns = 1_600_000_000 * SECOND
    captures_ns = (begin_ns, begin_ns + 40 * SECOND)
    own_ns = (77 * SECOND, 117 * SECOND)
    associated = align("perf", own_ns, captures_ns, UNKNOWN, to_unix_ns=begin_ns - own_ns[0])
    assert (associated.basis, associated.offset_ns) == ("recorded", begin_ns - own_ns[0])
    assert associated.error_ns == 1_000
    offsets = align(
        "perf", own_ns, captures_ns, Offsets({"": begin_ns - own_ns[0]}, 5), to_unix_ns=0
    )
    assert (offsets.basis, offsets.offset_ns, offsets.error_ns) == (
        "given",
        associated.offset_ns,
        5,
    )
    with raises(UsageError, "times-apart"):
        align("perf", own_ns, captures_ns, UNKNOWN, to_unix_ns=0)
