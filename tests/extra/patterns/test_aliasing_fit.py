"""Interruptions that are found in packets, where the truth is known: seeded, and of noms2020."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

import tailscope
from tailscope.extra.patterns.models.aliasing.doubts import mismatch
from tailscope.extra.patterns.models.aliasing.fit import fit, given
from tailscope.extra.patterns.models.aliasing.prediction import Prediction, figures, predict
from tailscope.extra.patterns.models.aliasing.search import FALSE_ALARMS, strongest
from tailscope.extra.patterns.models.aliasing.simulation import Periodic, simulate
from tailscope.extra.patterns.models.aliasing.wander import Wander

if TYPE_CHECKING:
    from pathlib import Path

    from tailscope.extra.patterns.models.aliasing.sources import Fit

BASE_NS = 3_000


def cbr(rate_pps: float, seconds: float) -> np.ndarray:
    """At a constant rate that no clock is a multiple of."""
    return np.rint(np.arange(int(rate_pps * seconds)) * (1e9 / (rate_pps * 1.00013))).astype(int)


def poisson(rng: np.random.Generator, rate_pps: float, seconds: float) -> np.ndarray:
    return np.cumsum(rng.exponential(1e9 / rate_pps, int(rate_pps * seconds))).astype(int)


def bursts(rate_pps: float, seconds: float, size: int = 8) -> np.ndarray:
    begin = cbr(rate_pps / size, seconds)
    return (begin[:, None] + 700 * np.arange(size)).ravel()


def measured(
    rng: np.random.Generator, arrival_ns: np.ndarray, sources: list[Periodic], noise_ns: float
) -> np.ndarray:
    """Latencies beside these sources, with some noise on each."""
    latency_ns = simulate(arrival_ns, sources, base_ns=BASE_NS)
    return latency_ns + np.rint(rng.gamma(4, noise_ns / 4, len(arrival_ns))).astype(int)


def assert_found(fitted: Fit, truth: list[Periodic], first_ns: int, noise_ns: float) -> None:
    """Each true source is found, at the right times, and no other."""
    assert fitted.reason is None
    assert len(fitted.sources) == len(truth)
    left = list(fitted.sources)
    for source in truth:
        (match,) = (
            each
            for each in left
            if abs(each.periodic.rate_hz - source.rate_hz) < 0.01
            and abs(each.periodic.duration_ns - source.duration_ns)
            < 0.05 * source.duration_ns + 4 * noise_ns
        )
        got, expected = match.periodic, source
        assert abs(got.period_ns - expected.period_ns) < 1e-6 * expected.period_ns
        # The numbers of the teeth are a convention: when they interrupt is not.
        until_ns = first_ns + 100 * int(expected.every * expected.period_ns)
        starts = [each.interruptions(first_ns, until_ns).start_ns[:200] for each in (got, expected)]
        pairs = min(map(len, starts)) - 1
        closest = np.abs(starts[0][:pairs, None] - starts[1][None, :]).min(axis=1)
        assert closest.max() < 0.05 * expected.duration_ns + 4 * noise_ns + 200
        assert match.rate_ci_hz is not None
        assert match.rate_ci_hz.low <= match.rate_ci_hz.high
        assert match.latency_ns == fitted.base_latency_ns + got.duration_ns


PAPER = [
    Periodic(4_000_195, 7_475, 1_180_330, 3, (0, 1)),
    Periodic(4_000_195, 10_413, 1_180_330, 3, (2,)),
]
HOST_AND_GUEST = [
    Periodic(4_000_195, 14_100, 700_000, 3, (0, 1)),
    Periodic(4_000_195, 15_800, 700_000, 3, (2,)),
    Periodic(4_000_003, 14_100, 1_900_000),
]
SOURCES = {
    "one": [Periodic(10_000_123, 25_000, 3_000_000)],
    "thousand a second": [Periodic(1_000_011, 6_000, 400_000)],
    "each third longer": PAPER,
    "host and guest": HOST_AND_GUEST,
    "one of four idle": [Periodic(1_000_037, 8_000, 5_000, 4, (0, 1, 3))],
    "slow": [Periodic(100_000_037, 300_000, 5_000_000)],
}


WAYS = [("cbr", 120.0), ("poisson", 0.0), ("cbr", 0.0), ("poisson", 120.0)]


@pytest.mark.parametrize(
    ("name", "pattern", "noise_ns"),
    [
        pytest.param(name, *way, marks=[] if at % len(WAYS) == of else [pytest.mark.long])
        for at, name in enumerate(SOURCES)
        for of, way in enumerate(WAYS)
    ],
)
def test_known_sources_are_found(name: str, pattern: str, noise_ns: float) -> None:
    rng = np.random.default_rng(list(map(ord, name + pattern)))
    arrival = cbr(10_000, 20) if pattern == "cbr" else poisson(rng, 10_000, 20)
    latency = measured(rng, arrival, SOURCES[name], noise_ns)
    assert_found(fit(arrival, latency), SOURCES[name], int(arrival[0]), noise_ns)


@pytest.mark.parametrize(("rate_pps", "seconds"), [(1_000, 60), (100_000, 4)])
def test_rates_of_packets_do_not_matter(rate_pps: int, seconds: int) -> None:
    """Neither few packets per tick, whose clock mirrors others, nor many that queue in a row."""
    rng = np.random.default_rng(rate_pps)
    arrival = cbr(rate_pps, seconds)
    latency = measured(rng, arrival, PAPER, 100)
    assert_found(fit(arrival, latency), PAPER, 0, 100)


def test_bursts_do_not_matter() -> None:
    rng = np.random.default_rng(5)
    arrival = bursts(40_000, 10)
    latency = measured(rng, arrival, PAPER, 100)
    assert_found(fit(arrival, latency), PAPER, 0, 100)


def test_rows_of_delayed_packets_are_one_event_each() -> None:
    """A million packets per second: each interruption makes a dozen of them queue."""
    rng = np.random.default_rng(6)
    arrival, clock = cbr(1_000_000, 1), Periodic(4_000_037, 10_000, 5)
    latency = simulate(arrival, [clock], base_ns=BASE_NS, service_ns=300)
    latency += np.rint(rng.gamma(4, 10, len(arrival))).astype(int)
    fitted = fit(arrival, latency)
    (source,) = fitted.sources
    assert source.periodic.period_ns == pytest.approx(4_000_037, abs=4)
    assert source.periodic.duration_ns == pytest.approx(10_000, abs=200)
    assert fitted.service_ns == pytest.approx(300, abs=10)
    # Those that queue behind a packet that a tick meets are not late by themselves.
    assert source.packets == pytest.approx(250, abs=5)
    prediction = predict(fitted, arrival, latency)
    assert prediction.agreement is not None
    assert prediction.agreement > 0.95


def noise(rng: np.random.Generator, arrival: np.ndarray, law: int) -> np.ndarray:
    """Latencies that no clock has a part in."""
    queue = simulate(arrival, [], base_ns=BASE_NS, service_ns=int(rng.integers(0, 40_000)))
    hit = np.where(rng.random(len(arrival)) < 0.02, rng.uniform(0, 20_000, len(arrival)), 0)
    laws = [
        rng.exponential(500, len(arrival)),
        rng.pareto(1.5, len(arrival)) * 200,
        rng.exponential(200, len(arrival)) + hit,
        # Delays in swarms, for as long as a neighbour is busy.
        hit * (np.sin(arrival / 1e9 * rng.uniform(2, 12)) > 0.8) * 5,
    ]
    return queue + laws[law].astype(int)


def test_chance_makes_no_clock() -> None:
    """At the level that is stated, two of 200 runs would have a source once in fifty times."""
    alarms = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        patterns = (poisson(rng, 2_500, 2), cbr(2_500, 2), bursts(2_500, 2))
        arrival = patterns[seed % 3]
        fitted = fit(arrival, noise(rng, arrival, seed // 3 % 4))
        alarms += bool(fitted.sources)
        assert bool(fitted.sources) is (fitted.reason is None)
    assert FALSE_ALARMS <= 1e-3
    assert alarms <= 1


def test_work_that_comes_with_every_32nd_packet_is_no_clock() -> None:
    rng = np.random.default_rng(7)
    arrival = cbr(10_000, 20) + rng.integers(0, 3_000, 200_000)
    latency = measured(rng, arrival, [], 100)
    latency[::32] += rng.integers(2_000, 4_000, len(latency[::32]))
    fitted = fit(arrival, latency)
    assert not fitted.sources
    assert all(text in str(fitted.reason) for text in ("1 packet in 32", "312.5"))


def test_clocks_in_step_with_even_packets_cannot_be_told_from_batches() -> None:
    """Each hits every 10th or 40th packet at one phase: no packet says what else it would do."""
    rng = np.random.default_rng(8)
    clocks = [Periodic(4_000_000, 4_000, 2_399_000), Periodic(1_000_000, 4_000, 698_000)]
    even = np.arange(200_000) * 100_000
    fitted = fit(even, measured(rng, even, clocks, 120))
    assert not fitted.sources
    assert "these packets cannot tell why: clocks of" in str(fitted.reason)
    assert "`--pattern poisson`" in str(fitted.reason)
    at_random = poisson(rng, 10_000, 20)
    told = fit(at_random, measured(rng, at_random, clocks, 120))
    rates_hz = sorted(source.periodic.rate_hz for source in told.sources)
    assert rates_hz == pytest.approx([250, 1_000], rel=1e-5)


def next_packets_late(
    rng: np.random.Generator, arrival_ns: np.ndarray, clocks: list[Periodic]
) -> np.ndarray:
    """Latencies of 14 µs of work, where the packet after each tick takes longer by as much."""
    latency_ns = 14_000 + rng.normal(0, 150, len(arrival_ns)).astype(int)
    for clock in clocks:
        ticks_ns = clock.interruptions(0, int(arrival_ns[-1])).start_ns
        hit = np.searchsorted(arrival_ns, ticks_ns[ticks_ns <= arrival_ns[-1]])
        latency_ns[hit] += clock.duration_ns
    return latency_ns


def test_ticks_that_delay_by_a_flat_amount_are_found() -> None:
    """As those of Snort in noms2020: a timer beside the tick, which wanders by 100 µs."""
    rng = np.random.default_rng(21)
    arrival = cbr(10_000, 20)
    timer = Periodic(1_058_222.5, 3_300, 800_000, wander=Wander(0.0, 20e9, (90_000.0,)))
    tick = Periodic(4_000_195, 2_800, 2_240_000)
    latency = next_packets_late(rng, arrival, [timer, tick])
    fitted = fit(arrival, latency)
    assert [source.periodic.rate_hz for source in fitted.sources] == [
        pytest.approx(timer.rate_hz, rel=1e-5),
        pytest.approx(tick.rate_hz, rel=1e-5),
    ]
    for source, truth in zip(fitted.sources, (timer, tick), strict=True):
        assert source.window_ns == pytest.approx(100_000, rel=0.5)
        assert source.periodic.duration_ns == pytest.approx(truth.duration_ns, abs=50)
        assert source.p_value <= FALSE_ALARMS
    assert fitted.explained > 0.9
    assert predict(fitted, arrival, latency).agreement > 0.9


def test_ticks_of_which_few_delay_a_packet_are_no_explanation() -> None:
    rng = np.random.default_rng(22)
    arrival = poisson(rng, 3_000, 15)
    ticks = np.arange(1, 15 * 200) * 5_000_003
    ticks = rng.choice(ticks[ticks < arrival[-1]], 600, replace=False)
    service = 20_000 + rng.integers(0, 500, len(arrival))
    service[np.searchsorted(arrival, ticks)] += 150_000
    latency = simulate(arrival, [], base_ns=0, service_ns=service) + service
    fitted = fit(arrival, latency)
    assert not fitted.sources
    assert "200.00 Hz is no explanation: it would delay 2" in str(fitted.reason)


def at_a_server(
    arrival_ns: np.ndarray, service_ns: int, clock: Periodic, rng: np.random.Generator
) -> np.ndarray:
    """Latencies of packets that a tick interrupts in service, one event after the other."""
    ticks_ns = clock.interruptions(0, int(arrival_ns[-1])).start_ns.tolist()
    latency_ns, free_ns, tick = [], 0, 0
    for came_ns in arrival_ns.tolist():
        done_ns = max(came_ns, free_ns)
        while tick < len(ticks_ns) and ticks_ns[tick] <= done_ns:
            done_ns = max(done_ns, ticks_ns[tick] + clock.duration_ns)
            tick += 1
        done_ns += service_ns
        while tick < len(ticks_ns) and ticks_ns[tick] < done_ns:
            done_ns += clock.duration_ns
            tick += 1
        free_ns = done_ns
        latency_ns.append(done_ns - came_ns)
    return np.array(latency_ns) + np.rint(rng.gamma(4, 30, len(arrival_ns))).astype(int)


@pytest.mark.parametrize(
    ("pattern", "duration_ns"), [("poisson", 30_000), ("cbr", 30_000), ("swarms", 10_000)]
)
def test_ticks_that_fall_into_service_are_found(pattern: str, duration_ns: int) -> None:
    """They delay the packet in service by all their length, and those behind it wait for it."""
    rng = np.random.default_rng(41)
    arrival = {
        "poisson": poisson(rng, 10_000, 10),
        "cbr": cbr(10_000, 10),
        "swarms": np.sort((poisson(rng, 1_250, 10)[:, None] + 150 * np.arange(8)).ravel()),
    }[pattern]
    arrival -= arrival[0]
    clock = Periodic(4_000_195, duration_ns, 1_300_000)
    latency = at_a_server(arrival, 20_000, clock, rng)
    fitted = fit(arrival, latency)
    (source,) = fitted.sources
    assert source.periodic.rate_hz == pytest.approx(clock.rate_hz, rel=1e-4)
    assert source.periodic.duration_ns == pytest.approx(duration_ns, rel=0.02)
    assert fitted.service_ns == pytest.approx(20_000, rel=0.05)


@pytest.mark.parametrize("tick_ns", [20_000, 30_000])
def test_a_timer_of_a_multiple_of_the_ticks_rate_is_a_clock_of_its_own(tick_ns: int) -> None:
    """Packets wait for the end of the longer tick only: 4 us are told by work, under much noise."""
    rng = np.random.default_rng(45)
    arrival = poisson(rng, 10_000, 10)
    arrival -= arrival[0]
    clocks = [Periodic(4_000_196, tick_ns, 2_300_000), Periodic(1_000_049, 4_000, 700_000)]
    waited = simulate(arrival, clocks, base_ns=0, service_ns=20_000)
    latency = waited + 23_000 + np.rint(rng.gamma(4, 500, len(arrival))).astype(int)
    found = sorted(fit(arrival, latency).sources, key=lambda source: source.periodic.rate_hz)
    for source, clock in zip(found, clocks, strict=True):
        assert source.periodic.rate_hz == pytest.approx(clock.rate_hz, rel=1e-4)
        assert source.periodic.duration_ns == pytest.approx(clock.duration_ns, rel=0.1)
    assert sum(source.explained for source in found) < 1


def test_what_comes_during_a_tick_does_not_hide_how_long_it_takes() -> None:
    """It waits for the rest of the tick: the median of all waits is less than a tick."""
    rng = np.random.default_rng(47)
    arrival = poisson(rng, 10_000, 20)
    arrival -= arrival[0]
    clocks = [Periodic(3_999_932, 9_000, 2_300_000), Periodic(1_000_040, 4_500, 700_000)]
    waited = simulate(arrival, clocks, base_ns=0, service_ns=3_000)
    latency = waited + 5_000 + np.rint(rng.gamma(2, 40, len(arrival))).astype(int)
    found = fit(arrival, latency).sources
    assert found
    for source in found:
        [clock] = [
            each for each in clocks if abs(each.rate_hz / source.periodic.rate_hz - 1) < 1e-3
        ]
        assert source.duration_ci_ns is not None
        assert source.duration_ci_ns.low <= clock.duration_ns <= source.duration_ci_ns.high
        assert source.duration_ci_ns.high < 1.1 * source.duration_ci_ns.low


def test_a_multiple_of_which_every_other_tick_delays_little_is_not_named() -> None:
    """Halfway between the timer's ticks lie those of 250 Hz: 2000 Hz would hold both."""
    rng = np.random.default_rng(46)
    arrival = np.rint(np.arange(100_000) * (1e9 / 10_007.6)).astype(int)
    clocks = [Periodic(3_999_715, 10_000, 3_794_000), Periodic(999_929, 4_000, 312_000)]
    waited = simulate(arrival, clocks, base_ns=0, service_ns=20_000)
    latency = waited + 23_000 + np.rint(rng.gamma(4, 500, len(arrival))).astype(int)
    found = sorted(source.periodic.rate_hz for source in fit(arrival, latency).sources)
    assert found == pytest.approx([clock.rate_hz for clock in clocks], rel=1e-4)


