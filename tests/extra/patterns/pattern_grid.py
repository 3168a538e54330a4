"""A grid of devices, rates and seeds: is the pattern of each named, wrongly named, or refused?"""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pattern_devices as devices
from pattern_devices import MS, US, Sent, series_of, traffic

from tailscope.extra.patterns.models.answer import Finding
from tailscope.extra.patterns.models.detect import detect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.random import Generator

    Device = Callable[[list[Sent], Generator], Iterable[int | None]]
    Draw = Callable[[Generator, int], np.ndarray]

NOISE_NS = (0, 300, 2000)
MIXED = (64, 400, 1000, 1514)


class Case(NamedTuple):
    """A device with traffic, and the patterns that are true of it."""

    kind: str
    true: frozenset[str]
    """Patterns that hold."""
    wanted: frozenset[str]
    """Those of them that are expected to be named."""
    send: Callable[[Generator], list[Sent]]
    pass_on: Device
    figures: tuple[tuple[str, str, float, float], ...] = ()
    """What figures of patterns are in truth, and how far they may be off, as a share."""


def cases(packets: int) -> Iterator[Case]:
    """All cases; at each seed traffic and noise differ."""
    yield from _queues(packets)
    yield from _buckets(packets)
    yield from _stalls_and_batches(packets)
    yield from _paths(packets)
    yield from _combined(packets)
    yield from _none(packets)


def _send(
    kind: str, packets: int, pps: float, sizes: tuple[int, ...] = (1000,), flows: int = 8
) -> Callable[[Generator], list[Sent]]:
    return lambda rng: traffic(kind, rng, packets=packets, pps=pps, sizes=sizes, flows=flows)


def _queues(packets: int) -> Iterator[Case]:
    for kind in ("random", "bursts", "on-off"):
        for load in (0.85, 1.3):
            for sizes in ((1000,), MIXED):
                mean = float(np.mean(sizes))
                for pps in (2e3, 5e4):
                    rate = pps * mean / load
                    for limit in (50, 200):
                        yield Case(
                            f"queue {kind} load {load}",
                            frozenset({"full queue", "queue"}),
                            frozenset({"full queue"} if load > 1 else ()),
                            _send(kind, packets, pps, sizes),
                            lambda sent, rng, rate=rate, limit=limit: devices.fifo(
                                sent, rate=rate, limit=limit
                            ),
                            (
                                ("full queue", "rate_bytes_per_s", rate, 0.02),
                                ("queue", "rate_bytes_per_s", rate, 0.02),
                            ),
                        )


def _buckets(packets: int) -> Iterator[Case]:
    for kind in ("bursts", "on-off"):
        for burst in (15_000, 50_000):
            for pps in (2e3, 2e4):
                rate = pps * 1000 / 0.8
                yield Case(
                    f"token bucket {kind}",
                    frozenset({"token bucket", "queue", "full queue"}),
                    frozenset({"token bucket"}),
                    _send(kind, packets, pps),
                    lambda sent, rng, rate=rate, burst=burst: devices.token_bucket(
                        sent, rate=rate, burst=burst, limit_bytes=400_000
                    ),
                    (
                        ("token bucket", "rate_bytes_per_s", rate, 0.02),
                        ("token bucket", "burst_bytes", burst, 0.15),
                    ),
                )
                for load in (0.8, 1.5):
                    rate = pps * 1000 / load
                    yield Case(
                        f"policer {kind} load {load}",
                        frozenset({"policer"}),
                        frozenset({"policer"}),
                        _send(kind, packets, pps),
                        lambda sent, rng, rate=rate, burst=burst: devices.police(
                            sent, rate=rate, burst=burst
                        ),
                        (
                            ("policer", "rate_bytes_per_s", rate, 0.03),
                            ("policer", "burst_bytes", burst, 0.15),
                        ),
                    )
    for kind in ("even", "random"):
        for load in (1.3, 2.0):
            yield Case(
                f"policer {kind} load {load}",
                frozenset({"policer"}),
                frozenset({"policer"}),
                _send(kind, packets, 1e4, MIXED),
                lambda sent, rng, load=load: devices.police(
                    sent, rate=1e4 * float(np.mean(MIXED)) / load, burst=30_000
                ),
                (("policer", "rate_bytes_per_s", 1e4 * float(np.mean(MIXED)) / load, 0.03),),
            )


