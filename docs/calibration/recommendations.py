"""How often tails that `tailscope recommend` calls different are: pairs of runs of known law."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from docs.calibration.section import Section, share
from docs.calibration.verdicts import LAWS, Law
from docs.reference.markdown import table

from tailscope.extra.recommend.compare import FEWEST_RUNS, tail_of, why_overlapping
from tailscope.models.differences import quantile_ends
from tailscope.models.estimate import LEVEL

if TYPE_CHECKING:
    from collections.abc import Iterator
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


def found(law: Law, factor: float, repeats: int, runs: int) -> tuple[int, int]:
    """In how many pairs the second tail lies above the first, and the first above the second."""
    above = below = 0
    for at in range(runs):
        seeds = [[3, at, each] for each in range(2 * repeats)]
        short = tail(law, 1.0, seeds[:repeats])
        long = tail(law, factor, seeds[repeats:])
        above += why_overlapping(long, short) is None
        below += why_overlapping(short, long) is None
    return above, below


def section(runs: int, _data: Path) -> Section:
    """What came of the promise, by law and number of runs."""
    every = {
        (law, repeats, factor): found(law, factor, repeats, runs)
        for law in LAWS
        for repeats in REPEATS
        for factor in FACTORS
    }
    pairs = runs * len(LAWS)
    wrong = sum(sum(every[law, FEWEST_RUNS, 1.0]) for law in LAWS)
    sentence = (
        f"Of {pairs:,} pairs of simulated runs whose tails were alike, {FEWEST_RUNS} runs on each"
        f" side, {share(wrong, pairs)} were called different."
    )
    return Section(
        "Recommendations", TEXT, (table(HEADER, _rows(every, runs)),), {"recommendation": sentence}
    )


HEADER = ("runs", "on each side", "factor", "pairs", "called longer", "called shorter")


def _rows(every: dict[tuple[Law, int, float], tuple[int, int]], runs: int) -> Iterator[list[str]]:
    for (law, repeats, factor), (above, below) in every.items():
        counts = share(above, runs), share(below, runs)
        yield [law.name, str(repeats), f"{factor:g}", str(runs), *counts]
