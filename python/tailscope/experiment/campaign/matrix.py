"""All runs of an experiment: every combination of what varies."""

from __future__ import annotations

import itertools
import random
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from tailscope.exceptions import UsageError
from tailscope.experiment.campaign.bench import bench_of
from tailscope.experiment.campaign.cell import Cell
from tailscope.experiment.campaign.spec import Fields
from tailscope.experiment.campaign.typed import WrongError, typed
from tailscope.experiment.fields import FIELDS, plan_of
from tailscope.units import refuse_unknown, value_label

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tailscope.experiment.campaign.spec import Document, Experiment, Given

_MOST_CELLS = 100_000
_OPTIONS = tuple(name for name in FIELDS if name.endswith("_options"))
_OF_OPTION = {declared.option: name for name, declared in FIELDS.items()}


def cells_of(experiment: Experiment, document: Document) -> list[Cell]:
    """Make all cells of an experiment, in the order to run them in."""
    variables = {name: _choices(name, experiment, document) for name in experiment.vary}
    _check_exclusions(experiment, variables, document)
    combinations = 1
    for choices in variables.values():
        combinations *= len(choices)
    if combinations * experiment.repeats > _MOST_CELLS:
        raise document.error(
            ["vary"],
            f"got {combinations} combinations, {experiment.repeats} times each,"
            f" expected at most {_MOST_CELLS} runs",
            code="too-many-runs",
        )
    found = list(_combined(experiment, variables, document))
    if not found:
        raise document.error(
            ["exclude"], "it excludes every combination", code="excludes-everything"
        )
    _refuse_twins(found, document)
    rounds = [
        [
            replace(cell, name=_name(cell.values, repeat, experiment.repeats), repeat=repeat)
            for cell in found
        ]
        for repeat in range(1, experiment.repeats + 1)
    ]
    if experiment.order == "shuffled":
        # Each round by itself: what drifts meets all combinations alike.
        shuffle = random.Random(experiment.seed).shuffle  # noqa: S311
        for cells in rounds:
            shuffle(cells)
    return [cell for cells in rounds for cell in cells]


def only_cells(cells: list[Cell], only: Mapping[str, str]) -> list[Cell]:
    """Choose cells by values of variables, several joined by commas."""
    chosen = cells
    for name, text in only.items():
        known = list(cells[0].values)
        refuse_unknown("--only", name, known, "no-such-variable")
        wanted = text.split(",")
        values = list(dict.fromkeys(cell.values[name] for cell in cells))
        for value in wanted:
            refuse_unknown(f"--only {name}", value, values, "no-such-value")
        chosen = [cell for cell in chosen if cell.values[name] in wanted]
    if not chosen:
        raise UsageError("--only: no cell has all of these values", code="no-such-cell")
    return chosen


def _choices(
    name: str, experiment: Experiment, document: Document
) -> dict[str, tuple[Given, list[str | int]]]:
    """Return, for each value of a variable, the fields that it sets and where it stands."""
    values = experiment.vary[name]
    if not values:
        raise document.error(["vary", name], "expected at least one value", code="no-value")
    if isinstance(values, dict):
        if name.partition(".")[0] in FIELDS:
            text = "a field has a list of values; labels with fields need a name of their own"
            raise document.error(["vary", name], text, code="labels-of-field")
        return {label: (fields.given(), ["vary", name, label]) for label, fields in values.items()}
    field, _, option = name.partition(".")
    if field not in FIELDS or bool(option) != (field in _OPTIONS):
        known = [
            f"{name}.NAME" if name in _OPTIONS else name
            for name, each in FIELDS.items()
            if name in _OPTIONS or not each.has_names
        ]
        raise document.error(
            ["vary", name],
            f"only a field takes a list of values, expected one of {', '.join(known)}",
            code="not-a-field",
        )
    fixed = experiment.fixed.given()
    if option in fixed.get(field, {}) if option else field in fixed:
        raise document.error(["vary", name], "it is also in `fixed`", code="field-twice")
    choices: dict[str, tuple[Given, list[str | int]]] = {}
    for at, value in enumerate(values):
        where: list[str | int] = ["vary", name, at]
        if value_label(value) in choices:
            raise document.error(where, f"got {value!r} twice", code="value-twice")
        fields = {field: {option: value}} if option else {field: value}
        try:
            typed(fields, Fields)
        except WrongError as wrong:
            raise document.error(where, wrong.message, code=wrong.code) from None
        choices[value_label(value)] = (fields, where)
    return choices


