"""Figures as files: PNG, SVG and PDF, for a screen or for a paper."""

from __future__ import annotations

import io
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from tailscope.report.formats import FORMATS, SCREEN
from tailscope.report.picture import difference_ticks, gathered, spread, table_of
from tailscope.store.atomic import replacing, write_text
from tailscope.units import percentile_name, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from typing import IO, Literal

    from matplotlib.axes import Axes
    from matplotlib.axis import Axis as DrawnAxis
    from numpy.typing import NDArray

    from tailscope.report.formats import Style
    from tailscope.report.picture import Axis, Layer, Picture

    Floats = NDArray[np.float64]

_VECTORS_UP_TO = 4_000
"""More marks than these are drawn as pixels."""

_DASHES = {"solid": "-", "dashed": "--", "dotted": ":", "dashdot": "-."}
_MARKERS = ".x+s^v"
_FEW = 40
"""Marks that are drawn large."""
_FEW_DECADES = 300
_LANE = 0.7
_LANE_IN, _LINE_IN = 0.2, 0.17
_NUMBER = FuncFormatter(lambda value, _: f"{value:,.10g}")
_DURATION = FuncFormatter(lambda us, _: tick_text(us))


def write_pictures(
    pictures: Sequence[Picture], folder: Path, formats: Sequence[str], style: Style = SCREEN
) -> list[Path]:
    """Write figures, and beside each a CSV of what it shows."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for picture in pictures:
        paths = [folder / f"{picture.name}.{kind}" for kind in formats]
        write_grid(paths, [picture], style=style)
        written += paths
        path = folder / f"{picture.name}.csv"
        write_text(path, table_of(picture))
        written.append(path)
    return written


def write_grid(
    paths: Sequence[Path],
    pictures: Sequence[Picture],
    *,
    columns: int = 1,
    title: str = "",
    style: Style = SCREEN,
) -> None:
    """Write figures as one drawing, side by side and one above the other."""
    with _drawn(pictures, columns, title, style) as canvas:
        for path in paths:
            kind = path.suffix.lower().removeprefix(".")
            assert kind in FORMATS, path
            with replacing(path) as file:
                _save(canvas, file, kind)


def grid_svg(
    pictures: Sequence[Picture], *, columns: int = 1, title: str = "", style: Style = SCREEN
) -> bytes:
    """Draw figures as `write_grid`, as SVG."""
    file = io.BytesIO()
    with _drawn(pictures, columns, title, style) as canvas:
        _save(canvas, file, "svg")
    return file.getvalue()


@contextmanager
def _drawn(pictures: Sequence[Picture], columns: int, title: str, style: Style) -> Iterator[Canvas]:
    """The drawing, while the settings of its style hold: saving it takes some of them."""
    rows = -(-len(pictures) // columns)
    with mpl.rc_context(style.settings):
        lanes = max(len(picture.y.names) for picture in pictures)
        labels = dict.fromkeys(label for picture in pictures for label in picture.legend)
        height_in = rows * max(style.height_in, _LANE_IN * lanes + 0.9)
        size = style.width_in, height_in + _LINE_IN * len(labels)
        canvas = Canvas(figsize=size, layout="constrained")
        grid = canvas.subplots(rows, columns, squeeze=False)
        for axes, picture in zip(grid.flat, pictures, strict=False):
            _draw(axes, picture, style, narrow=columns > 1)
            # Where several share a drawing, no caption can say which is which.
            if style.titled or len(pictures) > 1:
                axes.set_title(printable(picture.title), loc="left")
        for axes in grid.flat[len(pictures) :]:
            axes.set_axis_off()
        if labels:
            _add_legend(canvas, pictures, list(labels), style)
        if title:
            canvas.suptitle(printable(title), x=0.01, ha="left", fontsize="medium")
        yield canvas


def _save(canvas: Canvas, file: IO[bytes], kind: str) -> None:
    # Not the time at which it is written: the same data is the same file.
    dated = {"pdf": "CreationDate", "svg": "Date"}.get(kind)
    canvas.savefig(file, format=kind, dpi=200, metadata={dated: None} if dated else None)


def _draw(axes: Axes, picture: Picture, style: Style, *, narrow: bool) -> None:
    rasterized = sum(len(layer.columns["x"]) for layer in picture.layers) > _VECTORS_UP_TO
    axes.grid(visible=True)
    axes.set_axisbelow(True)
    for direction, axis, set_scale in (
        (picture.x, axes.xaxis, axes.set_xscale),
        (picture.y, axes.yaxis, axes.set_yscale),
    ):
        if direction.linear_up_to is not None and direction.scale == "log":
            to_place, to_value = _ways(direction.linear_up_to)
            set_scale("function", functions=(to_place, to_value))
        else:
            set_scale(direction.scale)
        _label(axis, direction)
    for layer in picture.keyed:
        _draw_layer(axes, _within(picture.y, layer), style, rasterized=rasterized)
    if picture.x.limits is not None and picture.y.limits is not None:
        axes.update_datalim(list(zip(picture.x.limits, picture.y.limits, strict=True)))
    axes.autoscale_view()
    for direction, axis in ((picture.x, axes.xaxis), (picture.y, axes.yaxis)):
        low, high = axis.get_view_interval()
        is_log = direction.scale == "log" and direction.linear_up_to is None
        if is_log and not direction.ticks and high < _FEW_DECADES * low:
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    if picture.x.starts_at_zero:
        axes.set_xlim(left=0)
    if picture.y.starts_at_zero:
        axes.set_ylim(bottom=0)
    if picture.y.linear_up_to is not None:
        axes.axhline(0, linewidth=0.8, color=style.settings.get("axes.edgecolor", "black"))
    if picture.x.is_odds:
        _name_percentiles(axes, picture, narrow=narrow)


def _within(direction: Axis, layer: Layer) -> Layer:
    """A layer of differences, whose ends without a bound reach the edge."""
    if direction.linear_up_to is None or direction.limits is None:
        return layer
    ends = {role: np.clip(layer.columns[role], *direction.limits) for role in ("low", "high")}
    return replace(layer, columns={**layer.columns, **ends})


def _ways(linear_up_to: float) -> tuple[Callable[[Floats], Floats], Callable[[Floats], Floats]]:
    """Return mappings from values to places on a logarithmic axis of differences, and back."""
    return partial(spread, linear_up_to=linear_up_to), partial(gathered, linear_up_to=linear_up_to)


def tick_text(us: float) -> str:
    """Write a tick of an axis of durations, in the unit that suits it.

    Examples
    --------
    >>> [tick_text(us) for us in (0.5, 20, 10_000, 0)]
    ['500 ns', '20 µs', '10 ms', '0']
    """
    for size, unit in ((1e6, "s"), (1e3, "ms"), (1, "µs"), (1e-3, "ns")):
        if abs(us) >= size:
            return f"{us / size:.10g} {unit}"
    return f"{us:.10g}"


def _label(axis: DrawnAxis, direction: Axis) -> None:
    axis.set_label_text(direction.quantity)
    if direction.names:
        axis.set_major_locator(FixedLocator(range(len(direction.names))))
        axis.set_major_formatter(FuncFormatter(lambda at, _: printable(direction.names[int(at)])))
        return
    if direction.ticks:
        axis.set_major_locator(FixedLocator(direction.ticks))
        axis.set_minor_locator(NullLocator())
    elif direction.linear_up_to is not None and direction.scale == "log":
        axis.set_major_locator(FixedLocator(difference_ticks(direction)))
    elif direction.scale == "log":
        axis.set_major_locator(LogLocator(numticks=12))
        axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(_DURATION if direction.is_duration else _NUMBER)


def _draw_layer(axes: Axes, layer: Layer, style: Style, *, rasterized: bool) -> None:
    columns = layer.columns
    colour = style.colours[layer.colour % len(style.colours)]
    x = columns["x"]
    if layer.mark in ("points", "crosses"):
        axes.plot(
            x,
            columns["y"],
            _marker(layer, style),
            markersize=mpl.rcParams["lines.markersize"] * (2 if len(x) <= _FEW else 1),
            markeredgewidth=0.7,
            color=colour,
            rasterized=rasterized,
        )
        if "low" in columns:
            axes.vlines(
                x,
                columns["low"],
                columns["high"],
                linewidth=1,
                color=colour,
                rasterized=rasterized,
            )
    elif layer.mark == "cells":
        found = PolyCollection(
            _corners(x, columns["x_end"], columns["y"], columns["y_end"]),
            array=columns["value"],
            cmap="viridis_r",
            norm=LogNorm(1, max(columns["value"].max(), 2)),
            rasterized=True,
        )
        axes.add_collection(found)
        scale = axes.figure.colorbar(found, ax=axes, label="packets", pad=0.01)
        scale.formatter = _NUMBER
        scale.update_ticks()
    elif layer.mark in ("spans", "bars"):
        left, right = (x, columns["x_end"]) if layer.mark == "spans" else (np.zeros(len(x)), x)
        corners = _corners(left, right, columns["y"] - _LANE / 2, columns["y"] + _LANE / 2)
        # The edge makes an interval visible that is shorter than a pixel.
        axes.add_collection(
            PolyCollection(
                corners, facecolor=colour, edgecolor=colour, linewidth=0.4, rasterized=rasterized
            )
        )
    else:
        steps: dict[str, Literal["pre", "post"]] = {"quantiles": "pre", "steps": "post"}
        step = steps.get(layer.mark)
        drawn = f"steps-{step}" if step else "default"
        dash = _DASHES[_dash(layer, style)]
        axes.plot(
            x,
            columns["y"],
            linestyle=dash,
            drawstyle=drawn,
            color=colour,
            rasterized=rasterized,
        )
        if "low" in columns:
            axes.fill_between(
                x,
                columns["low"],
                columns["high"],
                step=step,
                alpha=0.2,
                linewidth=0,
                color=colour,
                rasterized=rasterized,
            )


def _corners(left: Floats, right: Floats, bottom: Floats, top: Floats) -> Any:
    return np.stack(
        [
            np.stack([left, bottom], 1),
            np.stack([right, bottom], 1),
            np.stack([right, top], 1),
            np.stack([left, top], 1),
        ],
        1,
    )


def _marker(layer: Layer, style: Style) -> str:
    if layer.mark == "crosses":
        return "x"
    return _MARKERS[layer.colour % len(_MARKERS)] if style.distinct else "."


def _dash(layer: Layer, style: Style) -> str:
    if layer.dash == "solid" and style.distinct:
        return ("solid", "dashed", "dashdot")[layer.colour % 3]
    return layer.dash


def _name_percentiles(axes: Axes, picture: Picture, *, narrow: bool) -> None:
    """Say 10,000 and p99.99: the axis is for those who calculate, its names for all others."""
    axes.set_xlim(1, max(picture.last_x, 10.0))
    axes.xaxis.set_major_locator(FixedLocator([1.0, *picture.odds]))
    axes.xaxis.set_minor_locator(NullLocator())
    if narrow:
        axes.xaxis.set_major_locator(FixedLocator(picture.odds))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda odds, _: percentile_name(1 - 1 / odds)))
        axes.tick_params(axis="x", labelrotation=45)
        return
    names = FuncFormatter(lambda odds, _: f"{odds:,.0f}\n{percentile_name(1 - 1 / odds)}")
    axes.xaxis.set_major_formatter(names)


def _add_legend(
    canvas: Canvas, pictures: Sequence[Picture], labels: Sequence[str], style: Style
) -> None:
    first = {
        label: next(
            layer for picture in pictures for layer in picture.keyed if layer.label == label
        )
        for label in labels
    }
    handles = []
    for layer in first.values():
        colour = style.colours[layer.colour % len(style.colours)]
        marker, line = "", ""
        if layer.mark in ("points", "crosses"):
            marker = _marker(layer, style)
        elif layer.mark in ("spans", "bars", "cells"):
            marker = "s"
        else:
            line = _DASHES["solid" if layer.dash == "dotted" else _dash(layer, style)]
        handles.append(Line2D([], [], color=colour, marker=marker, linestyle=line))
    # A label that begins with an underscore would be left out.
    texts = [f"\u200b{printable(label)}" for label in labels]
    canvas.legend(
        handles,
        texts,
        loc="outside lower left",
        fontsize="small",
        frameon=False,
        labelspacing=0.3,
    )
