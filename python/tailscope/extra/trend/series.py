"""Runs, sorted into experiments and steps, and the series of figures that these make."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tailscope.exceptions import UsageError
from tailscope.extra.trend.metrics import Reading, reading_of
from tailscope.models.differences import mean
from tailscope.models.estimate import LEVEL
from tailscope.store.columns import ABOUT, PLAN
from tailscope.units import count_text, counted, typed_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from tailscope.compare.figures import Figure
    from tailscope.store.catalogue import QueriedRow

MOST_STEPS = 100
"""The newest steps of a series that change points are looked for in: the time that it takes grows
with the cube of their number."""

_TAGS = {"commit": "commit:"}
_ORDERS = "expected time, commit or tag:PREFIX"
_DATE = "%Y-%m-%d %H:%M"

_OF_ITSELF = ("pre", "post", "seed", "repeat", "labels")
"""Columns in which repeated runs of an experiment may differ."""
_OF_THE_MACHINE = ("kernel", "cpu_model", "cpu_count", "clock", "emulated")
_KEY = (*(name for name in {**PLAN, **ABOUT} if name not in _OF_ITSELF), *_OF_THE_MACHINE)
"""Columns in which all runs of an experiment are alike."""
_TELLING = (*(name for name in ABOUT if name not in _OF_ITSELF), "dut", "cpu_model")
_SURROUNDINGS = ("tailscope_version", "kernel_release", "floor_ns_p50")
"""Columns that are told where they change together with a figure."""
_ALWAYS = ("dut", "wire", "platform", "rate_pps")
"""Columns that an experiment is called by, whether or not another one differs in them."""
_SIGNED = re.compile(r"_(ns|pps|bytes)$")


class Order(NamedTuple):
    """The order of runs."""

    prefix: str | None = None
    """Runs with the same tag that begins so are one step; None where each run is a step."""


@dataclass(frozen=True)
class Step:
    """A place in a series."""

    name: str
    """The time its run was written, or the rest of the tag that its runs share."""
    rows: Sequence[QueriedRow]
    """Its runs, as the catalogue has them."""

    @property
    def runs(self) -> list[str]:
        """The names of its runs."""
        return [str(row["run"]) for row in self.rows]

    @property
    def written(self) -> datetime:
        """The time its first run was written."""
        found: datetime = self.rows[0]["written_utc"]
        return found

    def surroundings(self) -> dict[str, str]:
        """Return what may change beside the figures."""
        return {
            name: " / ".join(dict.fromkeys(_text(name, row[name]) for row in self.rows))
            for name in _SURROUNDINGS
        }


@dataclass(frozen=True)
class Series:
    """A figure of an experiment over its steps."""

    figure: Figure
    steps: Sequence[Step]
    """The steps of which it is an estimate; the newest ones, if there are very many."""
    readings: Sequence[Reading]
    """The figure of each."""
    left_out: Sequence[str]
    """Other steps, and why."""


@dataclass(frozen=True)
class Experiment:
    """Runs that differ in nothing that was asked for."""

    title: str
    """The name that tells it from others."""
    steps: Sequence[Step] = field(repr=False)
    """The steps in their order."""

    @property
    def is_told(self) -> bool:
        """True if its runs say anything of their device or machine."""
        return any(self.steps[0].rows[0][column] is not None for column in _TELLING)

    def series(self, figure: Figure) -> Series:
        """A figure over its steps."""
        steps, readings, left_out = [], [], []
        for step in self.steps:
            found = [reading_of(row["summary"], figure) for row in step.rows]
            lacks = [
                f"{run}: {each}"
                for run, each in zip(step.runs, found, strict=True)
                if isinstance(each, str)
            ]
            if lacks:
                left_out += lacks
                continue
            steps.append(step)
            readings.append(_together([each for each in found if isinstance(each, Reading)]))
        if len(steps) > MOST_STEPS:
            older = counted(len(steps) - MOST_STEPS, "older step")
            left_out.insert(0, f"{older}: change points are looked for in {MOST_STEPS}")
        return Series(figure, steps[-MOST_STEPS:], readings[-MOST_STEPS:], left_out)


def _together(readings: Sequence[Reading]) -> Reading:
    """The mean of runs that repeat each other."""
    if len(readings) == 1:
        return readings[0]
    error = (1 - LEVEL) / 2
    as_is = mean([each.as_is for each in readings], error)
    return Reading(as_is, mean([each.least for each in readings], error))


def parse_order(text: str) -> Order:
    """Read ``--by``: ``time``, ``commit`` or ``tag:PREFIX``."""
    if text == "time":
        return Order()
    if text in _TAGS:
        return Order(_TAGS[text])
    before, colon, prefix = text.partition(":")
    if before == "tag" and colon and prefix:
        return Order(prefix)
    raise UsageError(
        f"--by: got {text!r}, {_ORDERS}",
        code="trend-order",
        hint="`tailscope runs tag RUN --add commit:1a2b3c4` says which commit a run is of",
    )


def experiments_of(rows: Iterable[QueriedRow], order: Order) -> tuple[list[Experiment], list[str]]:
    """Sort runs into experiments, and each of these into steps.

    Runs of an experiment are alike in every option, and in processor, kernel flavour and clock.
    Steps are in the order in which their first runs were written.
    """
    left_out = []
    sorted_rows: dict[tuple[object, ...], dict[str, list[QueriedRow]]] = {}
    for row in rows:
        if row["state"] != "complete":
            left_out.append(f"{row['run']}: {row['state']}: {row['problem']}")
            continue
        names = _steps_of(row, order)
        if len(names) != 1:
            several = f"{len(names)} tags that begin" if names else "no tag that begins"
            left_out.append(f"{row['run']}: {several} with {order.prefix}")
            continue
        [name] = names
        key = tuple(row[column] for column in _KEY)
        sorted_rows.setdefault(key, {}).setdefault(name, []).append(row)
    for key, steps in list(sorted_rows.items()):
        if len(steps) == 1:
            [own] = steps.values()
            left_out += [f"{row['run']}: no other step of its experiment" for row in own]
            del sorted_rows[key]
    titles = _titles(list(sorted_rows))
    found = [
        Experiment(title, [Step(_shown(name, order), own) for name, own in steps.items()])
        for title, steps in zip(titles, sorted_rows.values(), strict=True)
    ]
    return sorted(found, key=lambda each: -len(each.steps)), left_out


def _steps_of(row: QueriedRow, order: Order) -> list[str]:
    """Return the names of the steps of a run: its tags, or in order of time the run itself."""
    if order.prefix is None:
        return [f"{row['written_utc']:{_DATE}} {row['run']}"]
    tags = [tag for tag in row["tags"] if tag.startswith(order.prefix)]
    return [tag.removeprefix(order.prefix) or tag for tag in tags]


def _shown(name: str, order: Order) -> str:
    return name[: len("2025-12-31 23:59")] if order.prefix is None else name


def _titles(keys: Sequence[tuple[object, ...]]) -> list[str]:
    """Name experiments by some columns always, and by those in which they differ."""
    differing = {name for at, name in enumerate(_KEY) if len({key[at] for key in keys}) > 1}
    return [
        ", ".join(_parts(dict(zip(_KEY, key, strict=True)), differing)) or "captures"
        for key in keys
    ]


def _parts(values: Mapping[str, object], differing: set[str]) -> Iterator[str]:
    for name in (*_ALWAYS, *(name for name in _KEY if name in differing - set(_ALWAYS))):
        value = values[name]
        if name in differing or value is not None:
            yield f"{_SIGNED.sub('', name)}={_text(name, value)}"


def _text(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("_ns") or "_ns_" in name:
        return typed_duration(value)
    return count_text(value) if isinstance(value, int) else str(value)
