"""Explanation of a run's tail and of each of its worst packets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tailscope.noise.attribution import PARTS, SERVICE, Attribution, Tally
from tailscope.noise.queues import Delayed, delayed, stalled_ns, usual_of
from tailscope.noise.stages import explain_stages
from tailscope.store.records.explanation import ExplainedCause, Explanation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tailscope.engine.analysis import Distribution, Worst
    from tailscope.noise.attribution import Blocked, Explained
    from tailscope.noise.stages import Stages
    from tailscope.store.packets import Latencies, Packets

    Integers = NDArray[np.int64]

TAIL_QUANTILE = 0.999
"""Default quantile above which packets are the tail."""

_LOWER_QUANTILES = (0.9999, 0.999, 0.99, 0.95, 0.9, 0.75, 0.5)
"""Lower quantiles to try if no packet lies above the requested one."""

_AT_ONCE = 1 << 14


def explain_tail(
    packets: Packets,
    latencies: Latencies,
    blocked: Blocked,
    quantile: float = TAIL_QUANTILE,
    stages: Stages | None = None,
) -> Explanation:
    """Explain every packet beyond a quantile, all together.

    If no packet lies beyond it, the tail begins at the highest lower one that has some.
    """
    nobody = np.zeros(0, np.int64)
    return _explain(packets, latencies.distribution, blocked, quantile, nobody, stages)[0]


def explain_tail_and_worst(
    packets: Packets,
    latencies: Distribution,
    blocked: Blocked,
    worst: Worst,
    stages: Stages | None = None,
) -> tuple[Explanation, Explained]:
    """Explain the tail, and each of the worst packets, in their order."""
    seq = worst.pre_seq.astype(np.int64)
    return _explain(packets, latencies, blocked, TAIL_QUANTILE, seq, stages)


def _explain(
    packets: Packets,
    latencies: Distribution,
    blocked: Blocked,
    quantile: float,
    worst: Integers,
    stages: Stages | None,
) -> tuple[Explanation, Explained]:
    wanted, quantile = quantile, _start_of(latencies, quantile)
    usual, threshold_ns = usual_of(packets), latencies.at(quantile)
    attribution, tally = Attribution(blocked), Tally()
    singled, count = [], 0
    parts = dict.fromkeys(PARTS, 0)
    ordered = np.sort(worst)

    def is_worst(seq: Integers) -> NDArray[np.bool_]:
        at = np.searchsorted(ordered, seq)
        return ordered[np.minimum(at, len(ordered) - 1)] == seq if len(ordered) else at > 0

    def is_chosen(seq: Integers, latency_ns: Integers) -> NDArray[np.bool_]:
        return (latency_ns > threshold_ns) | is_worst(seq)

    for block in _gathered(delayed(packets, usual, is_chosen)):
        singled.append(block.only(is_worst(block.seq)))
        tail = block.only(block.latency_ns > threshold_ns)
        for name, values in attribution.explain(tail, tally).parts().items():
            parts[name] += int(values.sum())
        count += len(tail.seq)
    whole_ns = sum(parts.values())
    explanation = Explanation(
        quantile=quantile,
        none_above=None if quantile == wanted else wanted,
        threshold_ns=threshold_ns,
        service_ns=usual.service_ns,
        each_ns=usual.each_ns,
        in_order=usual.in_order,
        seen_idle=usual.seen_idle,
        service_tainted=usual.is_tainted,
        packets=count,
        latency_ns=whole_ns,
        excess_ns=whole_ns - parts[SERVICE],
        parts_ns=parts,
        stalled_ns=stalled_ns(packets, usual, lambda _, latency_ns: latency_ns > threshold_ns),
        clock_error_ns=blocked.error_ns or None,
        causes=tuple(ExplainedCause(**share._asdict()) for share in tally.shares() if count),
        stages=None if stages is None else explain_stages(stages, packets, blocked, threshold_ns),
    )
    return explanation, attribution.explain(_ordered(Delayed.joined(singled), worst))


def _start_of(latencies: Distribution, quantile: float) -> float:
    """Return the quantile, or the highest lower one with packets above it."""
    lower = (candidate for candidate in _LOWER_QUANTILES if candidate < quantile)
    starts = (
        candidate for candidate in (quantile, *lower) if latencies.above(latencies.at(candidate))
    )
    return next(starts, quantile)


def _gathered(blocks: Iterator[Delayed]) -> Iterator[Delayed]:
    """Join blocks until they are large enough to process."""
    waiting: list[Delayed] = []
    count = 0
    for block in filter(lambda block: len(block.seq), blocks):
        waiting.append(block)
        count += len(block.seq)
        if count >= _AT_ONCE:
            yield Delayed.joined(waiting)
            waiting, count = [], 0
    yield Delayed.joined(waiting)


def _ordered(block: Delayed, seq: Integers) -> Delayed:
    """Put packets into the order of their numbers, all of which must be present."""
    ordered = block.only(np.searchsorted(block.seq, seq))
    assert np.array_equal(ordered.seq, seq), "a worst packet is one of all"
    return ordered