def _stalls_and_batches(packets: int) -> Iterator[Case]:
    for kind in ("even", "random"):
        for period, held in ((10 * MS, 400 * US), (4 * MS, 100 * US), (25 * MS, 1500 * US)):
            yield Case(
                f"stall {kind}",
                frozenset({"periodic stall"}),
                frozenset({"periodic stall"}),
                _send(kind, packets, 20_011),
                lambda sent, rng, period=period, held=held: devices.stalled(
                    sent, period_ns=period, held_ns=held
                ),
                (("periodic stall", "period_ns", period, 0.01),),
            )
        for count in (4, 16, 32):
            yield Case(
                f"batch by count {kind}",
                frozenset({"batching"}),
                frozenset({"batching"}),
                _send(kind, packets, 20_011),
                lambda sent, rng, count=count: devices.batched_by_count(sent, count=count),
                (("batching", "packets_usual", count, 0),),
            )
        for period in (250 * US, MS):
            yield Case(
                f"batch by timer {kind}",
                frozenset({"batching", "periodic stall"}),
                frozenset({"batching"}),
                _send(kind, packets, 20_011),
                lambda sent, rng, period=period: devices.batched_by_timer(sent, period_ns=period),
                (("batching", "period_ns", period, 0.01),),
            )


def _paths(packets: int) -> Iterator[Case]:
    for kind in ("even", "random", "bursts"):
        for levels in ((0, 50 * US), (0, 200 * US, 2 * MS)):
            yield Case(
                f"ECMP {kind}",
                frozenset({"ECMP"}),
                frozenset({"ECMP"}),
                _send(kind, packets, 5_000, (300, 1000), flows=24),
                lambda sent, rng, levels=levels: devices.by_flow(sent, rng, levels=levels),
                (("ECMP", "levels", len(levels), 0),),
            )
            for turns in (True, False):
                yield Case(
                    f"reordering {kind}",
                    frozenset({"reordering"}),
                    frozenset({"reordering"}),
                    _send(kind, packets, 50_000, flows=4),
                    lambda sent, rng, levels=levels, turns=turns: devices.by_packet(
                        sent, rng, levels=levels, turns=turns
                    ),
                    (("reordering", "levels", len(levels), 0),),
                )


def _combined(packets: int) -> Iterator[Case]:
    """Devices of several patterns, or of one that is not quite like that of the books."""
    rate = 1e7
    rated = tuple((name, "rate_bytes_per_s", rate, 0.02) for name in ("queue", "full queue"))

    def lossy(sent: list[Sent], rng: Generator) -> Iterator[int | None]:
        for left in devices.fifo(sent, rate=rate, limit=100):
            yield None if rng.random() < 0.01 else left

    def link_and_shaper(sent: list[Sent], rng: Generator) -> list[int | None]:
        return devices.one_behind_the_other(
            sent,
            devices.fifo(sent, rate=8e7),
            lambda passed: devices.token_bucket(passed, rate=rate, burst=30_000),
        )

    def policer_and_link(sent: list[Sent], rng: Generator) -> list[int | None]:
        return devices.one_behind_the_other(
            sent,
            devices.police(sent, rate=rate, burst=30_000),
            lambda passed: devices.fifo(passed, rate=8e7),
        )

    def paths_and_link(sent: list[Sent], rng: Generator) -> list[int | None]:
        return devices.one_behind_the_other(
            sent,
            devices.fifo(sent, rate=rate, limit=100),
            lambda passed: devices.by_flow(passed, rng, levels=(0, 30 * MS)),
        )

    queue, bucket = frozenset({"queue"}), frozenset({"token bucket", "queue"})
    either = frozenset({"queue", "full queue"})
    for kind in ("bursts", "on-off"):
        for name, pps, true, wanted, device in (
            (
                "early drops",
                9e3,
                either,
                queue,
                lambda sent, rng: devices.early_dropping(sent, rng, rate=rate, least=20, most=200),
            ),
            ("fair queues", 9e3, either, queue, lambda s, rng: devices.fair(s, rate=rate, limit=9)),
            ("queue and random loss", 12e3, either, frozenset({"full queue"}), lossy),
            ("link, then token bucket", 8e3, bucket, bucket, link_and_shaper),
            (
                "policer, then link",
                8e3,
                frozenset({"policer", "queue"}),
                frozenset({"policer"}),
                policer_and_link,
            ),
            ("queue, then ECMP", 12e3, either | {"ECMP"}, frozenset(), paths_and_link),
        ):
            figures = rated if "policer" not in name else ()
            yield Case(name, true, wanted, _send(kind, packets, pps), device, figures)


