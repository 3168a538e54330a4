"""Figures as data: files, pages and CSV are made of the same arrays."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tailscope.report.formats import COLOURS, OTHERS_COLOUR
from tailscope.units import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

Mark = Literal["line", "steps", "quantiles", "points", "crosses", "spans", "cells", "bars"]
Dash = Literal["solid", "dashed", "dotted", "dashdot"]
Scale = Literal["linear", "log", "auto"]

MOST_KEYS = 7
"""Entries of a legend: more than these nobody tells apart."""
OTHERS = "other"

_MICROSECONDS = " [µs]"
_WIDE = 30.0
_MOST_TICKS = 5
_ROLES = ("x", "x_end", "y", "y_end", "low", "high", "value")


@dataclass(frozen=True)
class Axis:
    """One direction of a figure."""

    label: str
    """What it shows, with its unit."""
    column: str
    """The same as the name of a column."""
    scale: Scale = "linear"
    """"auto" is log where the values span a factor of 30 or more."""
    names: tuple[str, ...] = ()
    """What stands at 0, 1, 2, … where the axis counts things rather than measures them."""
    starts_at_zero: bool = False
    """True if zero is always shown."""
    is_time: bool = False
    """True if it is the time of the run: such axes of a page move together."""
    is_odds: bool = False
    """True if it shows 1 / (1 - q), and is to be named by percentiles."""
    limits: tuple[float, float] | None = None
    """The lowest and the highest value to show; None for those that are there."""
    ticks: tuple[float, ...] = ()
    """What it names; empty where that follows from what is shown."""
    linear_up_to: float | None = None
    """Of an axis of differences, which shows zero and both sides of it: up to where its logarithmic
    scale is linear."""

    @property
    def quantity(self) -> str:
        """What it shows, without its unit if that is one of time that suits some values only."""
        return self.label.removesuffix(_MICROSECONDS)

    @property
    def is_duration(self) -> bool:
        """True if its values are durations, in microseconds."""
        return self.label.endswith(_MICROSECONDS)


@dataclass(frozen=True)
class Layer:
    """Marks of one kind, of one run or of a part of it."""

    mark: Mark
    """``line`` joins points; ``steps`` hold from their x on, ``quantiles`` up to their x;
    ``points`` and ``crosses`` stand alone; ``spans`` last from x to x_end at the height y;
    ``cells`` reach from x to x_end and from y to y_end, coloured by value; ``bars`` lie at the
    height y and are x long."""
    run: str
    """Name of the run."""
    part: str
    """Name of the part."""
    columns: Mapping[str, NDArray[Any]]
    """``x``, ``y``, and what the mark needs beside them; ``low`` and ``high`` are the ends of a 95
    % interval of ``y``, nan where there is none."""
    label: str = ""
    """Label in the legend; layers of one label are one."""
    colour: int = 0
    """Index of the colour, from 0."""
    dash: Dash = "solid"


@dataclass(frozen=True)
class Picture:
    """A figure: a name, what it means, two axes, and what is drawn."""

    name: str
    """Name of its files."""
    title: str
    note: str
    """Note for readers."""
    x: Axis
    y: Axis
    layers: tuple[Layer, ...]
    value_column: str = "value"
    """Name of the column of the cells' values."""
    named: tuple[str, ...] = ()
    """The labels that the legend names: all, or the first of them; the rest is `OTHERS`."""
    is_predicted: bool = False
    """True if it shows a prediction."""
    legend: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        labels = tuple(dict.fromkeys(layer.label for layer in self.layers if layer.label))
        if not self.named:
            fits = len(labels) <= MOST_KEYS
            object.__setattr__(self, "named", labels if fits else labels[: MOST_KEYS - 1])
        keys = tuple(dict.fromkeys(layer.label for layer in self.keyed if layer.label))
        object.__setattr__(self, "legend", keys if len(keys) > 1 else ())
        object.__setattr__(self, "x", _resolved(self.x, self._values("x", "x_end")))
        object.__setattr__(self, "y", _resolved(self.y, self._values("y", "y_end")))

    @property
    def keyed(self) -> tuple[Layer, ...]:
        """The layers with what the legend calls them: those that it does not name have one grey."""
        return tuple(map(self._keyed, self.layers))

    def _keyed(self, layer: Layer) -> Layer:
        if not layer.label or layer.label in self.named:
            return layer
        return replace(layer, label=OTHERS, colour=COLOURS.index(OTHERS_COLOUR))

    @property
    def last_x(self) -> float:
        """The highest x that is shown."""
        if self.x.limits is not None:
            return self.x.limits[1]
        return max(float(each.max()) for each in self._values("x") if len(each))

    @property
    def odds(self) -> list[float]:
        """Return the ticks of an axis of odds, from p50 on."""
        return [2.0, *(10.0**power for power in range(1, 10) if 10**power <= self.last_x)]

    def _values(self, *roles: str) -> list[Floats]:
        return [
            layer.columns[role] for layer in self.layers for role in roles if role in layer.columns
        ]


