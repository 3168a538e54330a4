"""How often tails that `tailscope recommend` calls different are: pairs of runs of known law."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from docs.calibration.section import SURE, Section, brier, share
from docs.calibration.verdicts import LAWS, Law
from docs.reference.markdown import table

from tailscope.extra.recommend.compare import FEWEST_RUNS, tail_of, why_overlapping
from tailscope.models.differences import quantile_ends
from tailscope.models.estimate import LEVEL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tailscope.extra.recommend.compare import Tail

QUANTILE, NAME = 0.999, "latency_ns_p999"
FACTORS = (1.0, 1.5, 3.0)
REPEATS = (1, 2, FEWEST_RUNS)
TEXT = f"""\
Promised by `recommend`: of two tails that are alike, one is called
longer in at most 5 % of cases. Tried on pairs of sides with one to three runs each, of the laws
above, at p99.9; all latencies of the second side are so many times as long. Intervals take
packets for independent, which packets behind a stall are not, so that fewer runs break the
promise: `recommend` asks for {FEWEST_RUNS} on each side."""


def tail(law: Law, factor: float, seeds: list[list[int]]) -> Tail:
    """The tail of runs that repeat each other."""
    cases: list[Any] = []
    for seed in seeds:
        ranked = np.sort(law.draw(np.random.default_rng(seed)) * factor)
        ends = quantile_ends(ranked, QUANTILE, 1.0, (1 - LEVEL) / 2)
        summary = {
            NAME: ends.value,
            f"{NAME}_ci_low": ends.low,
            f"{NAME}_ci_high": ends.high,
            "ci_level": LEVEL,
            "count": len(ranked),
            "tainted": 0,
        }
        cases.append(SimpleNamespace(number=seed[-1], run=SimpleNamespace(summary=summary)))
    return tail_of(cases, QUANTILE)


class Compared(NamedTuple):
    """What is said of two sides."""

    is_longer: bool
    is_shorter: bool
    """True if the second tail is called longer, or shorter, than the first."""
    ratio: float
    """The second tail over the first: of the worst run of each side."""


def found(law: Law, factor: float, repeats: int, runs: int) -> list[Compared]:
    """What is said of pairs of sides."""
    compared = []
    for at in range(runs):
        seeds = [[3, at, each] for each in range(2 * repeats)]
        short = tail(law, 1.0, seeds[:repeats])
        long = tail(law, factor, seeds[repeats:])
        compared.append(
            Compared(
                why_overlapping(long, short) is None,
                why_overlapping(short, long) is None,
                long.latency_ns.estimate / short.latency_ns.estimate,
            )
        )
    return compared


def following(law: Law, runs: int) -> list[float]:
    """The tail of a further run of the second side, over that of one of the first."""
    drawn = np.array(
        [
            [
                np.quantile(law.draw(np.random.default_rng([4, at, each])), QUANTILE)
                for each in (0, 1)
            ]
            for at in range(runs)
        ]
    )
    return (drawn[:, 1] / drawn[:, 0]).tolist()


def section(runs: int, _data: Path) -> Section:
    """What came of the promise, by law and number of runs."""
    every = {
        (law, repeats, factor): found(law, factor, repeats, runs)
        for law in LAWS
        for repeats in REPEATS
        for factor in FACTORS
    }
    pairs = runs * len(LAWS)
    alike = [each for law in LAWS for each in every[law, FEWEST_RUNS, 1.0]]
    wrong = sum(each.is_longer or each.is_shorter for each in alike)
    sentence = (
        f"Of {pairs:,} pairs of simulated runs whose tails were alike, {FEWEST_RUNS} runs on each"
        f" side, {share(wrong, pairs)} were called different."
    )
    tables = table(HEADER, _rows(every, runs)), SCORES, table(SCORED, _scores(every, runs))
    return Section("Recommendations", TEXT, tables, {"recommendation": sentence})


HEADER = ("runs", "on each side", "factor", "pairs", "called longer", "called shorter")
SCORED = (
    *("runs", "pairs", "not decided"),
    *("**recommendation**", "the longer one", "if twice as long", "a coin"),
)
SCORES = f"""\
Has the second of the next two runs the longer tail? To be called longer says so with {SURE:.0%},
to be called shorter denies it with as much, and all else is a coin. Beside it: which side had the
longer tail, with {SURE:.0%}; and the same only if it was twice as long. Brier scores of pairs with
{FEWEST_RUNS} runs on each side, of all factors; less is better:"""
TWICE = 2.0


def _scores(every: dict[tuple[Law, int, float], list[Compared]], runs: int) -> Iterator[list[str]]:
    together: list[tuple[Compared, bool]] = []
    for law in LAWS:
        ratios = following(law, runs)
        own = [
            (each, factor * ratio > 1)
            for factor in FACTORS
            for each, ratio in zip(every[law, FEWEST_RUNS, factor], ratios, strict=True)
        ]
        together += own
        yield _scored(law.name, own)
    yield _scored("**all**", together)


def _scored(name: str, pairs: Sequence[tuple[Compared, bool]]) -> list[str]:
    compared, came = zip(*pairs, strict=True)
    said = (
        [_said(each.is_longer, each.is_shorter) for each in compared],
        [_said(each.ratio > 1, each.ratio < 1) for each in compared],
        [_said(each.ratio > TWICE, each.ratio < 1 / TWICE) for each in compared],
        [0.5] * len(compared),
    )
    left = sum(not (each.is_longer or each.is_shorter) for each in compared)
    scores = (f"{brier(probabilities, came):.3f}" for probabilities in said)
    return [name, str(len(compared)), share(left, len(compared)), *scores]


def _said(is_longer: bool, is_shorter: bool) -> float:
    return SURE if is_longer else 1 - SURE if is_shorter else 0.5


def _rows(every: dict[tuple[Law, int, float], list[Compared]], runs: int) -> Iterator[list[str]]:
    for (law, repeats, factor), compared in every.items():
        counts = (
            share(sum(each.is_longer for each in compared), runs),
            share(sum(each.is_shorter for each in compared), runs),
        )
        yield [law.name, str(repeats), f"{factor:g}", str(runs), *counts]
