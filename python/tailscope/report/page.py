"""A page that stands on its own: one file, no request, figures that can be asked."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import zlib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING
from urllib.parse import quote

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from msgspec.structs import asdict

from tailscope.noise.words import (
    COUNTER_HEADER,
    association_lines,
    counter_rows,
    regular_lines,
    trace_lines,
)
from tailscope.report.brief import TAINT, brief
from tailscope.report.figures import pictures
from tailscope.report.formats import CELLS, COLOURS
from tailscope.report.head import (
    answer_of,
    counts_of,
    date_of,
    date_text,
    remarks_on,
    setting_of,
    taint_of,
    title_of,
)
from tailscope.report.material import Material
from tailscope.report.picture import difference_ticks
from tailscope.store import layout
from tailscope.store.info import host_of
from tailscope.units import percentile_name, printable
from tailscope.verdict.trust import trust_of
from tailscope.words.figures import (
    BOUND_NOTE,
    DROP_HEADER,
    NOTHING,
    STAGE_HEADER,
    cause_rows,
    clocks_text,
    conclusion_rows,
    count_rows,
    drop_rows,
    energy_rows,
    explained_text,
    has_bounds,
    instrument_rows,
    latency_rows,
    provenance,
    sentence,
    stage_rows,
    stages_text,
    verdict_text,
    worst_rows,
)
from tailscope.words.flows import (
    GROUP_HEADER,
    group_notes,
    group_rows,
    loss_run_text,
    tail_of,
)
from tailscope.words.neighbours import unusable_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from tailscope.report.differences import Difference
    from tailscope.report.picture import Axis, Layer, Picture
    from tailscope.store.records.explanation import ExplainedStages, Explanation
    from tailscope.store.records.host import HostRecord
    from tailscope.store.run import Run
    from tailscope.verdict.trust import Trust
    from tailscope.words.figures import Row

_FIRST = ("percentiles", "tail-made-of", "stages")
"""Figures of the first screen."""
_HEADLINE = ("p50", "p99.9", "max", "lost", "floor p50")
_WORST = 3
_FLOWS = 50
_LOSS_RUNS = 10
_NS_PER_S = 1e9
_GENERATOR = b'<meta name="generator" content="tailscope">'
_HEAD_BYTES = 1000
_MATHS = re.compile(r"(?<=\$)(?=\$)|(?<=\\)(?=[\[(])")


def is_page(path: Path) -> bool:
    """Return True if a file is a page that tailscope made."""
    with path.open("rb") as file:
        return _GENERATOR in file.read(_HEAD_BYTES)


def page(
    runs: Sequence[Run],
    *,
    links: Mapping[str, str] | None = None,
    differences: Sequence[Difference] = (),
    trust: Trust | None = None,
    left_out: str = "",
    trace: str = "",
) -> str:
    """Draw runs as one HTML page, or their differences with the trust in all of them."""
    sections = _sections(pictures([Material(run) for run in runs]))
    # What stands first is drawn first.
    drawn = [picture for figures in sections.values() for picture in figures]
    compared = [each.picture for each in differences if each.picture is not None]
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            runs=[_about(run) for run in runs],
            remarks=remarks_on(runs),
            trust=trust,
            tables={
                **_main_tables(runs),
                "Instrument": _side_by_side(
                    [instrument_rows(run.summary, run.info) for run in runs]
                ),
                "Energy": _side_by_side([energy_rows(run.info) for run in runs]),
                "Predicted": _side_by_side([conclusion_rows(run.kept) for run in runs]),
            },
            bound_note=_bound_note(runs),
            sections=sections,
            links=links or {},
            differences=differences,
            left_out=left_out,
            trace=trace,
            scripts=scripts([*compared, *drawn]),
        )
    )


def _sections(drawn: Sequence[Picture]) -> dict[str, list[Picture]]:
    """Arrange figures by what they answer, in the order of a page; a section may be empty."""
    found: dict[str, list[Picture]] = {
        name: [] for name in ("The tail", "Over time", "Predicted", "Distribution")
    }
    for picture in drawn:
        if picture.name in _FIRST:
            name = "The tail"
        elif picture.x.is_time:
            name = "Over time"
        else:
            name = "Predicted" if picture.is_predicted else "Distribution"
        found[name].append(picture)
    return found


def address_of(path: str) -> str:
    """The address of a file by its path from the page, which never is taken for another kind."""
    return quote(os.fsencode(f"./{path}"), safe="/=,+-._~")


def run_piece(run: Run) -> str:
    """Write what a run is, its packets and its latency as a piece of a page."""
    template = environment().get_template("run_piece.html.j2")
    return template.render(
        run=_about(run),
        remarks=remarks_on([run]),
        tables=_main_tables([run]),
        bound_note=_bound_note([run]),
    )


def tail_piece(explanation: Explanation) -> str:
    """Write what a tail is made of as a piece of a page."""
    return environment().get_template("tail_piece.html.j2").render(tail=_tail(explanation))


def drawing_piece(svg: bytes, title: str, note: str) -> str:
    """Write a drawing as a piece of a page: an image, in which no script of anybody's runs."""
    template = environment().get_template("drawing_piece.html.j2")
    return template.render(svg_base64=base64.b64encode(svg).decode(), title=title, note=note)


