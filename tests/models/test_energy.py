"""Power of phases and energy of packets, from readings whose truth is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from errors import raises, refuses_argument
from wording import assert_wording

from tailscope.models.energy import (
    PHASES,
    Power,
    Span,
    TooLittleError,
    account,
    difference,
    mean_power,
    relative_change,
)

if TYPE_CHECKING:
    from tailscope.models.estimate import Estimate

S = 1_000_000_000
RANGE_UJ = 262_143_328_850

# Table III of noms2020: a metered outlet that shows whole watts.
TABLE_3 = {"enabled": (31, 42, 45), "disabled": (46, 47, 47)}


def metered(watts: tuple[int, ...], phase_s: int = 10) -> Power:
    """A meter that shows whole watts, read five times a second, phase after phase."""
    times = np.arange(0, len(watts) * phase_s * S, S // 5)
    return Power.from_readings(times, np.repeat(watts, phase_s * 5), resolution_w=1)


def phase(at: int, phase_s: int = 10) -> Span:
    """A phase without its ends, where the meter turns."""
    return Span(at * phase_s * S + S // 5, (at + 1) * phase_s * S - 2 * S // 5)


def table_3() -> dict[str, dict[str, Estimate]]:
    return {
        saving: {name: mean_power(metered(watts), phase(at)) for at, name in enumerate(PHASES)}
        for saving, watts in TABLE_3.items()
    }


def test_table_3_is_reproduced() -> None:
    table = table_3()
    enabled, disabled = table["enabled"], table["disabled"]
    assert [enabled[name].estimate for name in PHASES] == pytest.approx([31, 42, 45])
    assert difference(enabled["processing"], enabled["idle"]).estimate == pytest.approx(14)
    assert difference(enabled["processing"], enabled["running"]).estimate == pytest.approx(3)
    shares = [relative_change(disabled[name], enabled[name]) for name in PHASES]
    assert [round(100 * share.estimate) for share in shares] == [48, 12, 4]
    more = [difference(disabled[name], enabled["processing"]).estimate for name in PHASES]
    assert more == pytest.approx([1, 2, 2])


def test_the_last_digit_of_a_meter_is_part_of_the_interval() -> None:
    idle = table_3()["enabled"]["idle"]
    assert (idle.ci_low, idle.ci_high) == pytest.approx((30.5, 31.5))
    assert idle.n == 1
    more = difference(table_3()["disabled"]["idle"], idle)
    assert (more.ci_low, more.ci_high) == pytest.approx((15 - 0.5**0.5, 15 + 0.5**0.5))


def test_energy_of_packets() -> None:
    phases = {name: phase(at) for at, name in enumerate(PHASES)}
    packets = 94_000
    energy = account(metered(TABLE_3["enabled"]), phases, packets)
    assert energy.reasons == {}
    seconds = phases["processing"].lasts_s
    figures = energy.record()
    assert figures["energy_j_per_packet"] == pytest.approx(45 * seconds / packets)
    assert figures["energy_j_per_packet_ci_low"] == pytest.approx(44.5 * seconds / packets)
    assert figures["energy_j_per_packet_above_idle"] == pytest.approx(14 * seconds / packets)
    for suffix in ("", "_above_idle"):
        one = figures[f"energy_j_per_packet{suffix}"]
        assert figures[f"energy_j_per_million_packets{suffix}"] == pytest.approx(1e6 * one)


def counted(watts: np.ndarray, start_uj: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Times and counts of a counter of energy, read once a second."""
    steps = np.round(watts * 1e6).astype(np.int64)
    counts = (start_uj + np.concatenate(([0], np.cumsum(steps)))) % RANGE_UJ
    return np.arange(len(counts)) * S, counts


def test_a_counter_that_wraps_counts_on() -> None:
    times, counts = counted(np.full(20, 50.0), RANGE_UJ - 400_000_000)
    assert (np.diff(counts) < 0).sum() == 1
    power = Power.from_counters(times, counts, [RANGE_UJ])
    assert power.watts[:, 0] == pytest.approx(np.full(20, 50.0))
    assert mean_power(power, Span(0, 20 * S)).estimate == pytest.approx(50)


def test_domains_add_up() -> None:
    times, package = counted(np.array([30.0, 34.0, 32.0]))
    _, memory = counted(np.array([4.0, 2.0, 3.0]), RANGE_UJ - 1)
    power = Power.from_counters(times, np.stack([package, memory], axis=1), [RANGE_UJ, RANGE_UJ])
    assert power.watts == pytest.approx(np.array([[30, 4], [34, 2], [32, 3]]))
    assert mean_power(power, Span(0, 3 * S)).estimate == pytest.approx(35)


