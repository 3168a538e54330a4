"""Fields of a run: reading and writing of values, meaning, and what is allowed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias, get_args, get_origin

from msgspec.structs import fields

from tailscope.exceptions import UsageError
from tailscope.units import (
    duration_ns,
    frame_size,
    positive_duration_ns,
    rate_pps,
    refuse_unknown,
    typed_duration,
)

if TYPE_CHECKING:
    from msgspec import Struct

Scalar: TypeAlias = str | int | float | bool
Value: TypeAlias = str | int | bool | Mapping[str, str] | Mapping[str, int] | None
"""Types that a plan can hold in a field."""
Group: TypeAlias = Literal["dut", "traffic", "measurement", "host", "analysis"]

_UNITS = {"ns": "ns", "pps": "packets/s", "bytes": "bytes"}
"""Unit of a value by the end of its attribute's name."""


def _as_it_is(value: Value, option: str) -> Value:  # noqa: ARG001
    return value


def _named(value: Value, option: str) -> Value:  # noqa: ARG001
    """A name; YAML takes `on` and `off` for true and false."""
    return _text(value) if isinstance(value, bool) else value


def _listed(value: str | int, option: str) -> str:  # noqa: ARG001
    """Read a list; a single value may be a number."""
    return str(value)


def _texts(value: Mapping[str, Scalar], option: str) -> dict[str, str]:  # noqa: ARG001
    return {name: _text(one) for name, one in value.items()}


def _text(value: Scalar) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def _workers(value: Mapping[str, str | int], option: str) -> dict[str, int]:
    found = {}
    for kind, number in value.items():
        if not str(number).isdecimal():
            raise UsageError(
                f"{option} {kind}: got {number!r}, expected a number of workers",
                code="worker-count",
            )
        found[kind] = int(number)
    return found


@dataclass(frozen=True)
class Kind:
    """A kind of value: how it is written and read."""

    metavar: str
    """Placeholder of the value in help."""
    expected: str
    """Description of a value with an example, for errors."""
    written: object
    """Types that an experiment file may have: a dict for names with values, which the command line
    has as ``NAME=VALUE``, once for each."""
    read: Callable[..., Value]
    """Makes the value of a plan from a written one. Its second argument is the option's name, which
    errors begin with."""
    write: Callable[..., str] = str
    """Makes the text that `read` reads as the value; of each value where there are names."""


NAME = Kind("NAME", "a name", str, _named)
TEXT = Kind("TEXT", "a text", str, _as_it_is)
COUNT = Kind("N", "a whole number", int, _as_it_is)
SWITCH = Kind("", "true or false", bool, _as_it_is)
CPUS = Kind("LIST", "a list of CPUs such as 1,3-5", str | int, _listed)
RATE = Kind("PPS", "a rate such as 10k, 1Mpps or 1Gbps", str | int, rate_pps)
DURATION = Kind("TIME", "a time such as 5s", str, duration_ns, typed_duration)
LENGTH = Kind("TIME", "a time such as 5s", str, positive_duration_ns, typed_duration)
"""A duration of at least 1 ns."""
SIZE = Kind("SIZE", "a size such as 64, imix, or a mix such as 64:7,594:4", str | int, frame_size)
VALUES = Kind("LIST", "a value, a range such as 1024..1123, or a list", str | int, _listed)
OPTIONS = Kind("NAME=VALUE", "options such as {name: value}", dict[str, Scalar], _texts)
WORKERS = Kind("KIND=N", "numbers of workers such as {cpu: 1}", dict[str, int], _workers)


