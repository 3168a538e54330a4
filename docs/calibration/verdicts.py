"""How often verdicts are right: terms of service levels near their limit, of runs of known law."""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from docs.calibration.section import SURE, Section, brier, share
from docs.reference.markdown import table

from tailscope.verdict.evidence import PacketSample, RunSample
from tailscope.verdict.slo import parse_level
from tailscope.verdict.taken import Taken
from tailscope.verdict.verdict import Outcome, judge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
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


class Tried(NamedTuple):
    """A verdict on a run, what else could be said of it, and what the next repeat did."""

    outcome: Outcome
    is_met: bool
    """True if the run's own quantile is within the limit."""
    bootstrap: float
    """Share of resamples of its packets that are."""
    is_next_met: bool


@cache
def _many(law: Law) -> Values:
    """Latencies of so many runs that their law is known."""
    return np.concatenate([law.draw(np.random.default_rng([1, seed])) for seed in range(MANY)])


def outcomes(law: Law, factor: float, runs: int) -> list[Tried]:
    """Verdicts on runs of a law, with a limit that this multiple of the allowed share exceeds."""
    from scipy.special import bdtr

    limit_ns = round(float(np.quantile(_many(law), 1 - factor * ALLOWED)))
    level = parse_level(f"{QUANTILE}<{limit_ns}ns")
    most = round(ALLOWED * PACKETS)
    found, beyond = [], []
    for seed in range(runs + 1):
        values = law.draw(np.random.default_rng([2, seed]))
        beyond.append(int((values >= limit_ns).sum()))
        found.append(judge(level, _run(values)).outcome)
    return [
        Tried(
            outcome,
            count <= most,
            float(bdtr(most, PACKETS, count / PACKETS)),
            following <= most,
        )
        for outcome, count, following in zip(found[:-1], beyond[:-1], beyond[1:], strict=True)
    ]


def _run(values: Values) -> RunSample:
    return RunSample("run", 10_000.0, PacketSample(Taken.of(values), 0, COUNTS))


def wrong(found: Sequence[Tried], factor: float) -> int:
    """How many verdicts were wrong."""
    mistaken = Outcome.FAIL if factor < 1 else Outcome.PASS
    return sum(each.outcome is mistaken for each in found)


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
    tables = table(HEADER, _rows(found, runs)), SCORES, table(SCORED, _scores(found))
    return Section("Verdicts", TEXT, tables, {"verdict": sentence})


HEADER = ("runs", "share beyond / allowed", "number", "wrong", "right", "inconclusive")
SCORED = (
    "runs",
    "number",
    "inconclusive",
    "**verdict**",
    "its own quantile",
    "bootstrap",
    "a coin",
)
SCORES = f"""\
Does the next repeat meet the limit, too? A pass says so with {SURE:.0%}, a fail denies it with as
much, and an inconclusive verdict is a coin. Beside it: whether the run's own quantile is within
the limit, with {SURE:.0%}, and how many resamples of its packets are (bootstrap). Brier scores, of
all distances to the limit; less is better:"""
SAID = {Outcome.PASS: SURE, Outcome.FAIL: 1 - SURE, Outcome.INCONCLUSIVE: 0.5}


def _scores(found: dict[tuple[Law, float], list[Tried]]) -> Iterator[list[str]]:
    every: list[Tried] = []
    for law in LAWS:
        own = [each for factor in FACTORS for each in found[law, factor]]
        every += own
        yield _scored(law.name, own)
    yield _scored("**all**", every)


def _scored(name: str, tried: Sequence[Tried]) -> list[str]:
    came = [each.is_next_met for each in tried]
    said = (
        [SAID[each.outcome] for each in tried],
        [SURE if each.is_met else 1 - SURE for each in tried],
        [each.bootstrap for each in tried],
        [0.5] * len(tried),
    )
    left = sum(each.outcome is Outcome.INCONCLUSIVE for each in tried)
    scores = (f"{brier(probabilities, came):.3f}" for probabilities in said)
    return [name, str(len(tried)), share(left, len(tried)), *scores]


def _rows(found: dict[tuple[Law, float], list[Tried]], runs: int) -> Iterator[list[str]]:
    for (law, factor), each in found.items():
        left = sum(tried.outcome is Outcome.INCONCLUSIVE for tried in each)
        mistaken = wrong(each, factor)
        counts = (share(count, runs) for count in (mistaken, runs - left - mistaken, left))
        yield [law.name, f"{factor:g}", str(runs), *counts]
