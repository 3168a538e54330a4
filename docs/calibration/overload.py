"""What the model of overload promised for devices of known capacity.

They are simulated: packets alone and in bursts, work by a law, batches, transfers that vary, and
stalls that take CPU time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from docs.calibration.devices import (
    BURST,
    SECONDS,
    STALL_NS,
    STALLS_HZ,
    WAY_NS,
    WAY_SPREAD_NS,
    Draw,
    Floats,
    Noise,
    Setting,
    bimodal,
    fixed,
    sent,
    served,
    uniform,
)
from docs.calibration.replay import rates
from docs.calibration.section import Section, interval_score, share
from docs.reference.markdown import table
from scipy import stats

from tailscope.engine.analysis import Series, analyze
from tailscope.exceptions import EvidenceError
from tailscope.models.estimate import Estimate
from tailscope.models.overload.noise import Interruption, as_given, noise_of, noise_over_time
from tailscope.models.overload.prediction import cpu_time, highest_rate, predict
from tailscope.models.overload.queued import queued_time, queues_of

if TYPE_CHECKING:
    from pathlib import Path

SLICES = 20
TEXT = """\
Promised by [`tailscope model overload`](overload.md): the highest rate that a device carries
lies in the interval of R_max in 95 % of cases, and devices whose packets do not wait for each
other are refused. The last columns are why packets that queued are asked for: two medians alone
say too much. *Score* is the interval score of log10, of the devices that were not refused; less is
better. Then: up to which rate the tail holds. Below: the captures of noms2020's authors; Table II
says at which rates Snort was overloaded. Last, the points that the paper prints, by its medians:
with the interval of their rounding, and with one that goes as far as the rates of the three other
points lie from theirs. Three points promise little: a fourth may lie beyond either end in one of
four cases."""


SETTINGS = (
    Setting("work, 20 µs, batches of 32", fixed(20_000), 20_000),
    Setting("work, 20 µs, noise unknown", fixed(20_000), 20_000, knows_noise=False),
    Setting("work, 5 µs, batches of 4", fixed(5_000), 5_000, batch=4),
    Setting("work, 5 to 25 µs", uniform(5_000, 25_000), 15_000),
    Setting("work, 10 µs; 1 % of packets 100 µs", bimodal(10_000, 100_000, 0.01), 10_900),
    Setting("work, 10 µs; 1 % of packets 5 ms", bimodal(10_000, 5_000_000, 0.01), 59_900),
    Setting("delay line, 20 µs", fixed(20_000), 0, cpus=None),
    Setting("work, 20 µs, on 4 CPUs", fixed(20_000), 5_000, batch=1, cpus=4),
)


def median(latency: Floats) -> Estimate:
    """With its exact interval."""
    values, n = np.sort(latency), len(latency)
    low = int(stats.binom.ppf(0.025, n, 0.5))
    return Estimate(
        estimate=float(values[(n + 1) // 2 - 1]),
        ci_low=float(values[low - 1]),
        ci_high=float(values[n - low]),
        n=n,
        method="order statistics",
    )


class Outcome(NamedTuple):
    """What the model said of one simulated device, and the truth."""

    rate: Estimate | None
    by_medians: Estimate
    true_pps: float


def simulated(setting: Setting, seed: int) -> Outcome:
    """Measure a device as `tailscope search --forwarder` does, and predict."""
    chance = np.random.default_rng(seed)
    lasts_ns = SECONDS * 1e9

    def measured(burst: int, draw: Draw, noise: Noise) -> tuple[Floats, Floats]:
        pre = sent(burst)
        there, back = (chance.normal(WAY_NS, WAY_SPREAD_NS, len(pre)) for _ in range(2))
        arrived = np.maximum.accumulate(pre + there)
        return pre, served(setting, arrived, draw(chance, len(pre)), noise) + back - pre

    quiet = Noise(np.empty(0), np.empty(0))
    alone, bursts = (Noise.drawn(chance, 2 * lasts_ns) for _ in range(2))
    forwarder = median(measured(1, fixed(0.0), quiet)[1])
    function = median(measured(1, setting.draw, alone)[1])
    pre, latency = measured(BURST, setting.draw, bursts)
    queues = queues_of(np.arange(len(pre)), pre, latency, forwarder.ci_high)
    taken = bursts.taken(queues.end_ns.astype(float)) - bursts.taken(queues.begin_ns.astype(float))
    edges = np.linspace(0, lasts_ns, SLICES + 1)
    known = np.diff(alone.taken(edges)), np.diff(bursts.taken(edges))
    noise = noise_over_time(np.concatenate(known) * SLICES / SECONDS)
    has_noise = setting.knows_noise
    queued = queued_time(queues, taken if has_noise else None)
    left = 1 - STALLS_HZ * STALL_NS / (1e9 + STALLS_HZ * STALL_NS)
    true_pps = left * 1e9 / setting.mean_ns if setting.mean_ns else np.inf
    by_medians = highest_rate(cpu_time(forwarder, function), noise if has_noise else None)
    try:
        rate = predict(forwarder, function, noise if has_noise else None, queued).rate_max_pps
    except EvidenceError:
        rate = None
    return Outcome(rate, by_medians, true_pps)


class Tried(NamedTuple):
    """What the model said of devices of one setting."""

    setting: Setting
    outcomes: list[Outcome]

    @property
    def said(self) -> list[tuple[Estimate, float]]:
        """Rates, where it did not refuse, beside the true ones."""
        return [(each.rate, each.true_pps) for each in self.outcomes if each.rate is not None]

    @property
    def by_medians(self) -> list[tuple[Estimate, float]]:
        """Rates by two medians alone, beside the true ones."""
        return [(each.by_medians, each.true_pps) for each in self.outcomes]

    def row(self) -> list[str]:
        """A row of the table."""
        said, tried, none = self.said, len(self.outcomes), "-"
        errors = [abs(rate.estimate / true_pps - 1) for rate, true_pps in said]
        beside = [
            (each.by_medians, each.true_pps) for each in self.outcomes if each.rate is not None
        ]
        widths = [rate.ci_high / rate.ci_low - 1 for rate, _ in said]
        return [
            self.setting.name,
            f"{tried - len(said)} of {tried}",
            share(held(said), len(said)),
            f"{np.median(errors):.1%}" if said else none,
            f"{np.median(widths):.1%}" if said else none,
            _score(said),
            share(held(self.by_medians), tried),
            _score(beside),
        ]


def _score(said: list[tuple[Estimate, float]]) -> str:
    """The mean interval score, where there are intervals."""
    scores = [interval_score(rate.ci_low, rate.ci_high, true_pps) for rate, true_pps in said]
    return f"{np.mean(scores):.2f}" if scores else "-"


def held(said: list[tuple[Estimate, float]]) -> int:
    """How many intervals held the truth."""
    return sum(rate.ci_low <= true_pps <= rate.ci_high for rate, true_pps in said)


TABLE_V = {
    "hw": ((166.7, 10_900), (83.3, 13_600)),
    "vm": ((166.7, 17_500), (83.3, 19_200), (250, 17_500)),
}


class Point(NamedTuple):
    """A function of Tables II and IV: printed medians, and the rates between which it overloads."""

    name: str
    mode: str
    forwarder_ns: float
    function_ns: float
    carried_pps: float
    overloaded_pps: float

    def rate(self) -> Estimate:
        """Return R_max by the medians, and its interval by how they were rounded."""
        return highest_rate(
            cpu_time(as_printed(self.forwarder_ns), as_printed(self.function_ns)),
            _noise(self.mode),
        )


POINTS = (
    Point("Snort-fwd HW", "hw", 3_100, 14_500, 80_000, 90_000),
    Point("Snort-fwd VM", "vm", 3_300, 15_900, 80_000, 90_000),
    Point("Snort-filter HW", "hw", 3_100, 17_400, 60_000, 70_000),
    Point("Snort-filter VM", "vm", 3_300, 18_400, 60_000, 70_000),
)


def as_printed(ns: float) -> Estimate:
    """Return a median that was printed to 0.1 µs."""
    return Estimate(estimate=ns, ci_low=ns - 50, ci_high=ns + 50, n=290_000, method="printed")


def printed_rows() -> list[list[str]]:
    """The paper's points: by the medians, and with all that the other points were off by."""
    rates = [point.rate() for point in POINTS]
    rows = []
    for point, rate in zip(POINTS, rates, strict=True):
        others = [
            (each.carried_pps / other.estimate, each.overloaded_pps / other.estimate)
            for each, other in zip(POINTS, rates, strict=True)
            if each is not point
        ]
        low = rate.estimate * min(low for low, _ in others)
        high = rate.estimate * max(high for _, high in others)
        rows.append(
            [
                point.name,
                f"{rate.estimate:,.0f} ({rate.ci_low:,.0f} to {rate.ci_high:,.0f})",
                _met(point, rate.ci_low, rate.ci_high),
                f"{low:,.0f} to {high:,.0f}",
                _met(point, low, high),
                f"{point.carried_pps:,.0f} to {point.overloaded_pps:,.0f}",
            ]
        )
    return rows


