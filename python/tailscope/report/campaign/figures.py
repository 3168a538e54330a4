"""Figures in which the runs of a campaign stand beside each other, as the papers have them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from tailscope.report.campaign.matrix import FIGURE_OF
from tailscope.report.figures.common import LATENCY, NS_PER_US, dash_of
from tailscope.report.figures.latency import DOTTED, ODDS, quantile_layers
from tailscope.report.picture import Axis, Layer, Picture, sharing_axes
from tailscope.store.grid import HEADLINE
from tailscope.store.info import shown_as
from tailscope.units import percentile_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tailscope.report.campaign.material import CampaignMaterial, Combination
    from tailscope.store.run import Run

MOST_PANELS = 24
"""Of each combination; browsers take a while for more."""

_ALONE_PER_OVERLAID = 3
_MOST_LINES = 18
"""As many as colours and dashes can tell apart."""
_MOST_RUNS = 5
"""Of a combination: its repeats, and instances of its device."""
_PER_DECADE = 8
_MOST_TICKS = 5
"""Of a small figure."""

_COMPARED = {
    "rate": "rates",
    "dut": "devices",
    "dut_options": "options of the device",
    "platform": "platforms",
    "platform_options": "options of the platform",
    "kernel": "kernels",
    "boot": "optimised or not",
    "tune": "optimised or not",
    "burst": "bursts",
    "size": "sizes",
    "co_runners": "co-runners",
    "co_runner_platform": "platforms of co-runners",
}
"""What figures compare where a field varies."""

_COUNTED = {
    "rate": ("rate_pps", "packets per second"),
    "burst": ("burst", "burst [packets]"),
    "size": ("size_bytes", "frame [B]"),
    "flows": ("flows", "flows"),
    "instances": ("instances", "instances"),
}
"""Fields that are numbers: what the plan calls them, and an axis."""


@dataclass(frozen=True)
class Family:
    """Figures that share their axes, and are read together."""

    name: str
    """Of its files."""
    title: str
    note: str
    pictures: tuple[Picture, ...]
    left_out: int
    """How many more there would be."""


def families(material: CampaignMaterial, *, panels: int = MOST_PANELS) -> list[Family]:
    """Every figure that compares anything, and each combination by itself."""
    there = [each for each in material.combinations if each.runs]
    slugs = _slugs(material.varied)
    overlaid = [
        _overlaid(material, there, name, f"by-{slug}", -(-panels // _ALONE_PER_OVERLAID))
        for name, slug in slugs.items()
    ]
    counted = [_over_numbers(there, name, slug, panels) for name, slug in slugs.items()]
    # Where one variable is all, its values are in one figure already.
    is_told = len(overlaid) == 1 and overlaid[0] is not None
    each_alone = [] if is_told else [_each_alone(there, panels)]
    return [family for family in (*overlaid, *counted, *each_alone) if family is not None]


def _overlaid(
    material: CampaignMaterial,
    there: Sequence[Combination],
    name: str,
    files: str,
    panels: int,
) -> Family | None:
    """Percentiles with the values of a variable in one figure; a figure for each of the others."""
    compared = material.varied[name]
    groups = _by_others(there, name)
    shown = {values: each for values, each in groups.items() if len(each) > 1}
    pictures = []
    for number, (values, combinations) in enumerate([*shown.items()][:panels]):
        layers = [
            layer
            for each in combinations[:_MOST_LINES]
            for layer in _lines(
                each.runs, each.values[name], compared.index(each.values[name]), alone=False
            )
        ]
        pictures.append(
            _percentiles(f"{files}-{number + 1}", values, layers, combinations[:_MOST_LINES])
        )
    most = max((len(each) for each in shown.values()), default=0)
    cut = f" The first {_MOST_LINES} of {most} are drawn." if most > _MOST_LINES else ""
    title = f"Latency by percentile: {_compared(material, name)}"
    note = f"{_EACH_RUN} {DOTTED}{cut}"
    return _family(files, title, note, pictures, len(shown), LATENCY)


_EACH_RUN = "Each run is a line."


def _each_alone(there: Sequence[Combination], panels: int) -> Family | None:
    """Percentiles of each combination, in a small figure of its own."""
    pictures = [
        _percentiles(
            f"multiples-{number + 1}",
            tuple(each.values.items()),
            _lines(each.runs, "", 0, alone=True),
            [each],
        )
        for number, each in enumerate(there[:panels])
    ]
    note = f"{_EACH_RUN} {DOTTED}"
    return _family("multiples", "Each combination", note, pictures, len(there), LATENCY)


def _over_numbers(there: Sequence[Combination], name: str, slug: str, panels: int) -> Family | None:
    """Quantiles over a variable that is a number; a figure for each quantile."""
    number = _number_of(name)
    if number is None or any(number(each) is None for each in there):
        return None
    groups = {key: found for key, found in _by_others(there, name).items() if len(found) > 1}
    lines = [*groups.items()][:_MOST_LINES]
    at = sorted({number(each) or 0.0 for each in there})
    ticks = tuple(at) if len(at) <= _MOST_TICKS else ()
    x = Axis(_COUNTED.get(name, (name, name))[1], slug, "auto", ticks=ticks)
    pictures: list[Picture] = []
    for q in HEADLINE:
        layers = []
        for colour, (values, combinations) in enumerate(lines):
            layers += _over(combinations, q, number, _said(values), colour)
        if layers:
            about = "median" if q == HEADLINE[0] else percentile_name(q)
            pictures.append(
                Picture(f"over-{slug}-{len(pictures) + 1}", about, "", x, LATENCY, (*layers,))
            )
    cut = (
        f" The first {_MOST_LINES} of {len(groups)} lines are drawn."
        if len(groups) > _MOST_LINES
        else ""
    )
    note = (
        "Each run with its 95 % interval; the line joins medians of runs. Only quantiles that"
        f" all runs of a point support.{cut}"
    )
    title = f"Latency over {name}"
    found = _family(f"over-{slug}", title, note, pictures[:panels], len(pictures), LATENCY, x)
    return None if not groups else found


def _over(
    combinations: Sequence[Combination],
    q: float,
    number: Callable[[Combination], float | None],
    label: str,
    colour: int,
) -> list[Layer]:
    """A quantile by number: a line of medians, and each run."""
    figure = FIGURE_OF[q]
    supported = [
        each
        for each in combinations
        if all(run.summary[f"{figure}_supported"] for run in each.runs)
    ]
    in_order = sorted(supported, key=lambda each: number(each) or 0)
    if not in_order:
        return []
    at = np.array([number(each) for each in in_order], np.float64)
    value = [_us(run.summary[figure] for run in each.runs) for each in in_order]
    middle = {"x": at, "y": np.array([np.median(each) for each in value])}
    runs = [run for each in in_order for run in each.runs]
    points = {
        "x": np.repeat(at, [len(each) for each in value]),
        "y": np.concatenate(value),
        "low": _us(run.summary[f"{figure}_ci_low"] for run in runs),
        "high": _us(run.summary[f"{figure}_ci_high"] for run in runs),
    }
    return [
        Layer("line", label, "median of runs", middle, label, colour, dash_of(colour)),
        Layer("points", label, "runs", points, label, colour),
    ]


def _us(values: object) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    found = [np.nan if value is None else value for value in values]  # type: ignore[attr-defined]
    return np.array(found, np.float64) / NS_PER_US


def _number_of(name: str) -> Callable[[Combination], float | None] | None:
    """Return a function that reads a variable as a number, or None if it cannot be one."""
    if name in _COUNTED:
        field = _COUNTED[name][0]
        return lambda each: float(getattr(each.runs[0].info.plan, field))
    if "_options." not in name:
        return None

    def read(each: Combination) -> float | None:
        try:
            return float(each.values[name])
        except ValueError:
            return None

    return read


def _lines(runs: Sequence[Run], label: str, colour: int, *, alone: bool) -> list[Layer]:
    """The percentiles of runs, in one colour; with their interval where they are few."""
    found = []
    for run in runs[:_MOST_RUNS]:
        for layer in quantile_layers(run, shown_as(label, run.info), colour, dash_of(colour)):
            columns = dict(layer.columns)
            if alone or len(runs) > 1:
                del columns["low"], columns["high"]
            kept = _thinned(columns["x"])
            found.append(
                replace(layer, columns={role: each[kept] for role, each in columns.items()})
            )
    return found


def _thinned(odds: np.ndarray[tuple[int], np.dtype[np.float64]]) -> list[int]:
    """Places to keep: some of each decade, those that have a name, the ends."""
    steps = np.floor(np.log10(odds) * _PER_DECADE).astype(int)
    first = [next(group)[0] for _, group in groupby(enumerate(steps), key=lambda each: each[1])]
    named = [int(np.abs(odds * (1 - q) - 1).argmin()) for q in HEADLINE]
    return sorted({*first, *named, 0, len(odds) - 1})


def _by_others(
    there: Sequence[Combination], name: str
) -> dict[tuple[tuple[str, str], ...], list[Combination]]:
    """Combinations by the values of all variables but one."""
    found: dict[tuple[tuple[str, str], ...], list[Combination]] = {}
    for each in there:
        others = tuple(pair for pair in each.values.items() if pair[0] != name)
        found.setdefault(others, []).append(each)
    return found


def _percentiles(
    name: str,
    values: Sequence[tuple[str, str]],
    layers: Sequence[Layer],
    combinations: Sequence[Combination],
) -> Picture:
    most = max(len(each.runs) for each in combinations)
    note = ""
    if most > _MOST_RUNS:
        note = f"The first {_MOST_RUNS} of {most} runs are drawn."
    return Picture(name, _said(values), note, ODDS, LATENCY, tuple(layers))


def _family(
    name: str,
    title: str,
    note: str,
    pictures: Sequence[Picture],
    wanted: int,
    y: Axis,
    x: Axis = ODDS,
) -> Family | None:
    if not any(picture.layers for picture in pictures):
        return None
    shared = sharing_axes(pictures, x, y)
    return Family(name, title, note, shared, wanted - len(pictures))


def _said(values: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values)


def _compared(material: CampaignMaterial, name: str) -> str:
    """Name what is compared, after the name of the variable if that is a different one."""
    written = material.content.experiment.vary.get(name)
    fields: Mapping[str, object] = {name.partition(".")[0]: None}
    if isinstance(written, dict):
        fields = {field: None for each in written.values() for field in each or ()}
    said = list(dict.fromkeys(_COMPARED[field] for field in fields if field in _COMPARED))
    if name in _COMPARED or not said:
        return said[0] if said else name
    return f"{name} ({', '.join(said)})"


def _slugs(names: Iterable[str]) -> dict[str, str]:
    """Variables as parts of names of files, and of columns."""
    found: dict[str, str] = {}
    for name in names:
        slug = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_") or "variable"
        found[name] = f"{slug}_{len(found) + 1}" if slug in found.values() else slug
    return found