@pytest.mark.long
def test_work_on_single_packets_of_even_bursts_shows_a_clock() -> None:
    """It lies at one phase of the clock, and at many of its images in the rate of the bursts."""
    rng = np.random.default_rng(23)
    arrival = bursts(10_000, 10, 16)
    clock = Periodic(10_000_195, 10_000, 40_000)
    (source,) = fit(arrival, at_a_server(arrival, 20_000, clock, rng)).sources
    assert source.periodic.rate_hz == pytest.approx(clock.rate_hz, rel=1e-5)
    assert source.periodic.duration_ns == pytest.approx(10_000, rel=0.01)


def test_bursts_show_no_rate_but_its_mirror_images() -> None:
    rng = np.random.default_rng(22)
    arrival = bursts(10_000, 10, 32)
    fitted = fit(arrival, next_packets_late(rng, arrival, [Periodic(4_000_195, 9_000, 40_000)]))
    assert not fitted.sources
    assert "send them at random" in str(fitted.reason)


def test_too_little_is_said_to_be_too_little() -> None:
    arrival = cbr(10_000, 1)
    for packets in (0, 1, 19, 5_000):
        fitted = fit(arrival[:packets], np.full(packets, BASE_NS))
        assert fitted.sources == ()
        assert (fitted.packets, fitted.delayed, fitted.explained) == (packets, None, None)
        assert "fewer than 20 " in str(fitted.reason)
    clock = [Periodic(100_000_000, 5_000)]
    assert not fit(arrival, measured(np.random.default_rng(8), arrival, clock, 50)).sources