def _combined(
    experiment: Experiment,
    variables: Mapping[str, Mapping[str, tuple[Given, list[str | int]]]],
    document: Document,
) -> Iterator[Cell]:
    bench, fixed = bench_of(experiment), experiment.fixed.given()
    for labels in itertools.product(*variables.values()):
        values = dict(zip(variables, labels, strict=True))
        if any(_matches(rule, values) for rule in experiment.exclude):
            continue
        fields = {**fixed}
        origin: dict[str, list[str | int]] = {name: ["fixed", name] for name in fields}
        for name, label in values.items():
            own, where = variables[name][label]
            for field, value in own.items():
                merged = {**fields.get(field, {}), **value} if field in _OPTIONS else value
                fields[field], origin[field] = merged, where
        fields |= bench.added_fields(fields, document)
        try:
            plan = plan_of(fields)
            bench.check_plan(plan)
        except UsageError as error:
            raise _located(document, error, values, origin) from None
        bench.check(plan, document)
        yield Cell("", values, 0, plan, bench.starts_s)


def _located(
    document: Document,
    error: UsageError,
    values: Mapping[str, str],
    origin: Mapping[str, list[str | int]],
) -> UsageError:
    """The complaint about a plan, at the place that gave it the value."""
    said = re.match(r"--[a-z-]+", str(error))
    field = _OF_OPTION.get(said[0], said[0]) if said else ""
    message = str(error)[said.end() :].lstrip(": ") if said else str(error)
    cell = ", ".join(f"{name}={value}" for name, value in values.items())
    where = origin.get(field, ["vary" if values else "fixed"])
    combination = f"in the combination {cell}; `exclude` leaves combinations out" if cell else None
    hint = " ".join(filter(None, (error.hint, combination))) or None
    text = f"{field + ': ' if field else ''}{message}"
    return document.error(where, text, code=error.code, hint=hint)


def _check_exclusions(
    experiment: Experiment, variables: Mapping[str, Mapping[str, object]], document: Document
) -> None:
    for at, rule in enumerate(experiment.exclude):
        if not rule:
            raise document.error(
                ["exclude", at], "it excludes everything", code="excludes-everything"
            )
        for name, wanted in rule.items():
            where: list[str | int] = ["exclude", at, name]
            if name not in variables:
                known = ", ".join(variables) or "none"
                raise document.error(
                    where, f"it does not vary, expected one of {known}", code="not-varied"
                )
            for value in wanted if isinstance(wanted, list) else [wanted]:
                if value_label(value) not in variables[name]:
                    known = ", ".join(variables[name])
                    text = f"got {value!r}, expected one of {known}"
                    raise document.error(where, text, code="no-such-value")


def _matches(rule: Mapping[str, object], values: Mapping[str, str]) -> bool:
    return all(
        values[name]
        in [value_label(one) for one in (wanted if isinstance(wanted, list) else [wanted])]
        for name, wanted in rule.items()
    )


def _refuse_twins(cells: list[Cell], document: Document) -> None:
    seen: dict[str, Cell] = {}
    for cell in cells:
        same = repr(cell.plan.record())
        if same in seen:
            raise document.error(
                ["vary"],
                f"{_name(seen[same].values, 1, 1)} and {_name(cell.values, 1, 1)} are the same run",
                code="same-run",
            )
        seen[same] = cell


def _name(values: Mapping[str, str], repeat: int, repeats: int) -> str:
    parts = [f"{name}={value}" for name, value in values.items()]
    parts += [f"repeat={repeat}"] if repeats > 1 else []
    return re.sub(r"[^A-Za-z0-9=,.+-]", "_", ",".join(parts)) or "run"
