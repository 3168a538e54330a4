"""An experiment as a file says it: what is fixed, what varies, how often, in what order."""

from __future__ import annotations

import difflib
import re
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_args

import yaml
from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError

from tailscope.exceptions import UsageError
from tailscope.experiment.fields import FIELDS, TRAFFIC, field_named
from tailscope.plan.field import Scalar  # noqa: TC001 - pydantic reads annotations as it runs
from tailscope.plan.yaml_file import read_yaml
from tailscope.units import positive_duration_ns, value_label

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from pydantic_core import ErrorDetails

    from tailscope.plan.field import Field as Declared

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
_LEVEL = re.compile(
    r"(p\d+(\.\d+)?|median|mean|max|loss|reordered|duplicated)\s*(<=?|=)\s*[0-9.]+(e-?\d+)?(ns|us|ms|s|%)?"
)
_TYPES = re.compile(r"(list|dict|function-\w+)\[.*\]|str|int|float|bool|Fields")
_EXPECTED = {
    "string_type": "a text",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "names with values",
    "model_type": "fields and their values",
    "literal_error": "{expected}",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
    "string_pattern_mismatch": "a name of letters, digits and . _ -",
}
"""For pydantic's kind of an error, what is allowed instead."""
_LEVEL_NAMES = ("urllc-itu", "urllc-22.104", "nf-350us")


def _one_of(names: Iterable[str]) -> Any:
    known = tuple(names)

    def check(value: str) -> str:
        if value not in known:
            raise ValueError(f"expected one of {', '.join(known)}")
        return value

    return Annotated[
        str,
        # YAML takes `on` and `off` for true and false.
        BeforeValidator(lambda value: value_label(value) if isinstance(value, bool) else value),
        AfterValidator(check),
        WithJsonSchema({"type": "string", "enum": list(known)}),
    ]


def _level(value: str) -> str:
    if value not in _LEVEL_NAMES and not _LEVEL.fullmatch(value):
        raise ValueError(
            "expected a bound such as p99.999<1ms, loss<1e-5, max<2ms or reordered=0, or one of"
            f" {', '.join(_LEVEL_NAMES)}"
        )
    return value


_TRAFFIC = "traffic"
"""The block that fields of traffic may stand in."""


def _wrong(message: str) -> PydanticCustomError:
    """An error whose words are ours."""
    return PydanticCustomError("in_traffic", "{message}", {"message": message})


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)


def _written(declared: Declared) -> Any:
    """What a file may have in a field, as pydantic wants it said."""
    choices = None if declared.choices is None else _one_of(declared.choices)
    if declared.has_names:
        _, value = get_args(declared.kind.written)
        return dict[choices or str, _bounded(value, declared)]  # type: ignore[misc]
    if declared.otherwise is not None:
        return Annotated[declared.kind.written, AfterValidator(partial(_checked, declared))]
    return choices or _bounded(declared.kind.written, declared)


def _checked(declared: Declared, value: object) -> object:
    """A number or a text that a plan may have."""
    try:
        found = declared.read(value)
        if not isinstance(found, str):
            declared.check(found)
    except UsageError as error:
        raise ValueError(f"expected {str(error).partition('expected ')[2]}") from None
    return value


def _bounded(kind: Any, declared: Declared) -> Any:
    if kind is not int or declared.least is None:
        return kind
    return Annotated[int, Field(ge=declared.least, le=declared.most)]


def _entry(declared: Declared) -> Any:
    """A field that may be missing, under its name or the older one."""
    names = AliasChoices(declared.name, declared.formerly) if declared.formerly else None
    default = declared.default_text
    usual = "" if default is None else f" Default: {default}."
    about = Field(None, description=declared.about + usual, validation_alias=names)
    return (_written(declared) | None, about)


def _add_others(schema: dict[str, Any]) -> None:
    """Add older names, and the block of traffic."""
    fields = schema["properties"]
    fields[_TRAFFIC] = {
        "type": "object",
        "description": "Fields of the traffic, in a block of their own.",
        "properties": {name: fields[name] for name in TRAFFIC},
        "additionalProperties": False,
    }
    for name, declared in FIELDS.items():
        if declared.formerly is not None:
            about = {"description": f"Older name of {name}.", "deprecated": True}
            fields[declared.formerly] = {**fields[name], **about}


