"""How often the search for clocks is right, on simulated captures and on those of the authors."""

from __future__ import annotations

import zlib
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from docs.calibration.section import Section, share
from docs.reference.markdown import table
from scipy.stats import binomtest

import tailscope
from tailscope.extra.patterns.models.aliasing.fit import fit
from tailscope.extra.patterns.models.aliasing.prediction import predict
from tailscope.extra.patterns.models.aliasing.simulation import (
    Periodic,
    RecordedInterruptions,
    simulate,
)
from tailscope.extra.patterns.models.aliasing.wander import Wander

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tailscope.extra.patterns.models.aliasing.sources import Fit, FittedSource, Interval

RATE_PPS, SECONDS, BASE_NS, NOISE_NS = 10_000, 10, 3_000, 120
TEXT = f"""\
Promised by `model aliasing`: a clock that it names is there. How often it is not is measured, and
not derived: the sentence below has the intervals (Clopper and Pearson, 95 %). Rates and durations
lie in their intervals in 95 % of cases. Tried on simulated captures of {SECONDS} s at
{RATE_PPS:,} packets/s, with and without clocks. A source is there if its ticks are ticks that were
simulated; it is found if its rate and duration are theirs, too, and else misread. The Brier score
is the share of captures of which something else was said than there is; less is better. Below:
what the search says of the authors' captures, and which share of the delayed packets its sources
predict."""
NEAR, THERE = 0.05, 0.9
SLOWEST, LOUDEST_HZ, CHANCE = 0.01, 2_000, 1e-3
OWN, NAIVE = NAMES = ("`model aliasing`", "the loudest line of a periodogram")
SCORED = (
    "what says whether there is a clock",
    "Brier score",
    "one named that is not there",
    "missed",
)
Times = np.ndarray
Random = np.random.Generator


class Simulated(NamedTuple):
    """Packets, and the clocks that delayed some of them."""

    arrival_ns: Times
    latency_ns: Times
    truth: list[Periodic]


def arrivals(rng: Random) -> Times:
    """At a constant rate by a crystal of its own, or at random."""
    packets = RATE_PPS * SECONDS
    if rng.random() < 0.5:
        gap_ns = 1e9 / RATE_PPS * (1 + rng.choice([-1, 1]) * rng.uniform(5e-6, 800e-6))
        return np.rint(np.arange(packets) * gap_ns).astype(np.int64)
    at_random_ns = np.cumsum(rng.exponential(1e9 / RATE_PPS, packets)).astype(np.int64)
    # Phases count from the first packet.
    return at_random_ns - at_random_ns[0]


def noise(rng: Random, packets: int) -> Times:
    return np.rint(rng.gamma(4, NOISE_NS / 4, packets)).astype(np.int64)


def by_clocks(rng: Random, truth: list[Periodic], *, jitter_ns: float = 0.0) -> Simulated:
    arrival_ns = arrivals(rng)
    calls = [each.interruptions(0, int(arrival_ns[-1])) for each in truth]
    start_ns = np.concatenate([call.start_ns for call in calls])
    start_ns = start_ns + np.rint(rng.normal(0, jitter_ns, len(start_ns))).astype(np.int64)
    duration_ns = np.concatenate([call.duration_ns for call in calls])
    order = np.argsort(start_ns, kind="stable")
    source = RecordedInterruptions(start_ns[order], duration_ns[order])
    latency_ns = simulate(arrival_ns, [source], base_ns=BASE_NS)
    return Simulated(arrival_ns, latency_ns + noise(rng, len(arrival_ns)), truth)


def tick(rng: Random, **fields: object) -> Periodic:
    """A kernel's tick, by a crystal of its own."""
    hz = rng.choice([100, 250, 300, 1000])
    period_ns = 1e9 / hz * (1 + rng.uniform(-100e-6, 100e-6))
    duration_ns = int(rng.uniform(5_000, 20_000))
    return Periodic(period_ns, duration_ns, rng.uniform(0, period_ns), **fields)  # type: ignore[arg-type]


def third_longer(rng: Random) -> list[Periodic]:
    short = tick(rng, every=3, teeth=(0, 1))
    longer_ns = int(short.duration_ns * rng.uniform(1.2, 1.5))
    return [short, Periodic(short.period_ns, longer_ns, short.phase_ns, 3, (2,))]


