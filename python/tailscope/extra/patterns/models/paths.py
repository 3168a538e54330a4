"""Parallel paths: chosen by the flow (as ECMP does), or anew for each packet."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.extra.patterns.models.answer import Finding, Refusal
from tailscope.extra.patterns.models.levels import divided

if TYPE_CHECKING:
    from tailscope.extra.patterns.models.answer import Answer, Figure, Floats, Numbers
    from tailscope.extra.patterns.models.series import Series

_FEWEST_OF_FLOW = 20
_FEWEST_FLOWS = 2
"""Flows of a level: one alone may be slow for a reason of its own."""
_APART = 4.0
"""Levels are so many times as far apart as the latencies of one flow, or more."""
_OVERLAP = 0.5
"""Share of a level's time in which another level must have packets, too."""
_LEAST_SHARE = 0.02
_BY_SIZE = 0.5
"""Levels go with sizes if these tell so much of what chance does not."""
_FEWEST_OVERTAKING = 20
_OVERTAKING = 0.1
"""Share of packets that overtake, of those that would on a path of their own."""
_STAYS = 0.9
"""Share of packets that stay on the path of the one before if paths change slowly."""


class ByFlow(NamedTuple):
    """Levels of latency by flow."""

    answer: Answer
    base_ns: Numbers | None
    """The latency of an undelayed packet on the path of each packet, if there are paths."""


def ecmp(series: Series) -> ByFlow:
    """Name parallel paths that the flow chooses."""
    return ByFlow(*_ecmp(series))


def _ecmp(series: Series) -> tuple[Answer, Numbers | None]:
    if series.flow is None:
        return Refusal("ECMP", "flows are not known: analyse the captures again"), None
    flows, number, counts = np.unique(series.flow, return_inverse=True, return_counts=True)
    large = counts >= _FEWEST_OF_FLOW
    if np.count_nonzero(large) < 2 * _FEWEST_FLOWS:
        return Refusal(
            "ECMP",
            f"flows of {_FEWEST_OF_FLOW} packets: {np.count_nonzero(large)}, expected"
            f" {2 * _FEWEST_FLOWS}",
        ), None
    low_ns, middle_ns, high_ns = _quantiles_by(number, series.latency_ns, len(flows))
    level_of, spread_ns = _levels(middle_ns[large], (high_ns - low_ns)[large])
    levels = int(level_of.max()) + 1
    if levels < 2:
        return Refusal(
            "ECMP",
            f"the medians of {len(level_of)} flows form one level: none is farther from the next"
            f" than {_APART:g} times the latencies within a flow",
        ), None
    if (alone := np.bincount(level_of).min()) < _FEWEST_FLOWS:
        return Refusal(
            "ECMP",
            f"{levels} levels of latency by flow, but one of them has {alone} flow only,"
            f" expected {_FEWEST_FLOWS}: another reason may slow one flow",
        ), None
    level = np.full(len(flows), -1)
    level[large] = level_of
    of_packet = level[number]
    if doubt := _doubt(series, of_packet, levels):
        return Refusal("ECMP", doubt), None
    medians = [int(np.median(series.latency_ns[of_packet == at])) for at in range(levels)]
    figures: dict[str, Figure] = {
        "levels": levels,
        "level_ns_p50": tuple(medians),
        "flows_by_level": tuple(map(int, np.bincount(level_of))),
        "spread_ns": int(spread_ns),
    }
    base_ns = np.array(
        [int(np.quantile(series.latency_ns[of_packet == at], 0.005)) for at in range(levels)]
    )
    # A packet of a flow too small to have a level is taken to be on the path next to it.
    nearest = np.abs(middle_ns[:, None] - np.array(medians)).argmin(axis=1)
    level[~large] = nearest[~large]
    return Finding("ECMP", figures, of_packet > 0), base_ns[level[number]]


def _quantiles_by(number: Numbers, values: Numbers, groups: int) -> tuple[Floats, Floats, Floats]:
    """Return the quartiles of values by group."""
    order = np.lexsort((values, number))
    ordered, counts = values[order], np.bincount(number, minlength=groups)
    starts = np.cumsum(counts) - counts
    low, middle, high = (
        ordered[starts + ((counts - 1) * share).astype(np.int64)].astype(float)
        for share in (0.25, 0.5, 0.75)
    )
    return low, middle, high


def _levels(middle_ns: Floats, within_ns: Floats) -> tuple[Numbers, float]:
    """Put flows on levels by their medians; also return the latencies' spread within a flow."""
    order = np.argsort(middle_ns)
    spread_ns = max(float(np.quantile(within_ns, 0.9)), 1.0)
    steps = np.diff(middle_ns[order]) > _APART * spread_ns
    level: Numbers = np.zeros(len(order), np.int64)
    level[order[1:]] = np.cumsum(steps)
    return level, spread_ns