class _Fields(_Model):
    model_config = ConfigDict(json_schema_extra=_add_others)

    @model_validator(mode="before")
    @classmethod
    def _with_traffic(cls, content: object) -> object:
        """Take the fields in the block of traffic for what they are."""
        if not isinstance(content, dict) or _TRAFFIC not in content:
            return content
        others = {name: value for name, value in content.items() if name != _TRAFFIC}
        block = content[_TRAFFIC]
        if not isinstance(block, dict):
            raise _wrong(f"traffic: got {block!r}, expected fields and their values")
        for name in block:
            if name not in TRAFFIC:
                near = difflib.get_close_matches(str(name), TRAFFIC, 1)
                meant = f"; did you mean {near[0]}?" if near else ""
                known = ", ".join(TRAFFIC)
                raise _wrong(f"traffic.{name}: unknown field, expected one of {known}{meant}")
            if name in others:
                raise _wrong(f"traffic.{name}: it also stands outside of traffic")
        return {**others, **block}


if TYPE_CHECKING:

    class Fields(_Fields):
        """The fields of a run."""
else:
    Fields = create_model(
        "Fields",
        __base__=_Fields,
        __module__=__name__,
        __doc__="The fields of a run.",
        **{name: _entry(declared) for name, declared in FIELDS.items()},
    )


