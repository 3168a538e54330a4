"""The matrix of a campaign: a cell for each combination, and all runs as a table."""

from __future__ import annotations

import csv
import io
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailscope.report.campaign.material import unfinished
from tailscope.store.campaign import DONE
from tailscope.store.grid import HEADLINE
from tailscope.store.info import EMULATED, is_emulated
from tailscope.units import count_text, duration_text, percentile_name, printable
from tailscope.verdict.trust import stalls_show
from tailscope.verdict.verdict import Outcome, worst

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tailscope.report.campaign.material import (
        CampaignMaterial,
        CampaignReading,
        Combination,
    )
    from tailscope.store.campaign import CampaignCell
    from tailscope.store.run import Run

FIGURE_OF = {q: f"latency_ns_{percentile_name(q).replace('.', '')}" for q in HEADLINE}
"""For each quantile its figure in the summary."""

_MOST_COLUMNS = 8
_COUNTS = ("sent", "count", "lost", "late", "duplicated", "reordered")
MEDIAN = HEADLINE[0]


@dataclass(frozen=True)
class Matrix:
    """Combinations in rows and columns."""

    row_names: list[str]
    """Variables whose values begin a row."""
    column_name: str
    """The variable of the columns; empty where there is one column."""
    columns: list[str]
    """Its values."""
    rows: list[tuple[tuple[str, ...], list[Combination | None]]]
    """The values of each row, and its cells; None where nothing was to be run."""


def arranged(material: CampaignMaterial) -> Matrix:
    """Put what has the most values into columns, as long as a page is wide enough."""
    varied = material.varied
    name = _column(varied)
    columns = varied[name] if name else [""]
    row_names = [other for other in varied if other != name]
    rows: dict[tuple[str, ...], dict[str, Combination]] = {}
    for each in material.combinations:
        values = tuple(each.values[other] for other in row_names)
        rows.setdefault(values, {})[each.values.get(name, "")] = each
    return Matrix(
        row_names,
        name,
        columns,
        [(values, [row.get(column) for column in columns]) for values, row in rows.items()],
    )


def _column(varied: Mapping[str, Sequence[str]]) -> str:
    """Return the variable for the columns: of those that fit, the last one with the most values."""
    fitting = [name for name in varied if len(varied[name]) <= _MOST_COLUMNS]
    if len(varied) < 2 or not fitting:
        return ""
    return max(reversed(fitting), key=lambda name: len(varied[name]))


def highest_supported(runs: Sequence[Run]) -> float | None:
    """The highest quantile that all runs support."""
    for q in reversed(HEADLINE):
        if all(run.summary[f"{FIGURE_OF[q]}_supported"] for run in runs):
            return q
    return None


def quantile_of_all(material: CampaignMaterial) -> float | None:
    """The highest quantile that all runs of all combinations support; None where none is."""
    runs = [run for each in material.combinations for run in each.runs]
    return highest_supported(runs) if runs else None


def outcome_of(combination: Combination) -> Outcome | None:
    """The worst verdict that is kept of its runs; None where one of them was not judged."""
    kept = [run.kept.verdict for run in combination.runs]
    if not kept or None in kept:
        return None
    return worst(Outcome(each.verdict) for each in kept if each is not None)


def shown(
    combination: Combination, address: Callable[[str], str] | None, q: float | None
) -> dict[str, object]:
    """Return the content of a cell of the matrix."""
    runs = combination.runs
    return {
        "compared": _figure(runs, MEDIAN if q is None else q) if runs else None,
        "outcome": outcome_of(combination),
        "figures": _figures(runs) if runs else [],
        "lost": _lost(runs) if runs else "",
        "verdicts": _verdicts(runs),
        "marks": _marks(combination),
        "problems": _problems(combination),
        "links": [
            (str(number), address(reading.name))
            for number, reading in enumerate(combination.readings, 1)
            if reading.has_page and address is not None
        ],
    }