def beside(rng: Random, clock: Periodic) -> Periodic:
    """A clock of the same period, at another phase."""
    phase_ns = clock.phase_ns + rng.uniform(0.1, 0.9) * clock.period_ns
    return Periodic(clock.period_ns, int(clock.duration_ns * rng.uniform(0.7, 1.3)), phase_ns)


def one(rng: Random) -> Simulated:
    return by_clocks(rng, [tick(rng)])


def one_jitters(rng: Random) -> Simulated:
    return by_clocks(rng, [tick(rng)], jitter_ns=300)


def one_drifts(rng: Random) -> Simulated:
    late_ns = (float(rng.choice([-1, 1]) * rng.uniform(1_000, 5_000)),)
    return by_clocks(rng, [tick(rng, wander=Wander(0.0, SECONDS * 1e9, late_ns))])


def each_third_longer(rng: Random) -> Simulated:
    return by_clocks(rng, third_longer(rng))


def two_of_one_period(rng: Random) -> Simulated:
    first = tick(rng)
    return by_clocks(rng, [first, beside(rng, first)])


def host_and_guest(rng: Random) -> Simulated:
    truth = third_longer(rng)
    return by_clocks(rng, [*truth, beside(rng, truth[0])])


def among_random_delays(rng: Random) -> Simulated:
    """A third as many packets are delayed at random as by the clock."""
    found = one(rng)
    waits = found.truth[0].share / 3
    hit = rng.random(len(found.arrival_ns)) < waits
    extra_ns = np.where(hit, rng.uniform(0, found.truth[0].duration_ns, len(hit)), 0)
    return found._replace(latency_ns=found.latency_ns + extra_ns.astype(np.int64))


def without(rng: Random, arrival_ns: Times, extra_ns: Times) -> Simulated:
    latency_ns = BASE_NS + noise(rng, len(arrival_ns)) + np.rint(extra_ns).astype(np.int64)
    return Simulated(arrival_ns, latency_ns, [])


def at_random(rng: Random) -> Simulated:
    arrival_ns = arrivals(rng)
    hit = rng.random(len(arrival_ns)) < rng.uniform(0.001, 0.05)
    return without(rng, arrival_ns, hit * rng.uniform(0, 20_000, len(hit)))


def heavy_tail(rng: Random) -> Simulated:
    arrival_ns = arrivals(rng)
    return without(rng, arrival_ns, rng.pareto(1.5, len(arrival_ns)) * 200)


def swarms(rng: Random) -> Simulated:
    """Stalls at random moments that hold up several packets each."""
    arrival_ns = arrivals(rng)
    start_ns = np.sort(rng.integers(0, arrival_ns[-1], 40 * SECONDS))
    stalls = RecordedInterruptions(start_ns, rng.integers(5_000, 800_000, len(start_ns)))
    return without(rng, arrival_ns, simulate(arrival_ns, [stalls], base_ns=0))


def queueing(rng: Random) -> Simulated:
    arrival_ns = arrivals(rng)
    service_ns = rng.exponential(rng.uniform(20_000, 70_000), len(arrival_ns)).astype(np.int64)
    return without(rng, arrival_ns, simulate(arrival_ns, [], base_ns=0, service_ns=service_ns))


def work_with_every_32nd(rng: Random) -> Simulated:
    arrival_ns = arrivals(rng)
    extra_ns = np.zeros(len(arrival_ns))
    every = int(rng.choice([4, 10, 32, 40, 64]))
    extra_ns[::every] = rng.uniform(2_000, 8_000, len(extra_ns[::every]))
    return without(rng, arrival_ns, extra_ns)