def test_chance_is_said_to_be_chance() -> None:
    rng = np.random.default_rng(9)
    arrival = poisson(rng, 5_000, 4)
    reason = fit(arrival, BASE_NS + rng.exponential(500, len(arrival)).astype(int)).reason
    assert "follow no rate" in str(reason)


@pytest.mark.long
def test_intervals_hold_the_truth() -> None:
    """Of 40 intervals at 95 %, more than five miss once in seventy times."""
    misses = {"rate": 0, "duration": 0}
    for seed in range(40):
        rng = np.random.default_rng(1_000 + seed)
        clock = Periodic(4_000_000 + rng.uniform(-500, 500), 20_000, rng.uniform(0, 4e6))
        arrival = poisson(rng, 2_000, 20)
        (source,) = fit(arrival, measured(rng, arrival, [clock], 0)).sources
        assert source.rate_ci_hz is not None
        misses["rate"] += not source.rate_ci_hz.low <= clock.rate_hz <= source.rate_ci_hz.high
        if source.duration_ci_ns is not None:
            misses["duration"] += not (
                source.duration_ci_ns.low - 1 <= 20_000 <= source.duration_ci_ns.high
            )
    assert max(misses.values()) <= 5, misses


def test_waits_that_are_not_even_have_no_interval() -> None:
    """Packets that never meet the middle of an interruption cannot say what lies beyond its end."""
    arrival = poisson(np.random.default_rng(3), 10_000, 20)
    latency = simulate(arrival, [Periodic(4_000_195, 9_000, 700_000)], base_ns=BASE_NS)
    apart = np.abs(latency - BASE_NS - 4_500) > 3_000
    fitted = fit(arrival[apart], latency[apart])
    assert fitted.sources
    assert all(source.duration_ci_ns is None for source in fitted.sources)


