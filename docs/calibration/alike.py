"""How often the model of the tail keeps its word for runs that are alike, whatever their law is.

Packets of a device with an exponential tail, and stalls: packets that come while it stalls wait for
the rest of it. No constant of the model was chosen by these laws, but by others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from docs.calibration.section import share

from tailscope.extra.tail.models.bursts import usual_run_length_ns
from tailscope.extra.tail.models.excesses import Excesses
from tailscope.extra.tail.models.setting import QUANTILES, RunTail, largest, next_quantiles
from tailscope.units import percentile_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Draw = Callable[[np.random.Generator, int], Floats]

GAP_NS, DURATION_NS, FLOOR_NS = 10_000, 10_000_000_000, 20_000
BULK, SCALE_NS = 2_000, 1_500.0
AFTER = (1, 2, 4, 8)
LEVEL = 0.95
STALLS: dict[str, tuple[float, Draw]] = {
    "7 stalls, Pareto, α = 2": (7, lambda rng, n: 2e5 * (1 + rng.pareto(2, n))),
    "7 stalls, uniform": (7, lambda rng, n: rng.uniform(0, 2e6, n)),
    "70 stalls, Pareto, α = 1.5": (70, lambda rng, n: 5e4 * (1 + rng.pareto(1.5, n))),
    "70 stalls, lognormal, σ = 1": (70, lambda rng, n: 1e5 * rng.lognormal(0, 1, n)),
}
"""Mean number in a run, and lengths."""
CLASSES = {"0.2 of a second class": 0.2, "1 of a second class": 1.0, "3 of a second class": 3.0}
PERIODIC, BULK_ALONE = "every 3 s, lognormal, σ = 0.3", "no stalls"
KINDS = (BULK_ALONE, *STALLS, PERIODIC, *CLASSES)


def stalls(kind: str, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """When a device stalls in a run, and for how long."""
    if kind == PERIODIC:
        begins = np.arange(rng.uniform(0, 3e9), DURATION_NS, 3e9)
        return begins, 2e5 * rng.lognormal(0, 0.3, len(begins))
    lengths = np.zeros(0)
    if kind in STALLS:
        number, draw = STALLS[kind]
        lengths = draw(rng, rng.poisson(number))
    elif kind in CLASSES:
        rare = 1.5e6 * rng.lognormal(0, 0.1, rng.poisson(CLASSES[kind]))
        lengths = np.concatenate([5e4 + rng.exponential(3e4, rng.poisson(30)), rare])
    return rng.uniform(0, DURATION_NS, len(lengths)), np.minimum(lengths, DURATION_NS)


def simulated(kind: str, rng: np.random.Generator) -> Excesses:
    """The packets above the floor of one run."""
    number = rng.poisson(BULK)
    begins, lengths = stalls(kind, rng)
    waits = [np.arange(length, 0, -GAP_NS) for length in lengths]
    sent = np.concatenate(
        [
            rng.uniform(0, DURATION_NS, number),
            *(begin + wait[0] - wait for begin, wait in zip(begins, waits, strict=True)),
        ]
    )
    above = np.rint(np.concatenate([rng.exponential(SCALE_NS, number), *waits])).astype(np.int64)
    kept = (above > 0) & (sent <= DURATION_NS)
    order = np.argsort(sent[kept], kind="stable")
    times, above = sent[kept][order].astype(np.int64), above[kept][order]
    count = DURATION_NS // GAP_NS
    return Excesses(times, FLOOR_NS + above, times // GAP_NS, FLOOR_NS, count, 0, DURATION_NS)


def kept(kind: str, after: int, seed: int) -> dict[str, bool]:
    """Which intervals hold what a further run has, after so many."""
    rng = np.random.default_rng([seed, after])
    every = [simulated(kind, rng) for _ in range(after + 1)]
    *own, further = (RunTail.of(run, usual_run_length_ns(GAP_NS)) for run in every)
    most = largest(own, [], float(DURATION_NS), LEVEL)
    found = {
        "largest": most.low_ns <= further.max_ns <= most.high_ns,
        "in a region": any(low <= further.max_ns <= high for low, high, _ in most.regions),
    }
    for each in next_quantiles(own, [], LEVEL):
        came_ns = further.quantiles_ns[QUANTILES.index(each.quantile)] or FLOOR_NS
        found[percentile_name(each.quantile)] = each.low_ns <= came_ns <= each.high_ns
    return found


def rows(runs: int) -> Iterator[list[str]]:
    """A row for each law: how often each interval held, after 1, 2, 4 and 8 runs."""
    for kind in KINDS:
        found = [[kept(kind, after, seed) for seed in range(runs)] for after in AFTER]
        cells = []
        for name in found[0][0]:
            held = [[each[name] for each in every if name in each] for every in found]
            cells.append(", ".join(share(sum(each), len(each)) for each in held))
        yield [kind, *cells]
