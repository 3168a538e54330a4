"""``fields.md``: every field of a run, from its declaration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docs.reference.markdown import NOTE, code, joined, table

from tailscope.plan.field import fields_of
from tailscope.plan.fields import AboutFields, AnalysisFields, PairFields, PlanFields

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tailscope.plan.field import Field

_GROUPS = {
    "dut": "Device under test",
    "traffic": "Traffic",
    "measurement": "Measurement",
    "host": "Host",
    "analysis": "Analysis of captures",
}


def page() -> str:
    """The page."""
    return joined(_blocks())


def _blocks() -> Iterator[str]:
    yield "# Fields of a run"
    yield NOTE
    yield (
        "A field has the same meaning as an option of a command, in an [experiment](experiment.md),"
        " in `plan` of a [run directory](files.md) and, for all but `kernel` and `worst`, as a"
        " column of the catalogue. The catalogue has the kernel that ran instead of the one that"
        " was asked for."
    )
    yield (
        "An option is given as text such as `10s` or `10k`; a run directory and the catalogue hold"
        " the value as a number of the unit."
    )
    every = {**fields_of(PlanFields), **fields_of(PairFields)}
    for group, title in _GROUPS.items():
        yield f"## {title}"
        yield _table(each for each in every.values() if each.group == group)
    yield "## Labels of captures and imports"
    yield (
        "What their user says with `--about FILE`, `-D NAME=VALUE` or `--name-pattern`"
        " ([analyze.md](../analyze.md#labels)); it stands in `about` of a run directory, and in the"
        " same columns of the catalogue as the fields of measurements. What is not said is unknown."
    )
    header = ("label", "in a run", "unit", "range", "meaning")
    yield table(header, map(_label_row, fields_of(AboutFields).values()))


def _label_row(label: Field) -> tuple[str, ...]:
    name = f"{label.name}.NAME" if label.has_names else label.name
    return code(name), code(label.attribute), label.unit, _range(label), label.about


def _table(fields: Iterable[Field]) -> str:
    header = ("option", "in an experiment", "in a run", "unit", "default", "range", "meaning")
    return table((*header, "options of"), map(_row, fields))


def _row(field: Field) -> tuple[str, ...]:
    option = [code(f"{name} {field.metavar}".strip()) for name in _options(field)]
    return (
        ", ".join(option),
        code(field.name) if "run" in field.on else "",
        code(field.attribute),
        field.unit,
        field.default_text or "",
        _range(field),
        field.about,
        ", ".join(map(code, field.on)),
    )


def _options(field: Field) -> list[str]:
    if not field.on:
        return []
    return [each for each in (field.option, field.short) if each]


def _range(field: Field) -> str:
    return ", ".join(map(code, field.choices or ())) or field.range_text or ""


def plan_rows() -> Iterator[tuple[str, str]]:
    """For each name in the plan of a measurement, what it means."""
    own, shared = fields_of(PlanFields), fields_of(AnalysisFields)
    for attribute, field in own.items():
        if attribute not in shared:
            yield code(attribute), field.about
    yield ", ".join(map(code, shared)), "As in `tailscope.analyze`."
