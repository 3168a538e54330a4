"""Choosing runs by their fields, such as ``dut=suricata rate>=100k latency_ns_p999<20us``."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from tailscope.exceptions import UsageError
from tailscope.store.catalogue import quoted
from tailscope.store.columns import COUNT, REAL, RUN, SUMMARY, TABLES, TEXT, TIME, TRUTH
from tailscope.store.record import plain
from tailscope.units import QUANTILES, did_you_mean, duration_ns, rate_pps

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tailscope.store.catalogue import Catalogue, QueriedRow

FIELDS = {**RUN, **SUMMARY}
"""Fields of a run that has one value each, and the type of it."""

_LISTS = {"tag": "tag", "note": "text"}
"""Fields of which a run has any number: tables, and the column of each."""

_FILTER = re.compile(r"([A-Za-z][A-Za-z0-9_.]*)(!=|<=|>=|=|<|>|~)(.*)", re.DOTALL)
_ORDER = ("<", "<=", ">", ">=")
_OPERATORS = {
    TEXT: ("=", "!=", "~"),
    TRUTH: ("=", "!="),
    COUNT: ("=", "!=", *_ORDER),
    REAL: ("=", "!=", *_ORDER),
    TIME: ("=", "!=", *_ORDER),
}
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_UNITS = ("ns", "pps", "bytes", "s", "utc")
_IS_TIME = re.compile(r"_ns(_|$)")
_TRUTHS = {"yes": True, "true": True, "no": False, "false": False}


class Filter(NamedTuple):
    """A condition on a field of a run."""

    field: str
    """Name of the field: one of `FIELDS`, or ``tag`` or ``note``."""
    operator: str
    value: str | float | bool | datetime
    until: datetime | None = None
    """End of the day, where the value is one and the operator is ``=`` or ``!=``."""

    @property
    def values(self) -> tuple[str | float | bool | datetime, ...]:
        """Values of the condition in SQL."""
        return (self.value,) if self.until is None else (self.value, self.until)


def is_filter(text: str) -> bool:
    """Return whether an argument is a filter: name, operator, value; any other is a folder."""
    return _FILTER.fullmatch(text) is not None


def parse_filter(text: str) -> Filter:
    """Read a filter."""
    match = _FILTER.fullmatch(text)
    assert match is not None, "it is a filter"
    name, operator, value = match.groups()
    field = name if name in _LISTS else field_named(name)
    kind = TEXT if name in _LISTS else FIELDS[field]
    if operator not in _OPERATORS[kind]:
        raise UsageError(
            f"{text}: {field} is {kind_of(field)}: got the operator {operator}, expected"
            f" {' '.join(_OPERATORS[kind])}",
            code="filter-operator",
        )
    wanted = Filter(field, operator, _value(text, field, kind, value))
    try:
        return _of_day(wanted) if kind == TIME and _DAY.fullmatch(value) else wanted
    except OverflowError:
        raise UsageError(
            f"{text}: got {value!r}, expected a date before 9999-12-31", code="filter-value"
        ) from None


def _of_day(wanted: Filter) -> Filter:
    """Return a condition on a date as one on times: a date is a whole day."""
    assert isinstance(wanted.value, datetime), "a date is one"
    until = wanted.value + timedelta(days=1)
    if wanted.operator in ("=", "!="):
        return wanted._replace(until=until)
    operator = {"<=": "<", ">": ">="}.get(wanted.operator)
    return wanted if operator is None else wanted._replace(operator=operator, value=until)


def field_named(name: str) -> str:
    """The field that a name means; units may be left out, and ``p99.9`` is ``latency_ns_p999``."""
    known = _names()
    if name in known:
        return known[name]
    meant = did_you_mean(name, [*known, *_LISTS])
    where = f"`tailscope runs list --fields` lists them; a folder of this name is ./{name}..."
    raise UsageError(
        f"{name}: runs have no such field",
        code="unknown-field",
        hint=" ".join(filter(None, (meant, where))),
    )


def choose(
    catalogue: Catalogue, filters: Iterable[Filter] = (), *, sort: str = "written_utc"
) -> list[QueriedRow]:
    """The runs that meet all filters."""
    wanted = list(filters)
    order = f"{_column(sort.removeprefix('-'))} {'DESC' if sort.startswith('-') else 'ASC'}"
    terms = " AND ".join(["true", *map(_term, wanted)])
    rows = catalogue.rows(
        "SELECT * FROM run JOIN summary USING (run)"  # noqa: S608
        f" WHERE {terms} ORDER BY {order} NULLS LAST, run.run",
        *(value for each in wanted for value in each.values),
    )
    tags, notes = _of_runs(catalogue, "tag"), _of_runs(catalogue, "note")
    return [
        {
            **{name: row[name] for name in RUN},
            "tags": [each["tag"] for each in tags.get(row["run"], ())],
            "notes": notes.get(row["run"], []),
            "summary": {name: row[name] for name in SUMMARY if name != "run"},
        }
        for row in rows
    ]


def kind_of(field: str) -> str:
    """Describe the values of a field in words."""
    kind = FIELDS.get(field, TEXT)
    if kind in (COUNT, REAL):
        if _IS_TIME.search(field) and not field.endswith("_beyond"):
            return "a time, such as 20us"
        return "a rate, such as 100k" if field.endswith("_pps") else "a number"
    return {TEXT: "a text", TRUTH: "yes or no", TIME: "a date, such as 2025-12-31"}[kind]


def _names() -> dict[str, str]:
    """Everything that a field may be called, and the field."""
    short = {
        field.removesuffix(f"_{unit}"): field
        for unit in _UNITS
        for field in FIELDS
        if field.endswith(f"_{unit}")
    }
    quantiles = {written: f"latency_ns_{name}" for name, written in QUANTILES.items()}
    return {**short, **quantiles, "name": "run", **{field: field for field in FIELDS}}


def _term(wanted: Filter) -> str:
    if wanted.field in _LISTS:
        column = f"{wanted.field}.{_LISTS[wanted.field]}"
        test = f"contains({column}, ?)" if wanted.operator == "~" else f"{column} = ?"
        negation = "NOT " if wanted.operator == "!=" else ""
        table = wanted.field
        return f"{negation}run.run IN (SELECT run FROM {table} WHERE {test})"  # noqa: S608
    column = _column(wanted.field)
    if wanted.operator == "~":
        return f"contains({column}, ?)"
    if wanted.until is not None:
        within = f"({column} >= ? AND {column} < ?)"
        return within if wanted.operator == "=" else f"{within} IS NOT TRUE"
    operator = "IS NOT" if wanted.operator == "!=" else wanted.operator
    return f"{column} {operator} ?"


def _column(field: str) -> str:
    return f"{'run' if field in RUN else 'summary'}.{quoted(field)}"


def _of_runs(catalogue: Catalogue, table: str) -> dict[str, list[QueriedRow]]:
    """Rows of a table by the run that they are of."""
    found: dict[str, list[QueriedRow]] = {}
    order = ", ".join(map(quoted, TABLES[table]))
    for row in catalogue.rows(f"SELECT * FROM {table} ORDER BY {order}"):  # noqa: S608
        found.setdefault(row.pop("run"), []).append(row)
    return found


def _value(text: str, field: str, kind: str, value: str) -> str | float | bool | datetime:
    if kind == TEXT:
        return plain(value)
    try:
        if kind == TRUTH:
            return _TRUTHS[value.lower()]
        if kind == TIME:
            date = datetime.fromisoformat(value)
            return date.astimezone(UTC).replace(tzinfo=None) if date.tzinfo else date
        if kind_of(field).startswith("a time"):
            sign = -1 if value.startswith("-") else 1
            return float(sign * duration_ns(value.removeprefix("-"), text))
        return float(rate_pps(value, text) if field.endswith("_pps") else value)
    except (ValueError, KeyError, UsageError):
        raise UsageError(
            f"{text}: got {value!r}, expected {kind_of(field)}", code="filter-value"
        ) from None
