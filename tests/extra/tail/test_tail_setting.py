"""What the bursts of other runs of the setting say of a run: synthetic campaigns of known truth."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from errors import code_of
from test_tail_table import COUNT, DURATION_NS, FLOOR_NS, write_tables

from tailscope.extra.tail.models.bursts import Bursts
from tailscope.extra.tail.models.causes import schedule_of_largest
from tailscope.extra.tail.models.excesses import Excesses, select
from tailscope.extra.tail.models.model import Settings, model
from tailscope.extra.tail.models.setting import (
    QUANTILES,
    NextQuantile,
    Region,
    RunTail,
    largest,
    next_quantiles,
)
from tailscope.extra.tail.recorded import record_of

if TYPE_CHECKING:
    from pathlib import Path

Run = Callable[..., Any]

SECOND = 10**9
PART_S, REST_S = 32, 128
CLASS_NS, SIZE_NS = 900_000, 5_000
LEVEL = 0.95


def bursts_of(rng: np.random.Generator, seconds: float, class_per_s: float) -> Any:
    """Sizes of the bursts of so long a time: a bulk, and a class far above it."""
    bulk = FLOOR_NS + rng.exponential(5_000, rng.poisson(5 * seconds))
    rare = CLASS_NS * np.exp(rng.normal(0, 0.05, rng.poisson(class_per_s * seconds)))
    return np.sort(np.concatenate([bulk, rare]).astype(np.int64))


def tail(worst_ns: Any, seconds: float = PART_S) -> RunTail:
    worst_ns = np.sort(worst_ns)
    slices = np.zeros(len(worst_ns), np.int64)
    return RunTail(worst_ns, FLOOR_NS, seconds * SECOND, 1e5, (None,) * 3, worst_ns, slices)


def test_the_largest_is_where_it_is_said_to_be() -> None:
    """Settings whose class comes in each run, in some, and in none."""
    held, widths, known = 0, [], 0
    cases = [(rate, seed) for rate in (0.0, 0.01, 0.2) for seed in range(40)]
    for rate, seed in cases:
        rng = np.random.default_rng([seed, int(1000 * rate)])
        own, *others = (tail(bursts_of(rng, PART_S, rate)) for _ in range(12))
        rest_ns = float(bursts_of(rng, REST_S, rate).max())
        found = largest([own], others, REST_S * SECOND, LEVEL)
        held += found.low_ns <= rest_ns <= found.high_ns
        known += any(low <= rest_ns <= high for low, high, _ in found.regions)
        widths.append(found.high_ns / found.low_ns)
    assert held >= 0.93 * len(cases)
    assert known >= 0.9 * len(cases)
    assert np.median(widths) < 20


def test_a_class_of_other_runs_is_foretold() -> None:
    rng = np.random.default_rng(3)
    own = tail(bursts_of(rng, PART_S, 0))
    others = [tail(bursts_of(rng, PART_S, 0.05)) for _ in range(10)]
    alone, together = (largest([own], like, REST_S * SECOND, LEVEL) for like in ([], others))
    bulk, rare, *beyond = together.regions
    assert all(region.low_ns > together.seen_ns for region in beyond)
    assert rare.low_ns < CLASS_NS < rare.high_ns < 2 * CLASS_NS
    assert bulk.high_ns < 2 * own.max_ns
    assert 0.2 < together.recurs(1) < 0.95
    assert together.seen_ns > 5 * alone.seen_ns
    assert rare.high_ns / together.low_ns < alone.high_ns / alone.low_ns


def test_nothing_that_was_seen_is_outside() -> None:
    rng = np.random.default_rng(5)
    quiet = [tail(bursts_of(rng, PART_S, 0)) for _ in range(20)]
    own = tail(np.append(bursts_of(rng, PART_S, 0), 4_000_000))
    for found in (
        largest([own], quiet, SECOND, LEVEL),
        largest([quiet[0], own], quiet[1:], REST_S * SECOND, LEVEL),
    ):
        assert found.low_ns <= own.max_ns <= found.high_ns
        assert any(low <= own.max_ns <= high for low, high, _ in found.regions)
        assert sum(region.probability for region in found.regions) <= 1
        assert found.low_ns <= found.known_ns[2] <= found.high_ns


def test_a_run_without_bursts_is_bounded_by_the_others() -> None:
    rng = np.random.default_rng(6)
    others = [tail(bursts_of(rng, PART_S, 0.2)) for _ in range(5)]
    found = largest([tail(np.zeros(0, np.int64))], others, REST_S * SECOND, LEVEL)
    assert found.low_ns <= FLOOR_NS < CLASS_NS < found.high_ns


def exponential_run(rng: np.random.Generator, spread: float, packets: int = 200_000) -> RunTail:
    """A run whose tail is as long as that of others, but for a factor."""
    beyond = packets // 100
    sent_ns = np.sort(rng.integers(0, PART_S * SECOND, beyond))
    sizes_ns = SIZE_NS * rng.lognormal(0, spread) * rng.exponential(1, beyond)
    latency_ns = FLOOR_NS + 1 + sizes_ns.astype(np.int64)
    places = np.arange(beyond) * 100
    found = Excesses(sent_ns, latency_ns, places, FLOOR_NS, packets, 0, PART_S * SECOND)
    return RunTail.of(found, SECOND // 1000)


@pytest.mark.parametrize("spread", [0.0, 0.3])
def test_quantiles_of_the_next_run(spread: float) -> None:
    """They differ by chance, and by more where repeats do."""
    held, widths = 0, []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        like = [
            exponential_run(rng, spread, packets)
            for packets in (100_000, 400_000)
            for _ in range(3)
        ]
        own = [exponential_run(rng, spread) for _ in range(2)]
        (found,) = next_quantiles(own, like, LEVEL)
        assert found.quantile == QUANTILES[0]
        came_ns = exponential_run(rng, spread).quantiles_ns[0]
        assert came_ns is not None
        held += found.low_ns <= came_ns <= found.high_ns
        widths.append(found.high_ns / found.low_ns)
    assert held >= 0.9 * 40
    assert np.median(widths) < 1.8
    assert not next_quantiles([exponential_run(rng, 0, 50_000)], like, LEVEL)


@pytest.mark.parametrize("runs", [1, 2, 4, 8])
def test_of_runs_that_are_alike_each_may_have_the_largest(runs: int) -> None:
    exceeds = []
    for seed in range(40):
        rng = np.random.default_rng([seed, runs])
        own = [tail(bursts_of(rng, PART_S, 0)) for _ in range(runs)]
        found = largest(own, [], PART_S * SECOND, LEVEL)
        exceeds.append(1 - found.law.probability(found.seen_ns))
    assert -0.05 < np.mean(exceeds) - 1 / (runs + 1) < 0.12, "by chance; more if rates may drift"


def test_an_hour_of_uneven_runs_has_a_largest_that_is_not_below_theirs() -> None:
    """A run may well lack what another had; forty together hardly do."""
    held, lows = 0, []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        *own, hour = (
            tail(FLOOR_NS + rng.exponential(300_000, rng.poisson(7 * runs)), runs * PART_S)
            for runs in (1, 1, 1, 1, 45)
        )
        further, later = (largest(own, [], n * PART_S * SECOND, LEVEL) for n in (1, 45))
        held += later.low_ns <= hour.max_ns <= later.high_ns
        lows.append([found.low_ns / found.seen_ns for found in (further, later)])
    after_one, after_many = np.median(lows, axis=0)
    assert held >= 0.93 * 40
    assert after_one < 0.5 < 0.8 < after_many


def test_sizes_that_are_apart_by_chance_leave_no_gap() -> None:
    """Only two classes do: a few sizes are a sample of their law."""
    in_gap = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        *own, further = (FLOOR_NS * (1 + rng.pareto(2, rng.poisson(40))) for _ in range(3))
        found = largest([tail(sizes) for sizes in own], [], PART_S * SECOND, LEVEL)
        in_region = any(low <= further.max() <= high for low, high, _ in found.regions)
        in_gap += found.low_ns <= further.max() <= found.high_ns and not in_region
    assert in_gap <= 3


def test_a_second_run_makes_no_interval_wider() -> None:
    widths = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        runs = [tail(FLOOR_NS + rng.exponential(300_000, 40)) for _ in range(2)]
        found = [largest(runs[:after], [], PART_S * SECOND, LEVEL) for after in (1, 2)]
        widths.append([each.high_ns / each.low_ns for each in found])
    after_one, after_two = np.median(widths, axis=0)
    assert after_two < after_one


def test_the_return_level_of_one_run_alone_is_near_its_largest() -> None:
    """One burst is expected beyond it, but how far beyond, one run cannot tell."""
    own = tail(bursts_of(np.random.default_rng(6), PART_S, 0.05))
    again, rest = (largest([own], [], seconds * SECOND, LEVEL) for seconds in (PART_S, REST_S))
    assert again.level_ns == own.max_ns
    assert own.max_ns < rest.level_ns < 1.1 * own.max_ns
    assert 0.5 < rest.exceeds_level < 0.8


def test_a_clock_is_found_in_the_bulk() -> None:
    """container/rt/non-optimized of containers2024: the largest bursts come every 2.0 s."""
    rng = np.random.default_rng(7)
    times = np.concatenate([np.arange(15) * 2 * SECOND, rng.integers(0, 32 * SECOND, 200)])
    sizes = np.concatenate([np.full(15, 123_000), rng.integers(90_000, 121_000, 200)])
    order = np.argsort(times)
    found = schedule_of_largest([Bursts(times[order], sizes[order], np.ones(215, np.int64))])
    assert found is not None and found.period_ns == pytest.approx(2 * SECOND, rel=1e-3)
    by_chance = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        sent, worst = np.sort(rng.integers(0, 32 * SECOND, 200)), rng.integers(1, 10**6, 200)
        by_chance += schedule_of_largest([Bursts(sent, worst, worst)]) is not None
    assert by_chance <= 2


def test_runs_of_the_same_set_up_are_given_by_folder(tailscope: Run, tmp_path: Path) -> None:
    files = [write_tables(tmp_path / "like", f"rate{seed}", seed) for seed in range(4)]
    for file in files[1:]:
        with file.open("a") as table:
            table.writelines(f"{CLASS_NS},{DURATION_NS // 7 * at}\n" for at in range(1, 5))
    arguments = ("model", "tail", "--worst", files[0], "--count", COUNT, "--json")
    alone, together = tmp_path / "alone.json", tmp_path / "together.json"
    assert tailscope(*arguments, alone).returncode == 0
    done = tailscope(*arguments, together, "--like", tmp_path / "like")
    assert done.returncode == 0, done.stderr
    assert "the largest is" in done.stdout and "--like" not in done.stdout
    records = [json.loads(file.read_text()) for file in (alone, together)]
    assert [record["like"] for record in records] == [0, 3]
    regions = records[1]["rest_max_ns_regions"]
    assert any(region["low"] < CLASS_NS < region["high"] for region in regions)
    assert regions[-1]["high"] == records[1]["rest_max_ns_ci_high"]
    missing = tailscope(*arguments, alone, "--like", tmp_path / "missing")
    assert missing.returncode == 1 and code_of(missing) is not None


def test_no_figure_is_only_where_the_model_ends() -> None:
    """A single burst far above all others says nothing of how large the next may be."""
    rng = np.random.default_rng(8)
    own = tail(np.append(FLOOR_NS + rng.exponential(2_000, 100), 1000 * FLOOR_NS))
    much_later = largest([own], [], 3000 * PART_S * SECOND, LEVEL)
    low_ns, median_ns, high_ns = much_later.known_ns
    assert much_later.told_ns(low_ns) == low_ns <= own.max_ns
    assert much_later.told_ns(median_ns) is much_later.told_ns(high_ns) is None
    *_, (region_low_ns, _, probability) = much_later.regions
    assert probability == pytest.approx(1 - much_later.law.probability(region_low_ns))
    assert much_later.told_ns(much_later.high_ns) is None
    further = largest([own], [], PART_S * SECOND, LEVEL)
    assert further.told_ns(further.known_ns[1]) == further.known_ns[1]


def test_the_gap_below_a_class_is_no_spread_of_its_sizes() -> None:
    rng = np.random.default_rng(9)
    own = FLOOR_NS + rng.exponential(2_000, 100)
    rare = CLASS_NS * np.exp(rng.normal(0, 0.05, 6))
    found = largest([tail(np.append(own, rare))], [], PART_S * SECOND, LEVEL)
    assert rare.max() < found.known_ns[2] < 2 * rare.max()


def test_latencies_of_nothing_are_bounded() -> None:
    """As stamps of a coarse clock have them."""
    found = largest([tail(np.zeros(50, np.int64))._replace(floor_ns=0)], [], SECOND, LEVEL)
    assert 0 <= found.low_ns <= found.high_ns < SECOND


def stalling_run(seed: int, busy_per_s: float = 0.0) -> Any:
    """Packets of a device that needs 20 µs and stalls for 2 ms, on a host that may be busy."""
    rng = np.random.default_rng(seed)
    sent_ns = np.sort(rng.integers(0, 20 * SECOND, 40_000))
    latency_ns = 20_000 * rng.lognormal(0, 0.1, len(sent_ns))
    for per_s, long_ns in ((1 / 3, 2_000_000), (busy_per_s, 40_000_000)):
        for begin_ns in rng.uniform(0, 20 * SECOND, rng.poisson(20 * per_s)):
            left_ns = begin_ns + long_ns - sent_ns
            latency_ns += np.where(sent_ns >= begin_ns, np.maximum(left_ns, 0), 0)
    return select(sent_ns, latency_ns.astype(np.int64), 0.99)


def test_a_quantile_of_which_one_run_was_disturbed_has_two_regions() -> None:
    """What the quiet runs had, or what the disturbed one had, but nothing between."""
    quiet = [exponential_run(np.random.default_rng(seed), 0) for seed in range(3)]
    rng = np.random.default_rng(3)
    begins = np.sort(rng.integers(0, PART_S * SECOND, 40))
    waits_ns = np.arange(60_000_000, 0, -160_000)
    sent_ns = np.concatenate([begin + waits_ns[0] - waits_ns for begin in begins.tolist()])
    order = np.argsort(sent_ns, kind="stable")
    latency_ns = np.tile(waits_ns, len(begins))[order]
    busy = Excesses(sent_ns[order], latency_ns, order, 100_000, 200_000, 0, (PART_S + 1) * SECOND)
    disturbed = RunTail.of(busy, SECOND // 1000)
    (found,) = next_quantiles([*quiet, disturbed], [], LEVEL)
    low, high, *_ = found.regions
    seen_ns, worst_ns = quiet[0].quantiles_ns[0], disturbed.quantiles_ns[0]
    assert seen_ns is not None and worst_ns is not None
    assert low.low_ns < seen_ns < low.high_ns < 2 * seen_ns
    assert high.low_ns < worst_ns < high.high_ns and high.low_ns > 100 * low.high_ns
    assert low.probability > 0.3 and 0.1 < high.probability < 0.65


def test_how_long_the_longest_stall_is_hides_no_short_ones() -> None:
    """A stall that exceeds a quantile alone says no more of the others if it is longer."""
    lows = []
    for longest_ns in (40_000_000, 160_000_000):
        rng = np.random.default_rng(5)
        runs = []
        for at in range(4):
            begins = np.sort(rng.integers(0, PART_S * SECOND, 100))
            lengths = [longest_ns if at == each == 0 else 1_000_000 for each in range(100)]
            waits = [np.arange(length, 0, -100_000) for length in lengths]
            sent_ns = np.concatenate(
                [begin + wait[0] - wait for begin, wait in zip(begins, waits, strict=True)]
            )
            order = np.argsort(sent_ns, kind="stable")
            latency_ns = FLOOR_NS + np.concatenate(waits)[order]
            places, packets = sent_ns[order] // 100_000, 10 * PART_S * 1000
            run = Excesses(
                sent_ns[order], latency_ns, places, FLOOR_NS, packets, 0, PART_S * SECOND
            )
            runs.append(RunTail.of(run, SECOND // 1000))
        lows.append(next_quantiles(runs, [], LEVEL)[0].low_ns)
    assert lows[1] == pytest.approx(lows[0], rel=0.05)


@pytest.mark.parametrize("threshold", [None, 0.999, 0.9999])
def test_a_disturbed_run_takes_no_answer_away(threshold: float | None) -> None:
    """The worst packets of one bad run do not hide the bursts of the others."""
    runs = [stalling_run(seed) for seed in range(3)]
    bad = stalling_run(3, busy_per_s=4)
    settings = Settings(split=1, threshold=threshold)
    with_bad, without = (
        model(some, settings, np.random.default_rng(1)) for some in ([*runs, bad], runs)
    )
    assert bad.floor_ns > 10 * with_bad.ahead.base.at_ns
    assert with_bad.ahead.base.at_ns == without.ahead.base.at_ns
    assert with_bad.fit.threshold_ns == without.fit.threshold_ns
    assert with_bad.ahead.largest.high_ns >= bad.latency_ns.max() > without.ahead.largest.high_ns
    (aside,) = record_of(with_bad, 0).set_aside
    assert (aside.run, aside.floor_ns) == (3, bad.floor_ns)
    assert not record_of(without, 0).set_aside


def test_the_return_level_follows_from_the_regions() -> None:
    """It lies above a region exactly if something above that is more likely than not."""
    rng = np.random.default_rng(5)
    seen = set()
    for rate in np.geomspace(0.002, 0.05, 20):
        own = tail(bursts_of(rng, PART_S, 0))
        others = [tail(bursts_of(rng, PART_S, rate)) for _ in range(11)]
        found = largest([own], others, REST_S * SECOND, LEVEL)
        assert found.exceeds_level == pytest.approx(0.5, abs=0.01)
        assert found.low_ns <= found.level_ns <= found.high_ns
        for at in range(1, len(found.regions)):
            if abs(found.recurs(at) - 0.5) > 0.02:
                is_likely = found.recurs(at) > 0.5
                assert is_likely == (found.level_ns > found.regions[at - 1].high_ns)
                seen.add(is_likely)
    assert seen == {False, True}


def test_no_quantile_is_above_the_largest_latency() -> None:
    quantile = NextQuantile(0.99, (Region(10.0, 20.0, 0.4), Region(30.0, 50.0, 0.6)))
    assert quantile.at_most(40.0).regions[1] == Region(30.0, 40.0, 0.6)
    assert quantile.at_most(25.0).regions == (Region(10.0, 20.0, 0.4),)
    assert (quantile.at_most(5.0).low_ns, quantile.at_most(5.0).high_ns) == (5.0, 5.0)