def _met(point: Point, low: float, high: float) -> str:
    """Say whether an interval holds the rates between which the function overloads."""
    if low <= point.carried_pps and high >= point.overloaded_pps:
        return "holds them"
    return "meets them" if high > point.carried_pps and low < point.overloaded_pps else "no"


def _noise(mode: str) -> Estimate:
    rows = (Interruption("", as_given(rate), as_given(ns)) for rate, ns in TABLE_V[mode])
    return noise_of(rows)


def _captured(folder: Path) -> Series:
    (pre,), (post,) = folder.glob("*lat*-pre-*"), folder.glob("*lat*-post-*")
    found = analyze(pre, post, trim="1s").series
    assert found is not None
    return found


def captured_rows(data: Path) -> list[list[str]]:
    """The authors' captures: with which rates Snort was overloaded is printed in Table II."""
    forwarder, function = (
        median(_captured(data / "noms2020" / each / "hw").latency_ns.astype(float))
        for each in ("dpdk-l2fwd", "snort-filter")
    )
    rate = predict(forwarder, function, _noise("hw")).rate_max_pps
    rows = [["Snort-filter HW, medians", f"{rate.estimate:,.0f}, one at a time"]]
    for batch in (4, 32):
        bursts = _captured(data / "noms2020" / f"burst-{batch}batch" / "vm")
        queued = queued_time(queues_of(bursts.seq, bursts.pre_ns, bursts.latency_ns, 3_300))
        assert queued is not None
        printed = (as_printed(3_300), as_printed(18_400))
        found = predict(*printed, _noise("vm"), queued, is_queued_net=False)
        rate = found.rate_max_pps
        said = f"{rate.estimate:,.0f} ({rate.ci_low:,.0f} to {rate.ci_high:,.0f})"
        rows.append([f"Snort-filter VM, bursts in batches of {batch}", said])
    return [[*row, "60,000 to 70,000"] for row in rows]


def section(runs: int, data: Path) -> Section:
    """What came of the promise, by device."""
    tried = [
        Tried(setting, [simulated(setting, seed) for seed in range(runs)]) for setting in SETTINGS
    ]
    said = [each for one in tried for each in one.said]
    total = sum(len(one.outcomes) for one in tried)
    refused = share(total - len(said), total)
    sentence = (
        f"Of {total} simulated devices, the model refused {refused}; of its intervals of 95% for"
        f" the others, {share(held(said), len(said))} held the true rate."
    )
    tables = (
        table(HEADER, [each.row() for each in tried]),
        rates(max(1, runs // 25)),
        table(CAPTURES, captured_rows(data)),
        table(PRINTED, printed_rows()),
    )
    return Section("Overload", TEXT, tables, {"overload": sentence})


HEADER = (
    *("device", "refused", "interval held the truth", "error", "width", "score"),
    *("by medians alone", "their score"),
)
CAPTURES = ("captures", "R_max, packets/s", "overload, Table II")
PRINTED = (
    *("printed point", "R_max, packets/s, by rounding", "of the rates of overload, it"),
    *("by the other points", "of the rates of overload, it", "overload, Table II"),
)
