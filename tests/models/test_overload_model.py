"""The overload model: the paper's figures, intervals that hold, and what nothing follows from."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from errors import raises
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tailscope.exceptions import EvidenceError, ModelError
from tailscope.models.estimate import Estimate
from tailscope.models.overload.noise import (
    FEWEST_SLICES,
    Interruption,
    as_given,
    noise_of,
    noise_over_time,
)
from tailscope.models.overload.prediction import (
    AGREE,
    FEWEST_SAMPLES,
    cpu_time,
    highest_rate,
    predict,
)

PACKETS = 290_000
TABLE_V = {
    "HW": ({"loc host": (166.7, 10.9), "iwi host": (83.3, 13.6)}, 2949.9),
    "VM": (
        {"loc host": (166.7, 17.5), "iwi host": (83.3, 19.2), "loc VM": (250, 17.5)},
        8891.6,
    ),
}
TABLE_IV = [
    ("HW", 3.1, 14.5, 11.4, 87.4),
    ("VM", 3.3, 15.9, 12.6, 78.7),
    ("HW", 3.1, 17.4, 14.3, 69.7),
    ("VM", 3.3, 18.4, 15.1, 65.6),
]
ONE_DIGIT = 0.1


def median(ns: float, low: float | None = None, high: float | None = None) -> Estimate:
    return Estimate(
        estimate=ns,
        ci_low=ns if low is None else low,
        ci_high=ns if high is None else high,
        n=PACKETS,
        method="given",
    )


def noise_of_table(mode: str) -> Estimate:
    rows = TABLE_V[mode][0].items()
    return noise_of(
        Interruption(cause, as_given(rate), as_given(1000 * us)) for cause, (rate, us) in rows
    )


@pytest.mark.parametrize("mode", TABLE_V)
def test_table_5_sums_up(mode: str) -> None:
    assert round(noise_of_table(mode).estimate / 1000, 1) == TABLE_V[mode][1]


@pytest.mark.parametrize(("mode", "transfer", "e2e", "cpu", "rate"), TABLE_IV)
def test_table_4_follows(mode: str, transfer: float, e2e: float, cpu: float, rate: float) -> None:
    """The printed digits agree: 87.46 is printed as 87.4, cut off, and 78.66 as 78.7, rounded."""
    found = predict(median(1000 * transfer), median(1000 * e2e), noise_of_table(mode))
    assert round(found.cpu_ns.estimate / 1000, 1) == cpu
    exact = found.rate_max_pps.estimate / 1000
    assert rate in (round(exact, 1), math.floor(10 * exact) / 10)
    assert abs(exact - rate) < ONE_DIGIT


def test_what_was_rounded_away_is_within_the_interval() -> None:
    """Medians printed as 3.1 and 17.4 us were 3.137 and 17.387 us in the authors' captures."""
    printed = predict(
        median(3100, 3050, 3150), median(17_400, 17_350, 17_450), noise_of_table("HW")
    ).rate_max_pps
    exact = predict(median(3137), median(17_387), noise_of_table("HW")).rate_max_pps
    assert exact.estimate == pytest.approx(69_968, abs=1)
    assert printed.ci_low < exact.estimate < printed.ci_high


positive = st.floats(1, 1e6)


@given(
    transfer=positive,
    cpu=positive,
    noise=st.floats(0, 0.9e9),
    reach=st.tuples(*[st.floats(0, 0.49)] * 3),
)
def test_ends_are_those_of_all_inputs(
    transfer: float, cpu: float, noise: float, reach: tuple[float, float, float]
) -> None:
    """Whatever lies within the inputs' intervals gives a rate within the result's."""
    widths = (reach[0] * min(transfer, cpu), reach[1] * cpu, reach[2] * noise)
    e2e = transfer + cpu
    forwarder = median(transfer, transfer - widths[0], transfer + widths[0])
    function = median(e2e, e2e - widths[1], e2e + widths[1])
    taken = Estimate(
        estimate=noise, ci_low=noise - widths[2], ci_high=noise + widths[2], n=20, method="given"
    )
    found = highest_rate(cpu_time(forwarder, function), taken)
    for ends in np.ndindex(3, 3, 3):
        f, e, d = (
            (each.ci_low, each.estimate, each.ci_high)[end]
            for each, end in zip((forwarder, function, taken), ends, strict=True)
        )
        if e - f > 0:
            rate = max(0.0, 1e9 - d) / (e - f)
            assert found.ci_low * (1 - 1e-9) <= rate <= found.ci_high * (1 + 1e-9)