def _doubt(series: Series, level: Numbers, levels: int) -> str | None:
    """Return what else than a path may make the levels differ."""
    if series.size_bytes is not None:
        sizes = [np.median(series.size_bytes[level == at]) for at in range(levels)]
        shared = all(
            np.isin(
                np.unique(series.size_bytes[level == at]), series.size_bytes[level == at - 1]
            ).any()
            for at in range(1, levels)
        )
        if not shared:
            listed = ", ".join(f"{size:g}" for size in sizes)
            return (
                f"flows of the {levels} levels differ in packet size, too ({listed} bytes): flows"
                " of one size would tell"
            )
    spans = [
        np.quantile(series.arrival_ns[level == at], [0.05, 0.95]).astype(float)
        for at in range(levels)
    ]
    for at in range(1, levels):
        (a, b), (c, d) = spans[at - 1], spans[at]
        if min(b, d) - max(a, c) < _OVERLAP * min(b - a, d - c):
            return (
                f"the {levels} levels are at different times: flows side by side would tell a path"
                " from a change"
            )
    return _one_behind_the_other(series, level, levels)


def _one_behind_the_other(series: Series, level: Numbers, levels: int) -> str | None:
    """Say that all packets leave in order, where those on a faster path would overtake others."""
    medians_ns = np.array([np.median(series.latency_ns[level == at]) for at in range(levels)])
    first, second = level[:-1], level[1:]
    ahead_ns = np.where(second < 0, 0, medians_ns[first] - medians_ns[second])
    may_overtake = (first > second) & (2 * np.diff(series.arrival_ns) < ahead_ns)
    chances = int(np.count_nonzero(may_overtake))
    if chances < _FEWEST_OVERTAKING:
        return None
    overtook = np.diff(series.depart_ns)[may_overtake] < 0
    if np.mean(overtook) >= _OVERTAKING:
        return None
    return (
        f"{np.mean(overtook):.0%} of {chances} packets of fast flows left before one of a slow flow"
        " that came just before: all wait for each other, on one path, and some flows are more work"
    )


def reordering(series: Series, by_flow: Answer) -> Answer:
    """Name paths that are chosen anew for each packet, so that packets overtake each other."""
    name = "reordering"
    overtaking = series.overtaking
    if overtaking * len(series.arrival_ns) < _FEWEST_OVERTAKING:
        return Refusal(
            name,
            f"{overtaking:.2%} of the packets overtake others of their flow"
            if overtaking
            else "no packet overtakes another of its flow",
        )
    if isinstance(by_flow, Finding):
        return Refusal(name, "paths are chosen by flow, and packets overtake within flows")
    bounds = divided(series.latency_ns, _LEAST_SHARE)
    if not len(bounds):
        return Refusal(
            name,
            f"{overtaking:.1%} of the packets overtake others of their flow, but their latencies"
            " form no levels: what delays each packet on its own has no pattern here",
        )
    level = np.searchsorted(bounds, series.latency_ns)
    shares = np.bincount(level, minlength=len(bounds) + 1) / len(level)
    stays, chance = _stays(series, level), float((shares**2).sum())
    if stays > max(_STAYS, (1 + chance) / 2):
        return Refusal(
            name,
            f"packets stay on one of {len(shares)} levels of latency ({stays:.0%} have that of the"
            " packet before): the path changes with time, not by packet",
        )
    if _told_by_size(series, level) > _BY_SIZE:
        return Refusal(
            name, f"the {len(shares)} levels of latency go with the sizes of packets, not paths"
        )
    medians = tuple(int(np.median(series.latency_ns[level == at])) for at in range(len(bounds) + 1))
    figures: dict[str, Figure] = {
        "levels": len(medians),
        "level_ns_p50": medians,
        "slower_share": float(1 - shares[0]),
        "overtaking_share": overtaking,
        "stays_share": stays,
        "stays_by_chance_share": chance,
    }
    return Finding(name, figures, level > 0)


def _stays(series: Series, level: Numbers) -> float:
    """The share of packets on the level of the packet before in their flow."""
    flow = np.zeros(len(level), np.int64) if series.flow is None else series.flow
    order = np.argsort(flow, kind="stable")
    same = np.diff(flow[order]) == 0
    alike = np.diff(level[order]) == 0
    return float(np.mean(alike[same])) if same.any() else 0.0


def _told_by_size(series: Series, level: Numbers) -> float:
    """How much sizes tell of levels: 0 for nothing, 1 for all."""
    if series.size_bytes is None:
        return 0.0
    _, size = np.unique(series.size_bytes, return_inverse=True)
    levels = int(level.max()) + 1
    counts = np.bincount(size * levels + level, minlength=(int(size.max()) + 1) * levels)
    told = counts.reshape(-1, levels).max(axis=1).sum() / len(level)
    usual = np.bincount(level).max() / len(level)
    return float((told - usual) / (1 - usual)) if usual < 1 else 0.0
