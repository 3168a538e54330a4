"""Drawing: the same figures for a page and for files."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from tailscope.report.curves import FIGURES, UNSUPPORTED
from tailscope.report.drawing import COLOURS, POINT, SETTINGS, VECTORS_UP_TO, WIDTH_IN, save
from tailscope.store.atomic import write_text
from tailscope.text import percentile_name, printable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from tailscope.report.curves import Curve, Figure
    from tailscope.store.run import Run

__all__ = ["draw_svg", "write_figures"]

_DASHES = ("-", "--", "-.")
_WIDE = 30.0
_HEIGHT_IN, _LINE_IN = 3.7, 0.18


def draw_svg(figure: Figure, runs: Sequence[Run]) -> str:
    """Draw a figure of some runs as SVG.

    Parameters
    ----------
    figure : Figure
    runs : sequence of Run
    """
    with mpl.rc_context(SETTINGS):
        text = io.StringIO()
        _drawn(figure, runs, title=False).savefig(
            text, format="svg", transparent=True, metadata={"Date": None}
        )
    return text.getvalue()


def write_figures(runs: Sequence[Run], folder: Path, formats: Sequence[str]) -> list[Path]:
    """Write every figure, and beside it a CSV of what it shows.

    Parameters
    ----------
    runs : sequence of Run
    folder : Path
        Made when it is not there; files of the same name are replaced.
    formats : sequence of {"png", "svg", "pdf"}

    Returns
    -------
    list of Path
        What was written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with mpl.rc_context(SETTINGS):
        for figure in FIGURES:
            canvas = _drawn(figure, runs, title=True)
            for kind in formats:
                path = folder / f"{figure.name}.{kind}"
                save(canvas, path, kind)
                written.append(path)
            path = folder / f"{figure.name}.csv"
            write_text(path, _csv(figure, runs))
            written.append(path)
    return written


def _csv(figure: Figure, runs: Sequence[Run]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    y = figure.columns[1]
    writer.writerow(["run", "part", *figure.columns, f"{y}_ci_low", f"{y}_ci_high"])
    for run in runs:
        for curve in figure.curves(run):
            unknown = [""] * len(curve.x)
            columns = [
                unknown if each is None else ["" if np.isnan(v) else v for v in each.tolist()]
                for each in (curve.x, curve.y, curve.low, curve.high)
            ]
            rows = zip(*columns, strict=True)
            writer.writerows([printable(run.label), curve.part, *row] for row in rows)
    return text.getvalue()


def _drawn(figure: Figure, runs: Sequence[Run], *, title: bool) -> Canvas:
    drawn = [figure.curves(run) for run in runs]
    by_part = figure.coloured_by_part and len(runs) == 1 and len(drawn[0]) > 1
    labels = [curve.part for curve in drawn[0]] if by_part else [run.label for run in runs]
    legend_in = _LINE_IN * len(labels) if len(labels) > 1 else 0.0
    height_in = _HEIGHT_IN + legend_in
    canvas = Canvas(figsize=(WIDTH_IN, height_in))
    axes = canvas.subplots()
    canvas.subplots_adjust(
        left=0.11,
        right=0.98,
        bottom=(0.65 + legend_in) / height_in,
        top=1 - (0.32 if title else 0.1) / height_in,
    )
    curves = [curve for parts in drawn for curve in parts]
    rasterized = sum(len(curve.x) for curve in curves) > VECTORS_UP_TO
    for index, parts in enumerate(drawn):
        for at, curve in enumerate(parts):
            colour = at if by_part else index
            _draw(axes, figure, curve, colour, rasterized=rasterized)
    _dress(axes, figure, curves)
    if title:
        axes.set_title(figure.title, loc="left")
    if len(labels) > 1:
        _add_legend(canvas, labels, points=by_part)
    return canvas


def _draw(axes: Axes, figure: Figure, curve: Curve, index: int, *, rasterized: bool) -> None:
    look: dict[str, Any] = {"color": COLOURS[index % len(COLOURS)], "rasterized": rasterized}
    if figure.style == "points":
        marker = "x" if curve.part == "post" else "."
        axes.plot(curve.x, curve.y, marker, **POINT, **look)
        return
    step: Literal["pre", "post"] = "pre" if figure.style == "quantiles" else "post"
    axes.plot(curve.x, curve.y, linestyle=_dashes(curve, index), drawstyle=f"steps-{step}", **look)
    if curve.low is not None and curve.high is not None:
        axes.fill_between(curve.x, curve.low, curve.high, step=step, alpha=0.2, linewidth=0, **look)


def _dashes(curve: Curve, index: int) -> str:
    by_part = {UNSUPPORTED: ":", "post": "--"}
    return by_part.get(curve.part) or _DASHES[index // len(COLOURS) % len(_DASHES)]


def _dress(axes: Axes, figure: Figure, curves: Sequence[Curve]) -> None:
    axes.set_xlabel(figure.x_label)
    axes.set_ylabel(figure.y_label)
    axes.grid(visible=True)
    axes.set_axisbelow(True)
    for axis, set_scale, scale, values in (
        (axes.xaxis, axes.set_xscale, figure.x_scale, [curve.x for curve in curves]),
        (axes.yaxis, axes.set_yscale, figure.y_scale, [curve.y for curve in curves]),
    ):
        shown = np.concatenate(values) if values else np.array([])
        shown = shown[shown > 0]
        wide = len(shown) > 0 and shown.max() >= _WIDE * shown.min()
        if (scale == "log" and len(shown) > 0) or (scale == "auto" and wide):
            set_scale("log")
            axis.set_major_locator(LogLocator(numticks=12))
            axis.set_minor_formatter(NullFormatter())
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    if figure.name == "percentiles":
        _name_percentiles(axes, curves)
    if figure.name == "rate":
        axes.set_ylim(bottom=0)


def _name_percentiles(axes: Axes, curves: Sequence[Curve]) -> None:
    """Say 10,000 and p99.99: the axis is for those who calculate, its names for all others."""
    last = max((curve.x.max() for curve in curves), default=10.0)
    ticks = [1.0, 2.0, *(10.0**power for power in range(1, 10) if 10**power <= last)]
    axes.set_xlim(1, max(last, 10.0))
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    names = FuncFormatter(lambda odds, _: f"{odds:,.0f}\n{percentile_name(1 - 1 / odds)}")
    axes.xaxis.set_major_formatter(names)


def _add_legend(canvas: Canvas, labels: Sequence[str], *, points: bool) -> None:
    handles = [
        Line2D(
            [],
            [],
            color=COLOURS[index % len(COLOURS)],
            linestyle="" if points else _DASHES[index // len(COLOURS) % len(_DASHES)],
            marker="." if points else None,
        )
        for index in range(len(labels))
    ]
    # A label that begins with an underscore would be left out.
    texts = [f"\u200b{printable(label)}" for label in labels]
    canvas.legend(
        handles, texts, loc="lower left", fontsize="small", frameon=False, labelspacing=0.3
    )