def sampled_median(sorted_ns: np.ndarray) -> Estimate:
    """Return the median with its exact interval by order statistics, as a run has it."""
    n = len(sorted_ns)
    low = int(stats.binom.ppf(0.025, n, 0.5))
    return Estimate(
        estimate=float(sorted_ns[(n + 1) // 2 - 1]),
        ci_low=float(sorted_ns[low - 1]),
        ci_high=float(sorted_ns[n - low]),
        n=n,
        method="order statistics",
    )


def test_intervals_hold() -> None:
    """The true rate is within at least 95 % of 500 intervals, and they are not absurdly wide."""
    chance, runs, held, widths = np.random.default_rng(6), 500, 0, []
    true = (1e9 - 5e6) / (14_000 - 3_000)
    for _ in range(runs):
        forwarder = 3_000 * np.exp(chance.normal(0, 0.2, 400))
        function = 14_000 * np.exp(chance.normal(0, 0.3, 400))
        slices = chance.poisson(250, 20) * 20_000.0
        cpu = cpu_time(sampled_median(np.sort(forwarder)), sampled_median(np.sort(function)))
        found = highest_rate(cpu, noise_over_time(slices))
        held += found.ci_low <= true <= found.ci_high
        widths.append((found.ci_high - found.ci_low) / found.estimate)
    assert held >= 0.95 * runs
    assert float(np.median(widths)) < 0.2


def test_noise_over_time_holds() -> None:
    chance, runs = np.random.default_rng(7), 1000
    held = 0
    for _ in range(runs):
        found = noise_over_time(chance.poisson(100, 20) * 15_000.0)
        held += found.ci_low <= 100 * 15_000 <= found.ci_high
    assert abs(held / runs - 0.95) < 3 * math.sqrt(0.05 * 0.95 / runs)


def test_without_noise_it_is_an_upper_bound() -> None:
    free, busy = (
        predict(median(3100), median(14_500), noise) for noise in (None, noise_of_table("HW"))
    )
    assert free.noise_ns_per_s is None and busy.noise_ns_per_s is not None
    assert free.rate_max_pps.estimate == pytest.approx(1e9 / 11_400)
    assert free.rate_max_pps.estimate > busy.rate_max_pps.estimate


def test_constant_figures_have_intervals_of_no_width() -> None:
    found = highest_rate(cpu_time(median(1000), median(3000)), noise_over_time([5.0] * 20))
    assert found.ci_low == found.estimate == found.ci_high == (1e9 - 5) / 2000


def test_noise_that_may_take_all_leaves_a_rate_of_0_at_least() -> None:
    noise = Estimate(estimate=9e8, ci_low=7e8, ci_high=1.2e9, n=20, method="given")
    found = highest_rate(median(1000), noise)
    assert (found.ci_low, found.estimate) == (0, pytest.approx(1e5))


@pytest.mark.parametrize(
    ("forwarder", "function", "code", "got"),
    [
        (median(3000), median(3000), "function-not-slower", ""),
        (median(3000), median(2000), "function-not-slower", ""),
        (median(3000, 2900, 3100), median(3050, 3000, 3200), "function-not-slower", ""),
        (median(math.nan), median(3000), "interval", "forwarder: .* got nan"),
        (median(3000), median(math.nan), "interval", "function: .* got nan"),
        (median(3000), median(math.inf), "interval", "function: .* got inf"),
        (median(-1), median(3000), "interval", "forwarder: .* got -1"),
        (median(0), median(3000), "median-zero", "forwarder: .* got 0"),
        (median(3000, 3100, 3200), median(5000), "interval", "forwarder: .* got 3000"),
        (replace(median(3000), n=1), median(5000), "samples-few", "forwarder: got 1 .* 6"),
        (
            median(3000),
            replace(median(5000), n=FEWEST_SAMPLES - 1),
            "samples-few",
            "function: got 5 ",
        ),
    ],
)
def test_nothing_follows_from_such_medians(
    forwarder: Estimate, function: Estimate, code: str, got: str
) -> None:
    with raises(ModelError, code) as error:
        predict(forwarder, function)
    assert re.match(got, str(error.value))


def test_without_queues_there_is_no_interval() -> None:
    found = predict(median(3000), median(13_000)).rate_max_pps
    assert (found.ci_low, found.estimate, found.ci_high) == (0, 1e5, math.inf)


def test_noise_that_is_in_the_time_of_queues_is_not_counted_again() -> None:
    noise = median(1e8)
    both = [
        predict(median(3000), median(13_000), noise, median(11_111), is_queued_net=is_net)
        for is_net in (True, False)
    ]
    assert [found.rate_max_pps.estimate for found in both] == pytest.approx([81_000.8, 90_000.9])


@settings(deadline=None)
@given(cpu=st.floats(100, 1e6), share=st.floats(0.81, 1.24))
def test_two_estimates_that_agree_make_one_interval(cpu: float, share: float) -> None:
    found = predict(median(3000), median(3000 + cpu), None, median(share * cpu)).rate_max_pps
    rates = sorted((1e9 / cpu, 1e9 / (share * cpu)))
    assert (found.ci_low, found.ci_high) == pytest.approx(rates)
    assert found.estimate == pytest.approx(1e9 / (share * cpu))


def test_the_forwarders_own_work_may_be_work() -> None:
    """The whole latency of 1.2 us may be time on the CPU: nothing tells the parts apart."""
    found = predict(median(300), median(1_200), None, median(1_200)).rate_max_pps
    assert (found.ci_low, found.ci_high) == pytest.approx((1e9 / 1_200, 1e9 / 900))


@pytest.mark.parametrize(
    ("queued", "code"),
    [
        (10_000 / (1 + AGREE) - 1, "queues-faster"),
        (100, "queues-faster"),
        (13_001, "queues-slower"),
    ],
)
def test_two_estimates_that_disagree_are_refused(queued: float, code: str) -> None:
    with raises(EvidenceError, code) as error:
        predict(median(3000), median(13_000), None, median(queued))
    assert all(f"{ns:,.0f} ns" in str(error.value) for ns in (10_000, queued))
    assert error.value.hint is not None and "tailscope search" in error.value.hint


@pytest.mark.parametrize("noise", [1e9, 2e9, math.nan, -1.0])
def test_nothing_follows_from_such_noise(noise: float) -> None:
    with raises(ModelError, "noise-too-high" if noise >= 1e9 else "interval") as error:
        predict(median(3000), median(5000), as_given(noise))
    assert f" got {noise:g}" in str(error.value)


@pytest.mark.parametrize("row", [(math.nan, 1.0), (1.0, -1.0), (math.inf, 1.0)])
def test_nothing_follows_from_such_interrupts(row: tuple[float, float]) -> None:
    with raises(ModelError, "interrupt-range") as error:
        noise_of([Interruption("timer", as_given(row[0]), as_given(row[1]))])
    assert "timer: " in str(error.value)


def test_no_interrupts_are_no_noise() -> None:
    assert noise_of([]).estimate == 0


@pytest.mark.parametrize("slices", [[], [1.0], [1.0, math.nan], [1.0, -1.0], [[1.0, 2.0]]])
def test_nothing_follows_from_such_slices(slices: list[float]) -> None:
    is_series = np.ndim(slices) == 1 and len(slices) >= FEWEST_SLICES
    with raises(ModelError, "noise-range" if is_series else "noise-slices"):
        noise_over_time(slices)


def test_the_forwarders_own_work_counts_as_transfer_until_packets_queue() -> None:
    """A loop of 2 us on the way of 3 us, and 18 us of work: 50,000 packets/s, 55,556 by medians."""
    forwarder, function = median(3_000), median(21_000)
    alone = predict(forwarder, function).rate_alone_pps
    assert round(alone.estimate) == 55_556
    assert alone.ci_low <= 50_000 <= alone.ci_high
    means = predict(forwarder, function, means_ns=(3_100.0, 22_000.0)).rate_alone_pps
    assert (means.ci_low, means.ci_high) == (1e9 / 22_000, alone.ci_high)
    rate = predict(forwarder, function, queued=median(20_000)).rate_max_pps
    assert rate.estimate == 50_000
    assert rate.ci_low <= 50_000 <= rate.ci_high