def _none(packets: int) -> Iterator[Case]:
    """Devices without a pattern."""

    def jitter(draw: Draw) -> Device:
        return lambda sent, rng: (
            packet.at_ns + int(delay)
            for packet, delay in zip(sent, draw(rng, len(sent)), strict=True)
        )

    def ordered(draw: Draw) -> Device:
        return lambda sent, rng: devices.not_overtaking(sent, draw(rng, len(sent)))

    def served(draw: Draw) -> Device:
        return lambda sent, rng: devices.in_order(sent, draw(rng, len(sent)))

    def losing(share: float) -> Device:
        return lambda sent, rng: (
            None if rng.random() < share else packet.at_ns + 20 * US + int(rng.exponential(2 * US))
            for packet in sent
        )

    def in_runs(sent: list[Sent], rng: Generator) -> Iterator[int | None]:
        left = 0
        for packet in sent:
            if not left and rng.random() < 0.002:
                left = int(rng.integers(5, 60))
            lost, left = left > 0, max(left - 1, 0)
            yield None if lost else packet.at_ns + 20 * US + int(rng.exponential(2 * US))

    def every_50th(sent: list[Sent], rng: Generator) -> Iterator[int | None]:
        for number, packet in enumerate(sent):
            yield (
                None if number % 50 == 49 else packet.at_ns + 20 * US + int(rng.exponential(2 * US))
            )

    def step(sent: list[Sent], rng: Generator) -> Iterator[int | None]:
        for number, packet in enumerate(sent):
            yield (
                packet.at_ns
                + (20 * US if number < len(sent) / 2 else 220 * US)
                + int(rng.exponential(US))
            )

    def by_size(sent: list[Sent], rng: Generator) -> Iterator[int | None]:
        for packet in sent:
            yield packet.at_ns + 20 * US + packet.size * 80 + int(rng.exponential(500))

    def at_random(sent: list[Sent], rng: Generator) -> Iterator[int | None]:
        free, stall = 0, 0.0
        for packet in sent:
            while stall < packet.at_ns:
                stall += rng.exponential(20 * MS)
                if stall < packet.at_ns + 20 * MS:
                    free = max(free, int(stall) + int(rng.exponential(500 * US)))
            free = max(free, packet.at_ns) + 300
            yield free + 20 * US

    shapes = {
        "constant": ordered(lambda rng, n: np.full(n, 20 * US)),
        "noise": ordered(lambda rng, n: rng.normal(20 * US, US, n)),
        "exponential jitter": jitter(lambda rng, n: 20 * US + rng.exponential(200 * US, n)),
        "lognormal": ordered(lambda rng, n: rng.lognormal(np.log(20 * US), 1, n)),
        "heavy tail": ordered(lambda rng, n: 20 * US * (1 + rng.pareto(1.5, n))),
        "random service": served(lambda rng, n: rng.exponential(0.7, n) * 100 * US),
        "random service, low load": served(lambda rng, n: rng.exponential(0.2, n) * 100 * US),
        "gamma service": served(lambda rng, n: rng.gamma(3, 0.28, n) * 100 * US),
        "drift": ordered(lambda rng, n: 20 * US + np.arange(n) * 5.0 + rng.normal(0, 200, n)),
        "random loss 1 %": losing(0.01),
        "random loss 20 %": losing(0.2),
        "loss in runs": in_runs,
        "every 50th lost": every_50th,
        "step": step,
        "by size": by_size,
        "random stalls": at_random,
    }
    for kind in ("even", "random", "bursts"):
        for name, device in shapes.items():
            sizes = MIXED if name == "by size" else (1000,)
            yield Case(
                f"none: {name}",
                frozenset(),
                frozenset(),
                _send(kind, packets, 1e4, sizes),
                device,
            )


class Outcome(NamedTuple):
    """What was said of a case."""

    case: Case
    named: frozenset[str]
    off: tuple[str, ...]
    """Figures that are farther off than they may be."""
    refused: dict[str, str]

    @property
    def verdict(self) -> str:
        if self.named - self.case.true or self.off:
            return "wrong"
        if self.case.wanted - self.named:
            return "refused"
        return "right"


def outcome_of(case: Case, seed: int, noise_ns: float) -> Outcome:
    rng = np.random.default_rng(seed)
    sent = case.send(rng)
    series = series_of(sent, [*case.pass_on(sent, rng)], rng, noise_ns)
    detected = detect(series)
    found = {each.pattern: each for each in detected.answers if isinstance(each, Finding)}
    off = tuple(
        f"{pattern}.{figure}: {found[pattern].figures.get(figure)} not {value}"
        for pattern, figure, value, within in case.figures
        if pattern in found
        and (said := found[pattern].figures.get(figure)) is not None
        and abs(float(said) - value) > within * value
    )
    refused = {
        each.pattern: each.reason for each in detected.answers if not isinstance(each, Finding)
    }
    return Outcome(case, frozenset(found), off, refused)


def table(outcomes: Sequence[Outcome]) -> str:
    counts: dict[str, Counter[str]] = {}
    for each in outcomes:
        counts.setdefault(each.case.kind, Counter())[each.verdict] += 1
    lines = [f"{'device':<34} right  wrong  refused"]
    lines += [
        f"{kind:<34} {found['right']:5}  {found['wrong']:5}  {found['refused']:7}"
        for kind, found in counts.items()
    ]
    return "\n".join(lines)


def main(seeds: int, packets: int) -> None:
    """Print the table of all cases, and what was said wrongly."""
    outcomes = [
        outcome_of(case, seed, NOISE_NS[seed % len(NOISE_NS)])
        for seed in range(seeds)
        for case in cases(packets)
    ]
    for each in outcomes:
        if each.verdict == "wrong":
            print(each.case.kind, sorted(each.named), *each.off)
    print(table(outcomes))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