def spread(values: Floats, linear_up_to: float) -> Floats:
    """Map values to a logarithmic axis of differences: linear near zero, which has its place."""
    places: Floats = np.sign(values) * np.log1p(np.abs(values) / linear_up_to) / np.log(10)
    return places


def gathered(places: Floats, linear_up_to: float) -> Floats:
    """The values at such places."""
    values: Floats = np.sign(places) * np.expm1(np.abs(places) * np.log(10)) * linear_up_to
    return values


def difference_ticks(axis: Axis) -> list[float]:
    """Return the ticks of a logarithmic axis of differences: powers of ten around zero."""
    assert axis.linear_up_to is not None and axis.limits is not None, "an axis of differences"
    first = round(np.log10(axis.linear_up_to)) + 1
    last = max(first, int(np.log10(max(map(abs, axis.limits)))))
    step = 1 + (last - first) // _MOST_TICKS
    powers = [10.0**power for power in range(first, last + 1, step)]
    return [*(-each for each in reversed(powers)), 0.0, *powers]


def sharing_axes(pictures: Sequence[Picture], x: Axis, y: Axis) -> tuple[Picture, ...]:
    """Let figures stand beside each other: same scales, same limits."""
    if not pictures:
        return ()
    layers = tuple(layer for picture in pictures for layer in picture.layers)
    whole = replace(pictures[0], x=x, y=y, layers=layers)
    x = replace(whole.x, limits=_limits(whole.x, whole._values("x", "x_end")))
    y = replace(whole.y, limits=_limits(whole.y, whole._values("y", "y_end", "low", "high")))
    return tuple(replace(picture, x=x, y=y, named=whole.named) for picture in pictures)


def _limits(axis: Axis, values: Sequence[Floats]) -> tuple[float, float] | None:
    shown = np.concatenate([np.zeros(0), *values])
    is_log = axis.scale == "log" and axis.linear_up_to is None
    shown = shown[np.isfinite(shown) & ((shown > 0) | (not is_log))]
    return (float(shown.min()), float(shown.max())) if len(shown) else None


def _resolved(axis: Axis, values: Sequence[Floats]) -> Axis:
    """Decide on a scale; a logarithmic one takes a value above zero, but for differences."""
    if axis.linear_up_to is not None:
        return axis
    shown = np.concatenate([np.zeros(0), *values])
    shown = shown[shown > 0]
    if not len(shown):
        return replace(axis, scale="linear")
    if axis.scale == "auto":
        return replace(axis, scale="log" if shown.max() >= _WIDE * shown.min() else "linear")
    return axis


def table_of(picture: Picture) -> str:
    """Return the data of a figure as CSV: a row for each mark."""
    names = {
        "x": picture.x.column,
        "x_end": f"{picture.x.column}_end",
        "y": picture.y.column,
        "y_end": f"{picture.y.column}_end",
        "low": f"{picture.y.column}_ci_low",
        "high": f"{picture.y.column}_ci_high",
        "value": picture.value_column,
    }
    there = [role for role in _ROLES if any(role in layer.columns for layer in picture.layers)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["run", "part", *(names[role] for role in there)])
    for layer in picture.layers:
        count = len(layer.columns["x"])
        columns = [_cells(picture, layer, role, count) for role in there]
        rows = zip(*columns, strict=True)
        writer.writerows([printable(layer.run), printable(layer.part), *row] for row in rows)
    return text.getvalue()


def _cells(picture: Picture, layer: Layer, role: str, count: int) -> list[object]:
    values = layer.columns.get(role)
    if values is None:
        return [""] * count
    names = {"x": picture.x.names, "y": picture.y.names}.get(role)
    if names:
        return [printable(names[int(value)]) for value in values]
    return ["" if np.isnan(value) else value for value in np.asarray(values, float).tolist()]