def test_a_counter_bridges_a_gap_as_long_as_it_cannot_have_wrapped_twice() -> None:
    watts = np.full(60, 50.0)
    times, counts = counted(watts)
    kept = np.r_[0:20, 40:61]
    power = Power.from_counters(times[kept], counts[kept], [RANGE_UJ])
    assert mean_power(power, Span(0, 60 * S)).estimate == pytest.approx(50)
    small_uj = 10_000_000_000
    power = Power.from_counters(times[kept], counts[kept] % small_uj, [small_uj])
    with raises(TooLittleError, "power-gap") as error:
        mean_power(power, Span(0, 60 * S))
    assert all(text in str(error.value) for text in ("39 of 60", "90%"))


def test_a_meter_says_nothing_of_a_gap() -> None:
    times = np.r_[0:20, 40:61] * S
    power = Power.from_readings(times, np.full(len(times), 50.0))
    with raises(TooLittleError, "power-gap") as error:
        mean_power(power, Span(0, 60 * S))
    assert "43 of 60" in str(error.value)
    assert mean_power(power, Span(0, 19 * S)).estimate == pytest.approx(50)


@pytest.mark.parametrize("spread_w", [0.5, 5.0])
def test_intervals_cover_the_truth(spread_w: float) -> None:
    seeds, within = 500, 0
    for seed in range(seeds):
        watts = 50 + spread_w * np.random.default_rng(seed).standard_normal(10)
        power = Power.from_counters(*counted(watts), [RANGE_UJ])
        estimate = mean_power(power, Span(0, 10 * S))
        within += estimate.ci_low <= 50 <= estimate.ci_high
    assert 0.92 <= within / seeds <= 0.98


def test_a_short_stretch_weighs_little() -> None:
    start = np.array([0, 1000, 2000, 3000, 3001]) * (S // 1000)
    end = np.append(start[1:], 4001 * (S // 1000))
    power = Power(start, end, np.array([[50.0], [51.0], [49.0], [400.0], [50.0]]))
    estimate = mean_power(power, Span(0, int(end[-1])))
    assert estimate.estimate == pytest.approx(50.1, abs=0.05)
    assert estimate.ci_high - estimate.ci_low < 4


def test_a_slow_meter_is_not_taken_for_many() -> None:
    shown = np.array([50.0, 52.0, 49.0, 51.0])
    slow = Power.from_readings(np.arange(0, 4 * S, S // 10), np.repeat(shown, 10))
    once = Power.from_counters(*counted(shown), [RANGE_UJ])
    slowly = mean_power(slow, Span(0, 4 * S - S // 10))
    rarely = mean_power(once, Span(0, 4 * S))
    assert slowly.n == rarely.n == 4
    width = rarely.ci_high - rarely.ci_low
    assert slowly.ci_high - slowly.ci_low == pytest.approx(width, rel=0.1)


@pytest.mark.parametrize(
    ("watts", "code", "got"),
    [
        ([50.0], "power-readings", "got 0 readings in 10 s"),
        ([50.0, 10.0, 90.0], "power-varies", "got 40 W"),
        ([0.0] * 10, "power-varies", "got 0 W, 0 to 0"),
    ],
)
def test_too_little_is_refused(watts: list[float], code: str, got: str) -> None:
    power = Power.from_readings(np.arange(len(watts)) * 5 * S, watts)
    span = Span(0, 10 * S)
    with raises(TooLittleError, code) as error:
        mean_power(power, span)
    assert str(error.value).startswith(got)
    energy = account(power, dict.fromkeys(PHASES, span), 1000)
    assert set(energy.record().values()) == {None}
    assert set(energy.reasons) == set(energy.estimates)
    assert energy.reasons["energy_j_per_packet"] == str(error.value)


def test_a_phase_that_was_not_there_is_none() -> None:
    power = metered(TABLE_3["enabled"])
    energy = account(power, {"idle": phase(0), "running": phase(1)}, 0)
    assert energy.estimates["power_w_running"] is not None
    assert_wording("energy/no-phase", energy.reasons["power_w_processing"])
    assert energy.record()["energy_j_per_packet"] is None
    silent = account(power, {name: phase(at) for at, name in enumerate(PHASES)}, 0)
    assert_wording("energy/no-packet", silent.reasons["energy_j_per_packet"])
    assert silent.estimates["power_w_processing"] is not None


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -1.0])
def test_watts_that_are_none_are_refused(wrong: float) -> None:
    with refuses_argument("watts[1]"):
        Power.from_readings([0, S], [45.0, wrong])


def test_counters_that_are_none_are_refused() -> None:
    for wrong in (-1, RANGE_UJ + 1):
        with refuses_argument("energy_uj[1]") as refused:
            Power.from_counters([0, S], [5, wrong], [RANGE_UJ])
        assert f"got [{wrong}]" in str(refused.value)
    with refuses_argument("time_ns[2]") as refused:
        Power.from_counters([0, 5, 5], [1, 2, 3], [RANGE_UJ])
    assert "got 5" in str(refused.value) and str(refused.value).endswith(" 5")


def test_nothing_at_all_is_too_little() -> None:
    for power in (Power.from_readings([], []), Power.from_counters([], [], [RANGE_UJ])):
        with raises(TooLittleError, "power-readings") as error:
            mean_power(power, Span(0, S))
        assert str(error.value).startswith("got 0 readings")
