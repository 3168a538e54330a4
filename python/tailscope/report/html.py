"""A page that stands on its own: no script, no request, one file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tailscope.report.curves import FIGURES
from tailscope.report.drawing import GRID, INK
from tailscope.report.figures import draw_svg
from tailscope.text import printable
from tailscope.wording import (
    BOUND_NOTE,
    cause_rows,
    count_rows,
    energy_rows,
    explained_text,
    has_bounds,
    instrument_rows,
    latency_rows,
    provenance,
    sentence,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope.store.run import Run
    from tailscope.wording import Row

__all__ = ["page"]

_PROLOGUE = re.compile(r"^.*?(?=<svg)", re.DOTALL)
_METADATA = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)
_SIZE = re.compile(r'(<svg [^>]*?) width="[^"]*" height="[^"]*"|(<svg [^>]*?) height="[^"]*"')
_IDENTIFIER = re.compile(r'((?:\bid|href)="#?|url\(#)(?!data:)')


def page(runs: Sequence[Run]) -> str:
    """Draw runs as one HTML page.

    Parameters
    ----------
    runs : sequence of Run
        At least one; several share their figures.
    """
    environment = Environment(
        loader=PackageLoader("tailscope", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["printable"] = printable
    return environment.get_template("report.html.j2").render(
        runs=[_about(run) for run in runs],
        tables={
            "Packets": _side_by_side([count_rows(run.summary) for run in runs]),
            "Latency": _side_by_side([latency_rows(run.summary) for run in runs]),
            "Instrument": _side_by_side([instrument_rows(run.summary, run.info) for run in runs]),
            "Energy": _side_by_side([energy_rows(run.info) for run in runs]),
        },
        bound_note=BOUND_NOTE if any(has_bounds(run.summary) for run in runs) else "",
        figures=[(figure, _inline(draw_svg(figure, runs), figure.name)) for figure in FIGURES],
    )


def _about(run: Run) -> dict[str, Any]:
    host = {name.replace("_", " "): value for name, value in run.info["host"].items()}
    return {
        "label": run.label,
        "causes": None if run.explanation is None else cause_rows(run.explanation),
        "explained": "" if run.explanation is None else explained_text(run.explanation),
        "sentence": sentence(run.summary),
        "warnings": [*run.info.get("warnings", ()), *run.warnings],
        "partial": run.info.get("partial", ()),
        "provenance": {
            **provenance(run.summary, run.info),
            "tailscope": run.info["tailscope_version"],
        },
        "host": {name: str(value) for name, value in host.items() if value is not None},
    }


def _side_by_side(rows: Sequence[list[Row]]) -> dict[str, list[Row | None]]:
    """Arrange rows by label: one cell for each run, None where a run has no such row."""
    columns = [{row.label.rstrip(" *"): row for row in run} for run in rows]
    labels = dict.fromkeys(label for column in columns for label in column)
    return {label: [column.get(label) for column in columns] for label in labels}


def _inline(svg: str, name: str) -> Markup:
    """Fit a drawing into a page: its identifiers unique, its size free, its colours the page's.

    The drawing is our own, and its texts were escaped when it was drawn.
    """
    svg = _METADATA.sub("", _PROLOGUE.sub("", svg, count=1))
    svg = _SIZE.sub(lambda found: found[1] or found[2], svg, count=1)
    svg = _IDENTIFIER.sub(rf"\g<1>{name}-", svg)
    svg = svg.replace(INK, "currentColor").replace(GRID, "var(--grid)")
    return Markup(svg)  # noqa: S704