@dataclass(frozen=True)
class Field:
    """A field of a run."""

    kind: Kind
    group: Group
    """The section of help that it stands in."""
    help: str
    """Meaning; ``{choices}`` stands for what is allowed."""
    on: tuple[str, ...] = ("run",)
    """Commands that have it as an option. Experiment files have what ``run`` has. Empty for an
    argument."""
    given_as: str | None = None
    """The name of its option, if it is not that of the field."""
    short: str | None = None
    """A second name of its option, of one letter."""
    placeholder: str | None = None
    """Placeholder of the value in help, if not that of the kind."""
    shown_default: str | None = None
    """The default in words, where the value does not say it."""
    choices: tuple[str, ...] | None = None
    """All that is allowed; of names with values, the names."""
    more_may_follow: bool = False
    """True if a hyphen and more may follow a choice."""
    least: int | None = None
    most: int | None = None
    """Range of a number, or of each number of names with values."""
    measured_in: str | None = None
    """The unit, if the attribute's name does not end in it."""
    otherwise: str | None = None
    """The attribute that holds a value that is a text, where this one holds numbers: a mix of
    sizes."""
    is_column: bool = True
    """True if the catalogue's table ``run`` has it as a column."""
    attribute: str = ""
    """Name of the attribute of a plan, with the unit last: ``rate_pps``."""
    held: type = str
    """Type of the plan's value, without None."""
    default: Value = None
    """Default value of a plan."""

    @property
    def name(self) -> str:
        """Return its name for people, in experiment files too: ``rate``."""
        stem, _, unit = self.attribute.rpartition("_")
        return stem if unit in _UNITS else self.attribute

    @property
    def unit(self) -> str:
        """The unit of the plan's value; empty where it has none."""
        return self.measured_in or _UNITS.get(self.attribute.rpartition("_")[2], "")

    @property
    def has_names(self) -> bool:
        """Return whether it holds values by name."""
        return get_origin(self.kind.written) is dict

    @property
    def option(self) -> str:
        """The name of its option: ``--rate``."""
        # One that is given once for each name has its name in the singular.
        name = self.name.removesuffix("s") if self.has_names else self.name
        return self.given_as or f"--{name.replace('_', '-')}"

    @property
    def metavar(self) -> str:
        """The placeholder for the value in help."""
        return self.placeholder or self.kind.metavar

    @property
    def about(self) -> str:
        """Return its meaning, with what is allowed."""
        return self.help.replace("{choices}", " or ".join(self._listed()))

    @property
    def default_text(self) -> str | None:
        """The default as people write it; None where there is none to speak of."""
        if self.shown_default is not None:
            return self.shown_default
        has_none = self.default is None or self.kind is SWITCH or self.has_names
        return None if has_none else self.kind.write(self.default)

    @property
    def range_text(self) -> str | None:
        """Return what is allowed, as ``one of cbr, poisson`` or ``1 to 512 packets``, or None."""
        if self.choices is not None and not self.has_names:
            names = self.choices
            return " or ".join(names) if len(names) == 2 else f"one of {', '.join(names)}"
        if self.least is None:
            return None
        low = f"at least {self.least}" if self.most is None else f"{self.least} to {self.most}"
        unit = self.unit
        if self.most is None and self.least == 1:
            unit = unit.replace("packets", "packet")
        return f"{low} {unit}".strip()

    def expected(self, *, of_one: bool = False) -> str:
        """Return what a file may have, for errors; with `of_one`, behind one of several names."""
        if of_one:
            return self.range_text or "a text, a number, true or false"
        is_limited = self.kind in (NAME, COUNT)
        return (self.range_text if is_limited else None) or self.kind.expected

    def read(self, value: object) -> Value:
        """Make the plan's value of one as people write it."""
        return self.kind.read(value, self.option)

    def words(self, value: Value) -> list[str]:
        """Return the words of a command line that give a plan this value."""
        if value is None or value is False:
            return []
        if value is True:
            return [self.option]
        if isinstance(value, Mapping):
            given = [f"{name}={self.kind.write(one)}" for name, one in value.items()]
            return [word for each in given for word in (self.option, each)]
        return [self.option, self.kind.write(value)]

    def check(self, value: Value) -> None:
        """See that a plan may have this value."""
        if value is None:
            return
        if isinstance(value, Mapping):
            self._check_names(value)
            return
        if self.choices is not None:
            head, _, more = str(value).partition("-")
            name = head if self.more_may_follow and more else str(value)
            refuse_unknown(self.option, name, self.choices, "unknown-name")
        elif self.least is not None and not self._is_within(value):
            raise UsageError(
                f"{self.option}: got {value!r}, expected {self.range_text}", code="out-of-range"
            )

    def _check_names(self, value: Mapping[str, str] | Mapping[str, int]) -> None:
        for name, one in value.items():
            if self.choices is not None:
                refuse_unknown(self.option, name, self.choices, "unknown-name")
            if self.least is not None and not self._is_within(one):
                raise UsageError(
                    f"{self.option} {name}: got {one!r}, expected {self.range_text}",
                    code="out-of-range",
                )

    def _is_within(self, value: Value) -> bool:
        assert isinstance(value, int) and self.least is not None
        return self.least <= value and (self.most is None or value <= self.most)

    def _listed(self) -> list[str]:
        """Return what is allowed, so that `` or `` joins it."""
        names = [*(self.choices or ())]
        return [", ".join(names[:-1]), names[-1]] if len(names) > 1 else names


@cache
def fields_of(struct: type[Struct]) -> Mapping[str, Field]:
    """The declared fields of a struct, by attribute; what is declared nowhere else is left out."""
    found = {}
    for info in fields(struct):
        held, *about = get_args(info.type) if get_origin(info.type) is Annotated else (info.type,)
        for declared in about:
            if not isinstance(declared, Field):
                continue
            plain = next(each for each in (*get_args(held), held) if each is not type(None))
            if get_origin(held) is dict:
                plain = dict
            default = {} if info.default_factory is dict else info.default
            found[info.name] = replace(
                declared,
                attribute=info.name,
                held=plain,
                default=None if info.required else default,
            )
    return found


def check_declared(record: Struct, declaring: type[Struct]) -> None:
    """Check the values of a record that are declared with a least; a `ValueError` is msgspec's."""
    for name, declared in fields_of(declaring).items():
        if declared.least is not None:
            try:
                declared.check(getattr(record, name))
            except UsageError as error:
                raise ValueError(f"{name}: {error}") from None