class Host(_Model):
    """A machine with a role."""

    ssh: str | None = None
    """USER@ADDRESS or a name from your ssh configuration; this machine by default."""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Port of its sshd."""
    cards: list[str] = Field(min_length=2, max_length=2)
    """Two network cards: PCI addresses for DPDK, or links of the kernel. Of the load generator:
    sending, receiving; of the device: receiving, sending; of the timestamper: what goes to the
    device, and what comes from it."""
    command: str = "tailscope"
    """Command that starts tailscope on that machine."""
    cpus: str | int | None = None
    """CPUs to poll on, such as '2,3': one, or for the device as many as it polls on."""


def _time(value: str) -> str:
    try:
        positive_duration_ns(value, "wait")
    except UsageError:
        raise ValueError("expected a time such as 600s") from None
    return value


class Boot(_Model):
    """How the machine is rebooted: for once each time, so that a power cycle boots as before."""

    how: Literal["grub", "systemd-boot", "kexec", "command"]
    """grub, systemd-boot or kexec on the machine, as root; or a command of yours on this one."""
    kernels: dict[Literal["default", "vanilla", "rt", "nohz"], Name] = Field(default_factory=dict)
    """Release (as `uname -r` prints it) of each kernel that cells name; default is for cells that
    name parameters, but no kernel. nohz is vanilla by default. Required, except with command."""
    command: list[str] | None = Field(None, min_length=1)
    """Command that reboots the machine, run on this one without a shell. It is given
    the kernel's release or name (default for the machine's own boot), then each parameter."""
    wait: Annotated[str, AfterValidator(_time)] = "600s"
    """Time limit for the machine to come back."""
    power_cycle: list[str] | None = Field(None, min_length=1)
    """Command that switches a machine off and on if it does not come back, such as ipmitool's; run
    on this one without a shell."""

    @model_validator(mode="after")
    def _has_a_command(self) -> Self:
        if (self.how == "command") != (self.command is not None):
            raise ValueError("expected command with how: command, and only then")
        return self


class Dut(Host):
    """The machine of the device."""

    boot: Boot | None = None
    """How to boot the kernels and parameters of cells; it is never rebooted by default."""
    vfs: Literal["kernel", "vfio-pci"] | None = None
    """Make a virtual function (SR-IOV) of each card, and use it in place of the card: as a link of
    the kernel, or by vfio-pci for DPDK and guests. They are removed afterwards."""


class Timestamper(Host):
    """A machine that only watches, by TAPs."""

    method: Literal["auto", "socket", "tcpdump", "stamp"] = "auto"
    """Program that records frames: tailscope-dp socket or tcpdump (links), or tailscope-dp stamp
    (PCI addresses)."""


class Hosts(_Model):
    """A laboratory of up to three machines."""

    loadgen: Host
    dut: Dut
    timestamper: Timestamper


class _Matrix(_Model):
    fixed: Fields = Fields()
    """Fields common to all runs."""
    vary: dict[str, list[Scalar] | dict[str, Fields] | None] = Field(default_factory=dict)
    """Variables: a field with a list of values (an option as dut_options.NAME), or a name of your
    own with labels, each of which sets several fields. All combinations are run."""
    exclude: list[dict[str, Scalar | list[Scalar]]] = Field(default_factory=list)
    """Combinations to leave out: variables and their values."""
    repeats: int = Field(1, ge=1, le=1000)
    """Number of repetitions of each combination."""


class Profile(_Matrix):
    """A variant: its fields replace those of the experiment, one by one."""

    about: str = ""
    """Purpose of the profile."""


class Experiment(_Matrix):
    """An experiment of tailscope."""

    name: Name
    """Name of the experiment."""
    about: str = ""
    """Purpose and origin of the experiment."""
    service_levels: list[Annotated[str, AfterValidator(_level)]] = Field(default_factory=list)
    """Service levels that each cell must meet."""
    order: Literal["shuffled", "as-written"] = "shuffled"
    """Shuffled, so that drift of the machine does not become a result."""
    seed: int = Field(1, ge=0)
    """Seed of the shuffling."""
    hosts: Hosts | None = None
    """Machines of a laboratory; this machine by default."""
    profiles: dict[str, Profile] = Field(default_factory=dict)
    """Variants, chosen by --profile."""


class Document:
    """The text of an experiment, and where in it things stand."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            found = read_yaml(path)
        except FileNotFoundError:
            raise UsageError(
                f"{path}: there is no such file",
                hint="expected an experiment; `tailscope run --dut NAME` makes a single run",
            ) from None
        self._node, self.content = found.node, found.content

    def error(self, where: Sequence[str | int], message: str) -> UsageError:
        """Say what is wrong with the thing at `where`, and on which line that is."""
        named = ".".join(str(part) for part in where)
        return UsageError(f"{self.path}:{self._line(where)}: {named}: {message}")

    def _line(self, where: Sequence[str | int]) -> int:
        node, line = self._node, 1
        for part in where:
            found = None
            if isinstance(node, yaml.MappingNode):
                for key, value in _entries(node):
                    if key.value == str(part):
                        found, line = value, key.start_mark.line + 1
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
                found = node.value[part] if part < len(node.value) else None
                line = line if found is None else found.start_mark.line + 1
            if found is None:
                break
            node = found
        return line


def _entries(node: yaml.MappingNode) -> Iterator[tuple[yaml.Node, yaml.Node]]:
    """Names and values, those in a block of traffic included."""
    for key, value in node.value:
        yield key, value
        if key.value == _TRAFFIC and isinstance(value, yaml.MappingNode):
            yield from value.value


def load_experiment(path: Path, profile: str | None = None) -> tuple[Experiment, Document]:
    """Read an experiment."""
    document = Document(path)
    if not isinstance(document.content, dict):
        names = {type(None): "an empty file", list: "a list"}
        found = names.get(type(document.content), "a single value")
        raise UsageError(f"{path}: got {found}, expected an experiment: fields and their values")
    try:
        experiment = Experiment.model_validate(document.content)
    except ValidationError as error:
        raise _said(document, error) from None
    if profile is not None:
        if profile not in experiment.profiles:
            known = ", ".join(experiment.profiles) or "none"
            raise UsageError(
                f"--profile: got {profile!r}, expected one of those of {path}: {known}"
            )
        experiment = _with_profile(experiment, experiment.profiles[profile])
    return experiment, document


def schema() -> dict[str, Any]:
    """The JSON Schema of an experiment, for editors."""
    return Experiment.model_json_schema()