def _figures(runs: Sequence[Run]) -> list[dict[str, object]]:
    q = highest_supported(runs)
    wanted = [MEDIAN] if q is None else dict.fromkeys((MEDIAN, q))
    return [_figure(runs, each) for each in wanted]


def _figure(runs: Sequence[Run], q: float) -> dict[str, object]:
    """A quantile of the runs: their median and range."""
    name = FIGURE_OF[q]
    known = [int(value) for run in runs if (value := run.summary[name]) is not None]
    is_bound = bool(known) and not all(run.summary[f"{name}_supported"] for run in runs)
    label = "median" if q == MEDIAN else percentile_name(q)
    return {
        "name": f"{label} *" if is_bound else label,
        "value": _middle(known),
        "spread": _spread(known),
        "is_tainted": any(stalls_show(run.summary, name) for run in runs),
    }


def _middle(values: Sequence[int]) -> str:
    return duration_text(statistics.median(values)) if values else "-"


def _spread(values: Sequence[int]) -> str:
    """Format the range of the runs, from the lowest value to the highest."""
    if len(values) < 2:
        return ""
    return f"{duration_text(min(values))} to {duration_text(max(values))}"


def _lost(runs: Sequence[Run]) -> str:
    lost, sent = (sum(int(run.summary[name] or 0) for run in runs) for name in ("lost", "sent"))
    return f"lost {count_text(lost)} of {count_text(sent)}"


def _verdicts(runs: Sequence[Run]) -> list[dict[str, str]]:
    """Each outcome, of how many runs it is, and of which level."""
    kept = [run.kept.verdict for run in runs if run.kept.verdict is not None]
    pairs = [(each.verdict, each.slo) for each in kept]
    return [
        {
            "outcome": outcome,
            "text": f"{outcome}: {slo}" + (f" ({pairs.count(pair)} runs)" if len(runs) > 1 else ""),
        }
        for pair in dict.fromkeys(pairs)
        for outcome, slo in [pair]
    ]


def _marks(combination: Combination) -> list[str]:
    marks = [EMULATED] if any(is_emulated(run.info) for run in combination.runs) else []
    if any(cell.state == "partial" for cell in combination.cells):
        marks.append("partial")
    return marks


def _problems(combination: Combination) -> list[str]:
    several = len(combination.cells) > 1
    found = [
        f"{f'repeat {cell.repeat}: ' if several else ''}{unfinished(cell)}"
        f"{f' ({cell.hint})' if cell.hint else ''}"
        for cell in combination.cells
        if cell.state != DONE
    ]
    found += [reading.problem for reading in combination.readings if reading.problem is not None]
    return list(dict.fromkeys(found))


def table_of_runs(material: CampaignMaterial) -> str:
    """All cells and their runs as CSV: a row for each run, or for a cell without any."""
    names = list(material.content.variables)
    quantiles = [f"{name}{end}" for name in FIGURE_OF.values() for end in ("", "_supported")]
    figures = [*quantiles, "latency_ns_max", *_COUNTS]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["cell", *map(printable, names), "repeat", "state", "reason", "run", "verdict", *figures]
    )
    for cell, reading in cells_and_runs(material):
        about = [cell.name, *(cell.values.get(name, "") for name in names), str(cell.repeat)]
        run = None if reading is None else reading.run
        problem = None if reading is None else reading.problem
        reason = "; ".join(filter(None, (cell.reason, problem)))
        judged = None if run is None else run.kept.verdict
        verdict = "" if judged is None else judged.verdict
        summary = {} if run is None else run.summary
        row = [*about, cell.state, reason, "" if reading is None else reading.name, verdict]
        writer.writerow([*map(printable, row), *(summary.get(each) for each in figures)])
    return text.getvalue()


def cells_and_runs(
    material: CampaignMaterial,
) -> Iterator[tuple[CampaignCell, CampaignReading | None]]:
    """Each run with its cell, in the order of values; a cell without any run once."""
    for combination in material.combinations:
        readings = {reading.name: reading for reading in combination.readings}
        for cell in combination.cells:
            if not cell.runs:
                yield cell, None
            for name in cell.runs:
                yield cell, readings[name]
