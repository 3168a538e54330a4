"""Up to which rate the tail of a device holds: what replays promised, and what came.

The devices are simulated: what they do at low load is replayed, and what they do at the highest
rate is known.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from docs.calibration.devices import (
    BURST,
    RATE_PPS,
    WAY_NS,
    WAY_SPREAD_NS,
    Draw,
    Floats,
    Noise,
    bimodal,
    fixed,
    sent,
    uniform,
)
from docs.calibration.section import interval_score, share
from docs.reference.markdown import table
from scipy.optimize import brentq

from tailscope.extra.tail.models.replay import (
    Limit,
    Reading,
    Replayed,
    Seen,
    Stalls,
    highest_rate_within,
    work_of,
)
from tailscope.models.overload.queued import queued_time, queues_of

LIMIT = Limit(1e6, 1e-3)
SECONDS, TRUE_SECONDS, HALVINGS = 10.0, 30.0, 9
TEXT = """\
The rate up to which the tail holds. One interval of 95 % for p99.9 of at most 1 ms, from 10 s at
low load and 10 s of bursts; the truth is that of 30 s at each rate. *Score* is the interval score
of log10, of an interval from 0 as of one from 1. *In a reading*: in one of the two intervals that
belong to packets and to time. Beside it: the interval of R_max, and M/D/1, packets at random and
work as on average."""
HEADER = (
    *("device, and what holds it up", "it holds up to", "R_max", "inside", "in a reading"),
    *("width", "score", "score of R_max", "of M/D/1"),
)


class Device(NamedTuple):
    """A device: its law of work, and what holds it up."""

    name: str
    draw: Draw
    mean_ns: float
    batch: int = 32
    stalls_hz: float = 600.0
    stall_ns: float = 80_000.0
    """Stalls come at random, and last by an exponential law."""
    is_at_random: bool = False
    """True if packets are sent at random, not evenly."""


DEVICES = (
    Device("20 µs, batches of 32; 600 stalls/s of 80 µs", fixed(20_000), 20_000),
    Device("the same, packets sent at random", fixed(20_000), 20_000, is_at_random=True),
    Device("5 µs, batches of 4; 600 stalls/s of 80 µs", fixed(5_000), 5_000, 4),
    Device("5 to 25 µs, one by one; 600 stalls/s of 80 µs", uniform(5_000, 25_000), 15_000, 1),
    Device("10 µs, 1 % 100 µs; 600 stalls/s of 80 µs", bimodal(10_000, 100_000, 0.01), 10_900),
    Device("10 µs, 0.02 % 2 ms; 600 stalls/s of 80 µs", bimodal(10_000, 2_000_000, 0.0002), 10_398),
    Device("20 µs, one by one; 1 stall/s of 1 ms", fixed(20_000), 20_000, 1, 1.0, 1_000_000.0),
    Device("20 µs, one by one; 1 stall/s of 10 µs", fixed(20_000), 20_000, 1, 1.0, 10_000.0),
)


def came(chance: np.random.Generator, device: Device, rate_pps: float, lasts_s: float) -> Floats:
    count = int(rate_pps * lasts_s)
    if device.is_at_random:
        return np.cumsum(chance.exponential(1e9 / rate_pps, count))
    return np.arange(count) * 1e9 / rate_pps


def latency(chance: np.random.Generator, device: Device, came_ns: Floats) -> Floats:
    """How long packets take, without their transfer."""
    noise = Noise.drawn(chance, 2 * came_ns[-1], device.stalls_hz, device.stall_ns)
    lasted_ns = noise.end - noise.start
    stalls = Stalls(noise.start - np.cumsum(lasted_ns) + lasted_ns, lasted_ns)
    work_ns = device.draw(chance, len(came_ns))
    return Reading(work_ns, stalls, device.batch).latency_ns(came_ns)


def true_rate(device: Device) -> float:
    """The largest rate at which p99.9 of a long run is within the limit."""
    low, high = 0.0, 1.1e9 / device.mean_ns
    for step in range(HALVINGS):
        chance = np.random.default_rng(step)
        rate_pps = (low + high) / 2
        latency_ns = latency(chance, device, came(chance, device, rate_pps, TRUE_SECONDS))
        holds = np.mean(latency_ns + 2 * WAY_NS > LIMIT.latency_ns) <= LIMIT.allowed
        low, high = (rate_pps, high) if holds else (low, rate_pps)
    return low


class Answer(NamedTuple):
    """What was said of one measurement."""

    replayed: Replayed
    by_queues: tuple[float, float]
    """Interval of R_max."""
    md1: tuple[float, float]

    @property
    def ends_pps(self) -> tuple[float, float]:
        """The interval, from one packet per second on: its score takes the logarithm."""
        rate = self.replayed.rate_pps
        return max(rate.ci_low, 1.0), rate.ci_high

    @property
    def regions_pps(self) -> tuple[tuple[float, float], ...]:
        """Its parts, by what work that took long belongs to."""
        return self.replayed.by_packet_pps, self.replayed.by_time_pps


def answer(device: Device, seed: int) -> Answer:
    """Measure a device at low load, and replay it."""
    chance = np.random.default_rng(seed)

    def measured(pre_ns: Floats) -> tuple[np.ndarray, np.ndarray]:
        there, back = (chance.normal(WAY_NS, WAY_SPREAD_NS, len(pre_ns)) for _ in range(2))
        arrived_ns = np.maximum.accumulate(pre_ns + there)
        left_ns = arrived_ns + latency(chance, device, arrived_ns) + back
        return pre_ns.astype(np.int64), (left_ns - pre_ns).astype(np.int64)

    pre_ns, latency_ns = measured(came(chance, device, RATE_PPS, SECONDS))
    bursts_ns, queued_ns = measured(sent(BURST, SECONDS))
    queues = queues_of(np.arange(len(bursts_ns)), bursts_ns, queued_ns, 2 * WAY_NS)
    work = work_of(np.maximum.accumulate(bursts_ns + queued_ns), queues)
    each = queued_time(queues)
    assert each is not None
    seen = Seen.of(work, 2 * WAY_NS, pre_ns, latency_ns, np.ones(len(pre_ns), bool))
    found = highest_rate_within(seen, [LIMIT], 1e9 / each.ci_low, chance)
    ends = each.ci_high, each.ci_low
    return Answer(found, (1e9 / ends[0], 1e9 / ends[1]), (md1(ends[0]), md1(ends[1])))


def md1(work_ns: float) -> float:
    """The rate of M/D/1 whose p99.9 is at the limit, by the law of its longest waits."""
    wait = (LIMIT.latency_ns - 2 * WAY_NS - work_ns) / work_ns

    def beyond(load: float) -> float:
        # The decay of waits of work 1: load (exp(x) - 1) = x.
        decay = brentq(lambda x: load * np.expm1(x) - x, 1e-9, 50)
        constant = np.log1p(-load) - np.log(load * np.exp(decay) - 1)
        return float(constant - decay * wait - np.log(LIMIT.allowed))

    return float(brentq(beyond, 0.05, 1 - 1e-6)) * 1e9 / work_ns


def width(ends: list[tuple[float, float]]) -> str:
    """The usual width of intervals, unless most begin at 0."""
    if sum(low <= 1 for low, _ in ends) * 2 >= len(ends):
        return "from 0"
    return f"{np.median([high / low - 1 for low, high in ends]):.1%}"


def row(device: Device, runs: int) -> list[str]:
    """A row of the table."""
    truth = true_rate(device)
    answers = [answer(device, seed) for seed in range(runs)]
    ends = [each.ends_pps for each in answers]
    regions = [each.regions_pps for each in answers]

    def score(intervals: list[tuple[float, float]]) -> str:
        return f"{np.mean([interval_score(*each, truth) for each in intervals]):.2f}"

    rate_max = np.median([each.by_queues for each in answers])
    return [
        device.name,
        f"{truth:,.0f}",
        f"{rate_max:,.0f}",
        share(sum(low <= truth <= high for low, high in ends), runs),
        share(sum(any(low <= truth <= high for low, high in each) for each in regions), runs),
        width(ends),
        score(ends),
        score([each.by_queues for each in answers]),
        score([each.md1 for each in answers]),
    ]


def rates(runs: int) -> str:
    """The table, after its text."""
    rows = [row(device, runs) for device in DEVICES]
    return f"{TEXT} {runs} measurements of each.\n\n{table(HEADER, rows)}"