def batches(rng: Random) -> Simulated:
    """Bursts through a device that takes a batch, works on it, and hands it over as a whole."""
    size, batch = 32, int(rng.choice([4, 8, 32]))
    begin_ns = np.arange(RATE_PPS * SECONDS // size) * (size * 1e9 / RATE_PPS)
    begin_ns = begin_ns * (1 + rng.uniform(-300e-6, 300e-6))
    arrival_ns = (begin_ns[:, None] + 100 * np.arange(size)).ravel().astype(np.int64)
    work_ns = rng.normal(14_000, 700, (len(begin_ns), size)).cumsum(axis=1)
    handed_ns = work_ns[:, batch - 1 :: batch].repeat(batch, axis=1).ravel()
    came_ns = np.tile(100.0 * np.arange(size), len(begin_ns))
    return without(rng, arrival_ns, handed_ns - came_ns)


def lognormal_service(rng: Random) -> Simulated:
    arrival_ns = arrivals(rng)
    law = rng.uniform(0.3, 1.2)
    service_ns = rng.lognormal(np.log(20_000), law, len(arrival_ns)).astype(np.int64)
    return without(rng, arrival_ns, simulate(arrival_ns, [], base_ns=0, service_ns=service_ns))


def bursts_at_random(rng: Random) -> Simulated:
    """Bursts of 2 to 64 packets at random moments, through a device that takes a while for each."""
    size = int(rng.integers(2, 65))
    begin_ns = np.cumsum(rng.exponential(size * 1e9 / RATE_PPS, RATE_PPS * SECONDS // size))
    arrival_ns = np.sort((begin_ns[:, None] + 100 * np.arange(size)).ravel().astype(np.int64))
    service_ns = rng.normal(rng.uniform(5_000, 40_000), 700, len(arrival_ns)).astype(np.int64)
    return without(rng, arrival_ns, simulate(arrival_ns, [], base_ns=0, service_ns=service_ns))


def rare_stalls(rng: Random) -> Simulated:
    """Some ten stalls of milliseconds, and packets that are slow by themselves."""
    arrival_ns = arrivals(rng)
    start_ns = np.sort(rng.integers(0, arrival_ns[-1], rng.integers(3, 30)))
    stalls = RecordedInterruptions(start_ns, rng.integers(500_000, 20_000_000, len(start_ns)))
    slow_ns = rng.lognormal(np.log(1_000), 1.0, len(arrival_ns))
    return without(rng, arrival_ns, simulate(arrival_ns, [stalls], base_ns=0) + slow_ns)


def slow_neighbour(rng: Random) -> Simulated:
    """A service that is slower for some milliseconds, again and again, at random."""
    arrival_ns = arrivals(rng)
    switches_ns = np.cumsum(rng.exponential(rng.uniform(2e6, 50e6), 20_000))
    is_slow = np.searchsorted(switches_ns, arrival_ns) % 2 == 1
    service_ns = np.where(is_slow, 60_000, 15_000) * rng.lognormal(0, 0.2, len(arrival_ns))
    waited_ns = simulate(arrival_ns, [], base_ns=0, service_ns=service_ns.astype(np.int64))
    return without(rng, arrival_ns, waited_ns + service_ns)


def flat(rng: Random) -> Simulated:
    """A tick that leaves cold caches: the next packet takes longer, by as much each time."""
    clock = tick(rng)
    arrival_ns = arrivals(rng)
    ticks_ns = clock.interruptions(0, int(arrival_ns[-1])).start_ns
    hit = np.searchsorted(arrival_ns, ticks_ns[ticks_ns <= arrival_ns[-1]])
    extra_ns = np.zeros(len(arrival_ns))
    extra_ns[hit] = clock.duration_ns
    return without(rng, arrival_ns, extra_ns)._replace(truth=[clock])


SETTINGS: dict[str, Callable[[Random], Simulated]] = {
    "no clock: delays at random": at_random,
    "no clock: heavy tail": heavy_tail,
    "no clock: stalls at random, several packets each": swarms,
    "no clock: queueing": queueing,
    "no clock: work with every 4th to 64th packet": work_with_every_32nd,
    "no clock: bursts through a device that works in batches": batches,
    "no clock: service by a lognormal law": lognormal_service,
    "no clock: bursts at random": bursts_at_random,
    "no clock: rare stalls": rare_stalls,
    "no clock: a service that slows down at random": slow_neighbour,
    "one clock": one,
    "one clock, the next packet late by a flat amount": flat,
    "one clock, its ticks jitter by 300 ns": one_jitters,
    "one clock that wanders by 1 to 5 µs": one_drifts,
    "one clock, a third as many delays at random": among_random_delays,
    "each third tick longer: 2 sources": each_third_longer,
    "two clocks of one period": two_of_one_period,
    "host (each third tick longer) and guest, one period: 3 sources": host_and_guest,
}
NO_CLOCK = "no clock"
HEADER = (
    *("captures", "number", "all found", "some found", "refused"),
    *("with a source that is not there", "that is misread"),
    *("rate in its interval", "duration in its interval"),
)
CAPTURES = ("capture", "what the search says", "agreement")


def is_there(source: FittedSource, truth: list[Periodic]) -> bool:
    """Whether the ticks of a source are ticks of the clocks that were simulated."""
    found = source.periodic
    ticks_ns = found.interruptions(0, SECONDS * 10**9).start_ns
    true_ns = np.sort(
        np.concatenate([each.interruptions(0, SECONDS * 10**9).start_ns for each in truth])
    )
    next_to = np.clip(np.searchsorted(true_ns, ticks_ns), 1, len(true_ns) - 1)
    apart_ns = np.minimum(
        np.abs(true_ns[next_to] - ticks_ns), np.abs(true_ns[next_to - 1] - ticks_ns)
    )
    return bool(np.mean(apart_ns < NEAR * found.period_ns) > THERE)


def is_of(source: FittedSource, truth: Periodic) -> bool:
    """Whether a source is this one, by rate, ticks and duration."""
    found = source.periodic
    return (
        abs(found.rate_hz - truth.rate_hz) < 1e-4 * truth.rate_hz
        and abs(found.duration_ns - truth.duration_ns) < 0.1 * truth.duration_ns + 4 * NOISE_NS
        and is_there(source, [truth])
    )


def counts(simulated: Simulated, found: Fit) -> Counter[str]:
    """What became of one capture."""
    pairs = [
        (source, truth)
        for truth in simulated.truth
        for source in found.sources
        if is_of(source, truth)
    ]
    hits = len({id(truth) for _, truth in pairs})
    result = Counter(
        number=1,
        all=bool(simulated.truth) and hits == len(simulated.truth),
        some=0 < hits < len(simulated.truth),
        refused=not found.sources,
        false=not all(
            simulated.truth and is_there(each, simulated.truth) for each in found.sources
        ),
        misread=len({id(source) for source, _ in pairs}) < len(found.sources),
    )
    for source, truth in pairs:
        result += within("rate", source.rate_ci_hz, truth.rate_hz)
        result += within("duration", source.duration_ci_ns, truth.duration_ns)
    return result


def within(name: str, interval: Interval | None, truth: float) -> Counter[str]:
    """Whether an interval holds the truth."""
    if interval is None:
        return Counter()
    held = interval.low <= truth <= interval.high
    return Counter({f"{name}_intervals": 1, f"{name}_held": int(held)})


def said(made: Simulated, own: Fit) -> Counter[str]:
    """Whether a clock was named, and whether it is there, by the search and by a periodogram."""
    line_hz = periodogram(made)
    named = {
        OWN: [bool(made.truth) and is_there(each, made.truth) for each in own.sources],
        NAIVE: [] if line_hz is None else [_is_multiple(line_hz, made.truth)],
    }
    result = Counter({"with clock": int(bool(made.truth))})
    for name, right in named.items():
        result[f"{name} false"] += bool(right) and not any(right)
        result[f"{name} missed"] += not right and bool(made.truth)
    return result


def _is_multiple(line_hz: float, truth: list[Periodic]) -> bool:
    """Whether a line is that of a clock, or one of its multiples."""
    turns = [line_hz * each.period_ns / 1e9 * each.every for each in truth]
    return any(
        round(turn) > 0
        and abs(turn - round(turn)) * 1e9 / (each.period_ns * each.every) < 1 / SECONDS
        for turn, each in zip(turns, truth, strict=True)
    )


def simulated(name: str, runs: int) -> Counter[str]:
    """What became of captures of one kind."""
    total: Counter[str] = Counter()
    for run in range(runs):
        made = SETTINGS[name](np.random.default_rng([zlib.crc32(name.encode()), run]))
        own = fit(made.arrival_ns, made.latency_ns)
        total += counts(made, own) + said(made, own)
    return total


def row(name: str, total: Counter[str]) -> list[str]:
    """A row of the table."""
    clock = not name.startswith(NO_CLOCK)
    cells = [total["number"], *(total[each] if clock else "-" for each in ("all", "some"))]
    cells += [total["refused"], total["false"], total["misread"] if clock else "-"]
    cells += [_held(total, "rate"), _held(total, "duration")]
    return [name, *map(str, cells)]


def _held(total: Counter[str], name: str) -> str:
    intervals = total[f"{name}_intervals"]
    return f"{total[f'{name}_held']} of {intervals}" if intervals else "-"


def _bounded(part: int, whole: int) -> str:
    """Say which part of a whole it is, and in which interval the share lies."""
    low, high = binomtest(part, whole).proportion_ci(0.95, "exact")
    return f"{share(part, whole)} ({low:.1%} to {high:.1%})"


def captured_rows(folder: Path) -> Iterator[list[str]]:
    for pre in sorted(folder.rglob("*-pre-*")):
        post = pre.with_name(pre.name.replace("-pre-", "-post-"))
        series = tailscope.analyze(pre, post, trim="1s").series
        assert series is not None
        arrival_ns, latency_ns = series.pre_ns.astype(np.int64), series.latency_ns.astype(np.int64)
        order = np.argsort(arrival_ns, kind="stable")
        arrival_ns, latency_ns = arrival_ns[order], latency_ns[order]
        found = fit(arrival_ns, latency_ns)
        said, agreement = found.reason, "-"
        if found.sources:
            said = "; ".join(
                f"{each.periodic.rate_hz:.2f} Hz reaching {each.latency_ns / 1e3:.2f} µs"
                for each in found.sources
            )
            if not found.in_batches:
                agreement = f"{predict(found, arrival_ns, latency_ns).agreement or 0:.1%}"
        yield [str(pre.parent.relative_to(folder)), said or "", agreement]


def periodogram(capture: Simulated) -> float | None:
    """The loudest line of the slowest hundredth of packets in Hz, if it is no chance."""
    late = capture.latency_ns > np.quantile(capture.latency_ns, 1 - SLOWEST)
    bins = int(SECONDS * 2 * LOUDEST_HZ)
    at = (capture.arrival_ns[late] * (2 * LOUDEST_HZ / 1e9)).astype(np.int64)
    counts = np.bincount(at[at < bins], minlength=bins)
    power = np.abs(np.fft.rfft(counts - counts.mean())[1:]) ** 2 / max(int(counts.sum()), 1)
    loudest = int(np.argmax(power))
    by_chance = len(power) * np.exp(-power[loudest])
    return (loudest + 1) / SECONDS if by_chance < CHANCE else None


def scores(counted: Counter[str]) -> Iterator[list[str]]:
    """Score whether there is a clock, as it was said, beside a periodogram and a constant."""
    number, with_clock = counted["number"], counted["with clock"]
    for name in NAMES:
        false, missed = counted[f"{name} false"], counted[f"{name} missed"]
        brier = (false + missed) / number
        yield [name, f"{brier:.3f}", f"{false} of {number}", f"{missed} of {with_clock}"]
    rate = with_clock / number
    yield [f"a clock with {rate:.0%}, always", f"{rate * (1 - rate):.3f}", "-", "-"]


def section(runs: int, data: Path) -> Section:
    """What came of the promise, with and without clocks."""
    found = {name: simulated(name, runs) for name in SETTINGS}
    without_clock = [total for name, total in found.items() if name.startswith(NO_CLOCK)]
    with_clock = [total for name, total in found.items() if not name.startswith(NO_CLOCK)]
    none, some = (sum(each, Counter[str]()) for each in (without_clock, with_clock))
    sentence = (
        f"Of {none['number']} simulated captures without a clock, one was named in"
        f" {_bounded(none['false'], none['number'])}; of {some['number']} with clocks, all were"
        f" found in {share(some['all'], some['number'])}, and one that is not there in"
        f" {_bounded(some['false'], some['number'])}."
    )
    rows = [row(name, total) for name, total in found.items()]
    tables = (
        table(HEADER, rows),
        table(SCORED, scores(sum(found.values(), Counter[str]()))),
        table(CAPTURES, captured_rows(data)),
    )
    return Section("Aliasing", TEXT, tables, {"aliasing": sentence})