def test_packets_in_step_with_a_clock_are_refused() -> None:
    """Nothing tells it from work that comes with each second packet."""
    arrival = (np.arange(20_000)[:, None] * 1_000_000 + [0, 5_000]).ravel()
    arrival += np.random.default_rng(3).integers(0, 900, len(arrival))
    fitted = fit(arrival, simulate(arrival, [Periodic(2_000_000, 9_000, -2_000)], base_ns=BASE_NS))
    assert not fitted.sources
    assert all(text in str(fitted.reason) for text in (" 500.0000 Hz", " 2 times"))


def test_a_clock_may_wander() -> None:
    """A crystal that warms up: 4 µs early in between, 8 µs late at the ends, noise 120 ns."""
    rng = np.random.default_rng(12)
    arrival = cbr(10_000, 20)
    truth = [
        replace(each, wander=Wander(0.0, 20e9, (8_000.0,)), duration_ns=each.duration_ns + 5_000)
        for each in PAPER
    ]
    fitted = fit(arrival, measured(rng, arrival, truth, 120))
    assert_found(fitted, truth, 0, 120)
    for source in fitted.sources:
        assert source.periodic.wander.largest_ns == pytest.approx(8_000, rel=0.1)


@pytest.mark.parametrize("apart", [pytest.param(0.21, marks=pytest.mark.long), 0.505])
def test_two_clocks_of_one_period_are_told_apart(apart: float) -> None:
    """A host and its guest, a fifth or half a period apart: half has no peak at their rate."""
    rng = np.random.default_rng(13)
    first = Periodic(4_000_195, 14_000, 700_000)
    second = Periodic(4_000_195, 11_000, 700_000 + apart * 4_000_195)
    arrival = poisson(rng, 10_000, 20)
    fitted = fit(arrival, measured(rng, arrival, [first, second], 120))
    assert_found(fitted, [first, second], int(arrival[0]), 120)
    assert all(source.p_value <= FALSE_ALARMS for source in fitted.sources)