def _with_profile(experiment: Experiment, profile: Profile) -> Experiment:
    fixed = {
        **experiment.fixed.model_dump(exclude_none=True),
        **profile.fixed.model_dump(exclude_none=True),
    }
    vary = {
        name: values
        for name, values in {**experiment.vary, **profile.vary}.items()
        if values is not None and name not in profile.fixed.model_dump(exclude_none=True)
    }
    changes: dict[str, Any] = {"fixed": Fields.model_validate(fixed), "vary": vary}
    for name in ("exclude", "repeats"):
        if name in profile.model_fields_set:
            changes[name] = getattr(profile, name)
    return experiment.model_copy(update=changes)


def _said(document: Document, error: ValidationError) -> UsageError:
    """The first of pydantic's complaints, in our words."""
    places = [([each for each in one["loc"] if not _is_type(each)], one) for one in error.errors()]
    first = places[0][0]
    # Of a choice of several, the one that came furthest is the one that was meant.
    within = [place for place in places if place[0][: len(first)] == first]
    where, found = max(within, key=lambda place: len(place[0]))
    kind = found["type"]
    if kind == "extra_forbidden":
        known = _known(where[:-1])
        current = _current_name(str(where[-1])) if known == [*Fields.model_fields] else None
        if current is not None:
            text = f"{where[-1]} is the older name of {current}: give one of them"
            return document.error(where, text)
        near = difflib.get_close_matches(str(where[-1]), known, 1)
        meant = f"; did you mean {near[0]}?" if near else ""
        message = f"unknown field, expected one of {', '.join(known)}{meant}"
    elif kind == "invalid_key":
        message = f"got {found['input']!r}, expected the name of a field"
        if "cpus" in _known(where[:-1]):
            message += "; in braces, a list of CPUs needs quotes, such as '1,3'"
    elif kind == "missing":
        message = "it is missing"
    elif kind == "in_traffic":
        message = found["msg"]
        where = [*where, _TRAFFIC]
    else:
        message = complaint(found, where)
    return document.error(where, message)


def complaint(found: ErrorDetails, where: Sequence[str | int]) -> str:
    """What pydantic found wrong with the value at `where`, in our words."""
    message = found["msg"].removeprefix("Value error, ")
    expected = None if found["type"] == "value_error" else _expected(where)
    if expected is None and found["type"] in _EXPECTED:
        expected = _EXPECTED[found["type"]].format(**found.get("ctx", {}))
    if expected is not None:
        message = f"expected {expected}"
    between = "," if message.startswith("expected ") else ":"
    return f"got {found['input']!r}{between} {message[:1].lower()}{message[1:]}"


def _expected(where: Sequence[str | int]) -> str | None:
    """What the field at `where` may have; None if that is not the field of a run."""
    inner = [*where[2:]] if where[:1] == ["profiles"] else [*where]
    if inner[:1] == ["fixed"]:
        inner = inner[1:]
    elif inner[:1] == ["vary"]:
        # A list of values stands behind the field itself; labels have fields of their own.
        is_list = len(inner) == 3 and isinstance(inner[2], int)
        inner = [*str(inner[1]).split(".")] if is_list else inner[3:]
    else:
        return None
    declared = field_named(str(inner[0])) if inner else None
    return None if declared is None else declared.expected(of_one=len(inner) > 1)


def _current_name(former: str) -> str | None:
    """The name of a field by its older one."""
    declared = field_named(former)
    return declared.name if declared is not None and declared.formerly == former else None


def _is_type(part: str | int) -> bool:
    """Whether it is pydantic's name for one choice of several, not a place in the file."""
    return isinstance(part, str) and (part == "[key]" or bool(_TYPES.fullmatch(part)))


def _known(where: Sequence[str | int]) -> list[str]:
    last = [part for part in where if isinstance(part, str)]
    if not last:
        return list(Experiment.model_fields)
    if "fixed" in last or "vary" in last:
        return list(Fields.model_fields)
    if "hosts" in last:
        models: dict[str, type[BaseModel]] = {
            "timestamper": Timestamper,
            "dut": Dut,
            "boot": Boot,
            "hosts": Hosts,
        }
        return list(models.get(last[-1], Host).model_fields)
    return list(Profile.model_fields)
