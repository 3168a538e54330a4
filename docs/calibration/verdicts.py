"""How often verdicts are right: terms of service levels near their limit, of runs of known law."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from docs.calibration.section import Section, share
from docs.reference.markdown import table

from tailscope.verdict.evidence import PacketSample, RunSample
from tailscope.verdict.slo import parse_level
from tailscope.verdict.taken import Taken
from tailscope.verdict.verdict import Outcome, judge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    Values = NDArray[np.float64]
    Draw = Callable[[np.random.Generator], Values]

PACKETS = 20_000
QUANTILE, ALLOWED = "p99.5", 0.005
FACTORS = (0.5, 0.9, 1.1, 2.0)
NEAR = (0.9, 1.1)
MANY = 200
COUNTS = dict.fromkeys(("lost", "dropped", "late", "reordered", "duplicated", "corrupt"), 0)
TEXT = f"""\
Promised: a verdict is wrong (a pass beyond the limit, a fail within it) in at most 5 % of runs.
Tried on simulated runs of {PACKETS:,} packets, judged by `{QUANTILE}<LIMIT`. The limit is where
the law has the given multiple of the allowed share beyond it, so a pass is right up to 1 and a
fail above it. The last law has so few stalls in a run that it cannot know how they come: there
nothing is promised, and wrong verdicts are more frequent."""


class Law(NamedTuple):
    """How latencies come about."""

    name: str
    draw: Draw


def independent(rng: np.random.Generator) -> Values:
    return rng.exponential(1_000, PACKETS)


def stalls(mean_packets: float, law: str, number: int) -> Draw:
    """A queue that stands still now and then: all packets of a stall wait for its end."""

    def draw(rng: np.random.Generator) -> Values:
        values = rng.exponential(0.3, PACKETS)
        count = rng.poisson(number)
        lasts = {
            "exponential": rng.exponential(mean_packets, count),
            "fixed": np.full(count, mean_packets),
            "uniform": rng.uniform(0, 2 * mean_packets, count),
        }[law]
        for at, lasted in zip(rng.uniform(0, PACKETS, count), lasts, strict=True):
            held = np.arange(math.ceil(at), min(PACKETS, math.ceil(at + lasted)))
            values[held] = np.maximum(values[held], at + lasted - held)
        return values * 1_000

    return draw


LAWS = (
    Law("independent packets", independent),
    Law("50 stalls of equal length", stalls(10, "fixed", 50)),
    Law("50 stalls of uniform length", stalls(10, "uniform", 50)),
    Law("50 stalls of exponential length", stalls(10, "exponential", 50)),
    Law("200 stalls of exponential length", stalls(3, "exponential", 200)),
    Law("5 stalls of exponential length", stalls(100, "exponential", 5)),
)
ENOUGH = len(LAWS) - 1
"""Laws of which a run has seen enough."""


def outcomes(law: Law, factor: float, runs: int) -> Counter[Outcome]:
    """Verdicts on runs of a law, with a limit that this multiple of the allowed share exceeds."""
    many = np.concatenate([law.draw(np.random.default_rng([1, seed])) for seed in range(MANY)])
    limit_ns = round(float(np.quantile(many, 1 - factor * ALLOWED)))
    level = parse_level(f"{QUANTILE}<{limit_ns}ns")
    return Counter(
        judge(level, _run(law.draw(np.random.default_rng([2, seed])))).outcome
        for seed in range(runs)
    )


def _run(values: Values) -> RunSample:
    return RunSample("run", 10_000.0, PacketSample(Taken.of(values), 0, COUNTS))


def wrong(found: Counter[Outcome], factor: float) -> int:
    """How many verdicts were wrong."""
    return found[Outcome.FAIL if factor < 1 else Outcome.PASS]


def section(runs: int, _data: Path) -> Section:
    """What came of the promise, by law and distance."""
    found = {(law, factor): outcomes(law, factor, runs) for law in LAWS for factor in FACTORS}
    enough = [(law, factor) for law in LAWS[:ENOUGH] for factor in NEAR]
    worst = max(wrong(found[each], each[1]) for each in enough)
    tried = runs * len(enough)
    mistaken = sum(wrong(found[each], each[1]) for each in enough)
    sentence = (
        f"Of {tried:,} simulated runs whose share beyond the limit was a tenth from the allowed"
        f" one, {share(mistaken, tried)} got a wrong verdict"
        f" ({share(worst, runs)} at the worst of {ENOUGH} laws); at most 5% are promised."
    )
    return Section("Verdicts", TEXT, (table(HEADER, _rows(found, runs)),), {"verdict": sentence})


HEADER = ("runs", "share beyond / allowed", "number", "wrong", "right", "inconclusive")


def _rows(found: dict[tuple[Law, float], Counter[Outcome]], runs: int) -> Iterator[list[str]]:
    for (law, factor), each in found.items():
        left = each[Outcome.INCONCLUSIVE]
        mistaken = wrong(each, factor)
        counts = (share(count, runs) for count in (mistaken, runs - left - mistaken, left))
        yield [law.name, f"{factor:g}", str(runs), *counts]