def prediction(**figures: object) -> Prediction:
    usual = {
        "latency_ns": np.zeros(1, np.int64),
        "measured": {"delayed": 100},
        "predicted": {"delayed": 110},
        "tolerance_ns": 400,
        "delay_ns_p50": 5_000,
        "agreement": 0.9,
    }
    return Prediction(**{**usual, **figures})


@pytest.mark.parametrize(
    ("figures", "said"),
    [
        ({}, None),
        ({"agreement": 0.59}, "only 59.0% of the delayed packets"),
        ({"agreement": None}, "only 0.0% of the delayed packets"),
        ({"predicted": {"delayed": 181}}, "would delay 181 packets, and 100 were"),
        ({"predicted": {"delayed": 180}}, None),
        ({"tolerance_ns": 2_500}, "any prediction would meet them"),
    ],
)
def test_what_packets_contradict_is_refused(figures: dict[str, object], said: str | None) -> None:
    doubt = mismatch(prediction(**figures))
    assert doubt is None if said is None else said in str(doubt)


def series(data: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Packets of a pair of captures, in the order in which they came."""
    (pre,), (post,) = (data / name).glob("*-pre-*"), (data / name).glob("*-post-*")
    fitted = tailscope.analyze(pre, post, trim="1s").series
    assert fitted is not None
    order = np.argsort(fitted.pre_ns, kind="stable")
    return fitted.pre_ns.astype(np.int64)[order], fitted.latency_ns.astype(np.int64)[order]


@pytest.fixture(scope="module")
def packets(data: Path) -> tuple[np.ndarray, np.ndarray]:
    return series(data, "noms2020/dpdk-l2fwd/hw")


@pytest.fixture(scope="module")
def found(packets: tuple[np.ndarray, np.ndarray]) -> Fit:
    """What is found in them."""
    return fit(*packets)


def test_the_clocks_of_a_guest_and_its_host_are_found(data: Path) -> None:
    """Table V, VM: 166.7 + 83.3 Hz of the host and 250 Hz of the guest, 0.78 ms apart.

    The longest of each reach 16.3, 19.2 and 16.5 µs in this capture; the paper says 17.5, 19.2 and
    17.5 µs, and no packet of the first and the third took that long.
    """
    arrival, latency = series(data, "noms2020-vm/dpdk-l2fwd")
    fitted = fit(arrival, latency)
    slow, host, guest = sorted(fitted.sources, key=lambda source: source.periodic.rate_hz)
    assert slow.periodic.rate_hz == pytest.approx(83.3, abs=0.1)
    assert host.periodic.rate_hz == pytest.approx(166.7, abs=0.1)
    assert guest.periodic.rate_hz == pytest.approx(250, abs=0.1)
    assert slow.latency_ns == pytest.approx(19_200, abs=200)
    assert host.latency_ns == pytest.approx(16_325, abs=300)
    assert guest.latency_ns == pytest.approx(16_500, abs=300)
    apart_ns = host.periodic.phase_ns - guest.periodic.phase_ns
    assert apart_ns % 4_000_196 == pytest.approx(780_000, abs=5_000)
    assert max(source.p_value for source in fitted.sources) <= FALSE_ALARMS
    assert predict(fitted, arrival, latency).agreement > 0.95


def test_the_interrupts_of_noms2020_are_found(
    found: Fit, packets: tuple[np.ndarray, np.ndarray]
) -> None:
    """Section V-C and Table V: loc at 166.7 Hz, loc followed by iwi at 83.3 Hz.

    The longer ones reach 13.6 µs, as there. The shorter ones reach 10.61 µs in this capture; the
    paper's 10.9 µs is 13.6 µs less the difference of the two execution times (8.2 - 5.5 µs).
    """
    short, long = sorted(found.sources, key=lambda source: source.latency_ns)
    for source in (short, long):
        assert source.periodic.period_ns / 1e6 == pytest.approx(4.0002, abs=1e-4)
        assert source.periodic.every == 3
    assert sorted(short.periodic.teeth + long.periodic.teeth) == [0, 1, 2]
    assert short.periodic.rate_hz == pytest.approx(166.7, abs=0.1)
    assert long.periodic.rate_hz == pytest.approx(83.3, abs=0.1)
    assert short.latency_ns == pytest.approx(10_612, abs=150)
    assert long.latency_ns == pytest.approx(13_600, abs=150)
    # Both begin with the tick, which was not assumed.
    assert short.periodic.phase_ns == pytest.approx(long.periodic.phase_ns, abs=300)
    seconds = (packets[0][-1] - packets[0][0]) / 1e9
    assert (short.packets + long.packets) / seconds == pytest.approx(18, abs=2)
    assert found.explained is not None
    assert found.explained > 0.97


def test_prediction_is_as_measured_in_noms2020(
    found: Fit, packets: tuple[np.ndarray, np.ndarray]
) -> None:
    prediction = predict(found, *packets)
    assert prediction.agreement is not None
    assert prediction.agreement > 0.95
    assert prediction.tolerance_ns < 500
    for name in ("latency_ns_p999", "latency_ns_p9999", "latency_ns_max"):
        assert prediction.predicted[name] == pytest.approx(prediction.measured[name], abs=300)
    assert prediction.predicted["delayed"] == pytest.approx(found.delayed, rel=0.05)


@pytest.mark.parametrize(
    ("name", "counted_hz", "rates_hz"),
    [
        ("noms2020/snort-filter/hw", [], [944.98, 249.99]),
        pytest.param("noms2020/motivation", [], [940.4, 249.99], marks=pytest.mark.long),
        ("noms2020/burst-32batch/vm", [1191.8 - 251], [940.1]),
        pytest.param("noms2020/burst-4batch/vm", [1194 - 251], [941.3], marks=pytest.mark.long),
    ],
)
def test_timers_beside_snort_are_found(
    data: Path, name: str, counted_hz: list[float], rates_hz: list[float]
) -> None:
    """A timer that the program sets anew each time strays; the kernel ticks at 250 Hz.

    Bursts at 312.74 Hz show it and its images alike; what the local timer of the guest's CPU
    counted beside the ticks of the others tells which it is.
    """
    fitted = fit(*series(data, name), counted_hz)
    found = sorted(fitted.sources, key=lambda source: -source.periodic.rate_hz)
    assert [source.periodic.rate_hz for source in found] == pytest.approx(rates_hz, abs=0.1)
    assert all(source.window_ns is not None for source in found)
    assert found[0].rate_ci_hz is None
    assert found[0].periodic.wander.largest_ns > 100_000


def straying(rng: np.random.Generator, seconds: int) -> np.ndarray:
    """Times at which a timer of 1.06 ms goes off that a program sets anew each time."""
    apart_ns = rng.normal(1_060_000, 1_000, int(seconds * 1e9 / 1_000_000))
    return np.cumsum(apart_ns).astype(np.int64)


def test_a_timer_that_strays_is_found_by_its_mean_rate() -> None:
    rng = np.random.default_rng(5)
    arrival = poisson(rng, 10_000, 10)
    ticks = straying(rng, 10)
    ticks = ticks[ticks < arrival[-1]]
    service = 20_000 + rng.integers(0, 500, len(arrival))
    service[np.searchsorted(arrival, ticks)] += 4_000
    waited = simulate(arrival, [], base_ns=0, service_ns=service)
    (source,) = fit(arrival, waited + service).sources
    mean_hz = (len(ticks) - 1) / (ticks[-1] - ticks[0]) * 1e9
    assert source.periodic.rate_hz == pytest.approx(mean_hz, abs=0.1)
    assert source.rate_ci_hz is None
    assert source.periodic.duration_ns == pytest.approx(4_000, abs=100)
    assert source.explained > 0.85


def test_bursts_show_a_timer_and_its_images_alike_unless_it_is_counted() -> None:
    rng = np.random.default_rng(6)
    begin = np.arange(10 * 313) * 3_197_500
    arrival = (begin[:, None] + 100 * np.arange(32)).ravel()
    ticks = straying(rng, 11)
    # Batches of 4, 14 µs a packet, and 5 µs for each tick that falls into one.
    done = begin[:, None] + 3_000 + 56_000 * np.arange(1, 9)
    late = 5_000 * np.diff(np.searchsorted(ticks, np.hstack([begin[:, None], done])), axis=1)
    done = done + np.cumsum(late, axis=1) + np.cumsum(rng.integers(0, 300, done.shape), axis=1)
    latency = np.repeat(done, 4, axis=1).ravel() - arrival
    found = fit(arrival, latency)
    assert not found.sources
    assert "943.39 Hz" in str(found.reason)
    counted = fit(arrival, latency, [943.0])
    assert counted.in_batches
    assert [source.periodic.rate_hz for source in counted.sources] == pytest.approx(
        [943.4], abs=0.3
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("noms2020/burst-32batch/vm", "940.11 Hz"),
        ("hipnet21/snort-filter-tlbshootdown/vm", "1 packet in 32, at 312.74 Hz"),
        pytest.param("noms2020/burst-4batch/vm", "941.32 Hz", marks=pytest.mark.long),
    ],
)
def test_no_interrupts_are_made_up(data: Path, name: str, said: str) -> None:
    """Delays that recur with the packets, and rates that evenly sent bursts do not tell apart."""
    fitted = fit(*series(data, name))
    assert not fitted.sources
    assert said in str(fitted.reason)


def test_given_sources_are_taken_as_given() -> None:
    rng = np.random.default_rng(11)
    arrival = poisson(rng, 10_000, 5)
    latency = measured(rng, arrival, PAPER, 100)
    fitted = given(arrival, latency, PAPER)
    assert [source.periodic for source in fitted.sources] == PAPER
    assert [source.packets for source in fitted.sources] == [None, None]
    assert [source.latency_ns for source in fitted.sources] == [
        fitted.base_latency_ns + source.duration_ns for source in PAPER
    ]
    prediction = predict(fitted, arrival, latency)
    assert prediction.agreement is not None
    assert prediction.agreement > 0.9
    none = given(arrival, latency, [])
    assert none.delayed == 0
    assert predict(none, arrival, latency).agreement is None


def test_quantiles_are_those_of_the_engine(packets: tuple[np.ndarray, np.ndarray]) -> None:
    latency = packets[1]
    counted = figures(latency)
    in_order = np.sort(latency)
    for name, rank in (("p50", 144_996), ("p99", 287_093), ("p999", 289_703), ("p9999", 289_964)):
        assert counted[f"latency_ns_{name}"] == in_order[rank - 1]
    assert counted["latency_ns_max"] == in_order[-1]


def test_without_work_that_is_alike_the_reason_is_told() -> None:
    nothing = np.array([], np.int64)
    assert "alike" in str(strongest(nothing, nothing.astype(float)))
