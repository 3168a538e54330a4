"""The page of a campaign: what was varied, what came of it, and the way to each run."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tailscope.registry import offered
from tailscope.report.campaign.answer import (
    answers,
    outcome_of_all,
    runs_of,
    taint_of_all,
)
from tailscope.report.campaign.figures import MOST_PANELS, families
from tailscope.report.campaign.matrix import arranged, highest_supported, quantile_of_all, shown
from tailscope.report.head import date_text
from tailscope.report.page import environment, host_rows, scripts
from tailscope.units import count_text, long_text, percentile_name
from tailscope.verdict.trust import trust_in

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tailscope.report.campaign.material import CampaignMaterial
    from tailscope.store.run import Run

LARGEST_BYTES = 2 * 1024 * 1024
"""Of a page."""

_MOST_CELLS = 600
_FEWEST_PANELS = 4
_MOST_DEVICES = 4


class CampaignTable(NamedTuple):
    """A table on the page of a campaign."""

    title: str
    header: Sequence[str]
    rows: list[tuple[str, ...]]


class CampaignTables(NamedTuple):
    """Tables that a folder of the wing adds to the page of a campaign."""

    title: str
    note: str
    """HTML."""
    tables: list[CampaignTable]
    cited: list[tuple[int, str]]
    """The runs that they rest on: number and name."""


def campaign_page(
    material: CampaignMaterial,
    address: Callable[[str], str],
    *,
    links: Mapping[str, str] | None = None,
    repeat: Sequence[str] = (),
    left_out: str = "",
) -> str:
    """Draw a campaign as one HTML page.

    What does not fit into `LARGEST_BYTES` is left out, and the page says how much that is.
    """
    content = material.content
    host = content.record.host
    started_ns = content.record.started_unix_ns
    given = {
        "title": _title(material),
        "started": "" if started_ns is None else f" Started {date_text(started_ns)}.",
        "about": " ".join(str(content.record.about or "").split()),
        "progress": _progress(material),
        "answers": answers(material),
        "outcome": outcome_of_all(material),
        "trust": trust_in(runs_of(material)),
        "taint": taint_of_all(material),
        "varied": {name: ", ".join(values) for name, values in material.varied.items()},
        "same": _same(material),
        "host": {} if host is None else host_rows(host),
        "has_bounds": _has_bounds(material),
        "tabled": [tabled(_runs(material)) for tabled in offered("campaign_tables")],
        "address": address,
        "links": links or {},
        "repeat": repeat,
        "left_out": left_out,
    }
    template = environment().get_template("campaign.html.j2")
    panels, cells = MOST_PANELS, _MOST_CELLS
    while True:
        drawn = families(material, panels=panels)
        text = template.render(
            **given,
            matrix=_matrix(material, address, cells),
            families=drawn,
            scripts=scripts([picture for family in drawn for picture in family.pictures]),
        )
        if len(text.encode()) <= LARGEST_BYTES or cells == 1:
            return text
        if panels > _FEWEST_PANELS:
            panels //= 2
        else:
            cells = max(1, cells // 2)


def campaign_piece(material: CampaignMaterial) -> str:
    """Write how far a campaign is, and its matrix without links, as a piece of a page."""
    return (
        environment()
        .get_template("campaign_piece.html.j2")
        .render(
            name=material.content.name,
            progress=_progress(material),
            matrix=_matrix(material, None, _MOST_CELLS),
            has_bounds=_has_bounds(material),
        )
    )


def _title(material: CampaignMaterial) -> str:
    """Return the name of a campaign, what it measures, and by what that varies."""
    content = material.content
    fixed = content.experiment.fixed.get("dut")
    devices = content.variables.get("dut") or ([] if fixed is None else [str(fixed)])
    shown = [*devices[:_MOST_DEVICES], *(["…"] if len(devices) > _MOST_DEVICES else [])]
    varied = list(material.varied)
    by = f"by {', '.join(varied)}" if varied else ""
    about = " ".join(filter(None, (", ".join(shown), by)))
    return f"{content.name}: {about}" if about else content.name


def _has_bounds(material: CampaignMaterial) -> bool:
    return any(each.runs and highest_supported(each.runs) is None for each in material.combinations)


def _progress(material: CampaignMaterial) -> str:
    counts = material.counts()
    said = ", ".join(f"{count_text(count)} {state}" for state, count in counts.items())
    runs = sum(len(each.runs) for each in material.combinations)
    return f"{count_text(sum(counts.values()))} cells: {said}. {count_text(runs)} runs are shown."


def _same(material: CampaignMaterial) -> dict[str, str]:
    """Return the properties that all runs share, in the words of the experiment."""
    content = material.content
    fixed = content.experiment.fixed
    single = {name: values[0] for name, values in content.variables.items() if len(values) == 1}
    about = {
        name.replace("_", " "): value
        for name in ("repeats", "order", "service_levels")
        if (value := getattr(content.experiment, name))
    }
    lasted_s = sum(cell.lasted_s or 0.0 for cell in content.record.cells)
    took = {"took": long_text(lasted_s)} if lasted_s else {}
    version = content.record.tailscope_version
    return {
        str(name): _text(value)
        for name, value in {**fixed, **single, **about, **took, "tailscope": version}.items()
        if value is not None
    }


def _text(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={_text(each)}" for name, each in value.items())
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return str(value)


def _matrix(
    material: CampaignMaterial, address: Callable[[str], str] | None, cells: int
) -> dict[str, object]:
    """The matrix for the template: each value of a row once, as far as it goes on."""
    matrix, q = arranged(material), quantile_of_all(material)
    most = max(1, cells // len(matrix.columns))
    rows = []
    before: tuple[str, ...] = ()
    for values, combinations in matrix.rows[:most]:
        changed = next(
            (at for at, value in enumerate(values) if before[at : at + 1] != (value,)), len(values)
        )
        heads = ["" if at < changed else value for at, value in enumerate(values)]
        before = values
        found = [None if each is None else shown(each, address, q) for each in combinations]
        rows.append({"heads": heads, "cells": found})
    return {
        "percentile": None if q is None else percentile_name(q),
        "row_names": matrix.row_names,
        "column_name": matrix.column_name,
        "columns": matrix.columns,
        "rows": rows,
        "left_out": max(0, len(matrix.rows) - most),
    }


def _runs(material: CampaignMaterial) -> dict[str, Run]:
    readings = (each for combination in material.combinations for each in combination.readings)
    return {each.name: each.run for each in readings if each.run is not None}