@cache
def environment(folder: str = "tailscope.report") -> Environment:
    """Templates of pages, a package's own first; whatever they are given is text, and escaped."""
    made = Environment(
        loader=ChoiceLoader([PackageLoader(each, "") for each in (folder, "tailscope.report")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["printable"] = printable
    made.filters["brief"] = brief
    made.filters["counts"] = counts_of
    made.globals["taint_mark"] = TAINT
    made.globals["style"] = Markup(_own("page.css"))  # noqa: S704
    return made


def scripts(drawn: Sequence[Picture]) -> dict[str, object]:
    """Return the data and scripts that draw figures, and a policy that lets only those run."""
    if not drawn:
        return {"data": "", "code": [], "policy": "script-src 'none'"}
    content = {"colours": COLOURS, "cells": CELLS, "figures": [_figure(each) for each in drawn]}
    # As it is, a run with many causes would fill the page.
    packed = zlib.compress(json.dumps(content, allow_nan=False).encode())
    hashes = " ".join(f"'sha256-{digest}'" for _, digest in _code())
    return {
        "data": base64.b64encode(packed).decode(),
        "code": [Markup(text) for text, _ in _code()],  # noqa: S704
        "policy": f"script-src {hashes}",
    }


@cache
def _code() -> tuple[tuple[str, str], ...]:
    """The library that draws, and what tells it to, each with its digest."""
    texts = [_own(name) for name in ("bokeh/bokeh.min.js", "bokeh/bokeh-api.min.js", "page.js")]
    for text in texts:
        assert "</script" not in text, "it would end before its time"
    # A browser takes what stands between the tags, the ends of lines among it.
    texts = [f"\n{text.strip()}\n" for text in texts]
    return tuple((text, _digest(text)) for text in texts)


def _own(name: str) -> str:
    return files("tailscope.report").joinpath(name).read_text()


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _figure(picture: Picture) -> dict[str, object]:
    return {
        "name": picture.name,
        "x": _axis(picture, picture.x, "x", "x_end"),
        "y": _axis(picture, picture.y, "y", "y_end"),
        "value": picture.value_column,
        "percentiles": _percentiles(picture) if picture.x.is_odds else [],
        "legend": [_shown(label) for label in picture.legend],
        "layers": [
            _layer(layer, keyed) for layer, keyed in zip(picture.layers, picture.keyed, strict=True)
        ],
    }


def _axis(picture: Picture, axis: Axis, *roles: str) -> dict[str, object]:
    values = [
        layer.columns[role] for layer in picture.layers for role in roles if role in layer.columns
    ]
    is_difference = axis.linear_up_to is not None
    return {
        "label": axis.label,
        "quantity": axis.quantity,
        "is_duration": axis.is_duration,
        "scale": axis.scale,
        "limits": axis.limits,
        "names": [_shown(name.replace(" (tainted)", " ~")) for name in axis.names],
        "starts_at_zero": axis.starts_at_zero,
        "is_time": axis.is_time,
        "is_odds": axis.is_odds,
        "linear_up_to": axis.linear_up_to,
        "ticks": difference_ticks(axis) if is_difference else axis.ticks,
        "can_be_log": not axis.names
        and not axis.is_time
        and not axis.is_odds
        and (is_difference or any((each > 0).any() for each in values)),
    }


def _percentiles(picture: Picture) -> list[tuple[float, str]]:
    """Names of percentiles at their odds."""
    return [(each, percentile_name(1 - 1 / each)) for each in picture.odds]


def _layer(layer: Layer, keyed: Layer) -> dict[str, object]:
    return {
        "mark": layer.mark,
        "key": _shown(keyed.label),
        "label": _shown(layer.label),
        "part": _shown(layer.part),
        "colour": keyed.colour,
        "dash": layer.dash,
        "columns": {
            # Edges of cells need no nanosecond.
            role: _packed(values, "f4" if layer.mark == "cells" else "f8")
            for role, values in layer.columns.items()
        },
    }


def _packed(values: NDArray[np.number], kind: str) -> dict[str, str]:
    """An array as JSON: base64 of its bytes."""
    return {"type": kind, "base64": base64.b64encode(values.astype(f"<{kind}").tobytes()).decode()}


def _shown(text: str) -> str:
    """A text that the library shows as it stands, and does not take for a formula."""
    return _MATHS.sub("\u200b", printable(text))


def host_rows(host: HostRecord) -> dict[str, str]:
    """Return what is known of a machine, by names for people."""
    known = {**asdict(host), **(host.inventory or {}), "inventory": None}
    return {
        name.replace("_", " "): _row_text(value)
        for name, value in known.items()
        if value not in (None, [])
    }


def _row_text(value: object) -> str:
    """Write a value of a row; of a part of an inventory, what is known of each thing in it."""
    if not isinstance(value, list):
        return str(value)
    return "; ".join(
        ", ".join(f"{name} {each}" for name, each in thing.items() if each not in (None, [], 0))
        for thing in value
    )


def _main_tables(runs: Sequence[Run]) -> dict[str, dict[str, list[Row | None]]]:
    """Return the tables of packets and of their latency, with all runs side by side."""
    return {
        "Packets": _side_by_side([count_rows(run.summary) for run in runs]),
        "Latency": _side_by_side([latency_rows(run.summary) for run in runs]),
    }


def _bound_note(runs: Sequence[Run]) -> str:
    return BOUND_NOTE if any(has_bounds(run.summary) for run in runs) else ""


def _tail(explanation: Explanation) -> dict[str, object]:
    """Return what is known to have delayed the tail, and what is associated with that."""
    return {
        "causes": cause_rows(explanation),
        "stages": _stages(explanation.stages),
        "explained": explained_text(explanation),
        "traces": [*trace_lines(explanation), *filter(None, [clocks_text(explanation)])],
        "associated": _associated(explanation),
    }


def _stages(found: ExplainedStages | None) -> dict[str, object] | None:
    """The way of packets through the device; None where it was not recorded."""
    if found is None:
        return None
    return {
        "text": stages_text(found),
        "header": STAGE_HEADER,
        "rows": stage_rows(found),
        "drop_header": DROP_HEADER,
        "drops": drop_rows(found),
    }


def _associated(explanation: Explanation) -> dict[str, object] | None:
    """Return the association with polled counters, or None if there are none."""
    found = explanation.associated
    if found is None:
        return None
    return {
        "lines": association_lines(found),
        "header": COUNTER_HEADER,
        "rows": counter_rows(found),
        "regular": regular_lines(found),
    }


def _headline(run: Run) -> list[Row]:
    """The figures that are looked at first."""
    rows = (
        *latency_rows(run.summary),
        *count_rows(run.summary),
        *instrument_rows(run.summary, run.info),
    )
    by_label = {row.label.rstrip(" *"): row for row in rows}
    return [by_label[label] for label in _HEADLINE if label in by_label]


def _worst(run: Run) -> list[dict[str, object]]:
    """The worst packets, each with its name in a timeline, and when it was in the device."""
    worst = run.worst
    sent_s = Material(run).since_s(worst.pre_ns[:_WORST])
    names = [f"packet {seq}" for seq in worst.pre_seq[:_WORST].tolist()] or [""] * len(sent_s)
    return [
        {"name": name, "sent_s": sent, "lasts_s": lasted_ns / _NS_PER_S, "told": told[1:]}
        for name, sent, lasted_ns, told in zip(
            names,
            sent_s.tolist(),
            worst.latency_ns[:_WORST].tolist(),
            worst_rows(run),
            strict=False,
        )
    ]


def _flows(run: Run) -> dict[str, object] | None:
    """The figures of flows; None where there is but one, or nothing is known of them."""
    if len(run.flows) < 2:
        return None
    starts_ns = run.rate["pre"].start_ns
    first_ns = int(starts_ns[0]) if len(starts_ns) else 0
    shown = run.flows[:_FLOWS]
    return {
        "header": ("flow", *GROUP_HEADER),
        "rows": group_rows(shown, tail_of(run.flows)),
        "notes": group_notes(run.flows, len(run.flows)),
        "more": len(run.flows) - len(shown),
        "lost": [loss_run_text(each, first_ns) for each in run.loss_runs[:_LOSS_RUNS]],
    }


def _about(run: Run) -> dict[str, object]:
    # In a laboratory the machine where the command was typed measures nothing.
    hosts = run.info.hosts or {"": host_of(run.info)}
    doubt = unusable_text(run.info)
    return {
        "label": run.label,
        "flows": _flows(run),
        "headline": _headline(run),
        "title": title_of(run),
        "date": date_of(run),
        "setting": setting_of(run),
        "answer": answer_of(run),
        "trust": trust_of(run.summary, run.info),
        "taint": taint_of(run),
        "worst": _worst(run),
        "has_noise": layout.NOISE in run.info.files,
        "verdict": verdict_text(run.kept.verdict),
        "tail": None if run.explanation is None else _tail(run.explanation),
        "sentence": (f"{doubt}. " if doubt else "") + sentence(run.summary),
        "tags": run.remarks.tags,
        "notes": [(date_text(note.written_unix_ns), note.text) for note in run.remarks.notes],
        "provenance": {
            **provenance(run.summary, run.info),
            "tailscope": run.info.tailscope_version,
        },
        "hosts": {role: known for role, host in hosts.items() if (known := host_rows(host))},
    }


def _side_by_side(rows: Sequence[list[Row]]) -> dict[str, list[Row | None]]:
    """Arrange rows by label: one cell for each run, None where a run has no such row."""
    columns = [{row.label.rstrip(" *"): row for row in run} for run in rows]
    labels = dict.fromkeys(
        label
        for column in columns
        for label, row in column.items()
        if row.value != NOTHING or row.interval not in ("", NOTHING)
    )
    return {label: [column.get(label) for column in columns] for label in labels}
