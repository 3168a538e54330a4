"""An experiment as a file says it: what is fixed, what varies, how often, in what order."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypeAlias, get_args

import msgspec
import yaml
from msgspec import UNSET, Meta, Struct, UnsetType, defstruct, field
from msgspec.structs import replace

from tailscope import registry
from tailscope.exceptions import UsageError
from tailscope.experiment.campaign.typed import WrongError, typed
from tailscope.experiment.fields import FIELDS, TRAFFIC
from tailscope.paths import refuse_absent
from tailscope.plan.field import NAME, Scalar
from tailscope.plan.yaml_file import read_yaml
from tailscope.units import refuse_unknown, value_label

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tailscope.plan.field import Field

Name: TypeAlias = Annotated[
    str,
    Meta(
        # Python's $ would let a line's end pass.
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$(?!\n)",
        extra={"expected": "a name of letters, digits and . _ -"},
    ),
]
_Value: TypeAlias = Annotated[Scalar, Meta(extra={"expected": "a text, a number, true or false"})]
_LEVEL = re.compile(
    r"(p\d+(\.\d+)?|median|mean|max|loss|reordered|duplicated)\s*(<=?|=)\s*[0-9.]+(e-?\d+)?(ns|us|ms|s|%)?"
)
_LEVEL_NAMES = ("urllc-itu", "urllc-22.104", "nf-350us")
_TRAFFIC = "traffic"
"""The block that fields of traffic may stand in."""

Given: TypeAlias = dict[str, Any]
"""Fields and their values, as a file has them."""


def _written(declared: Field) -> Any:
    """The type of what a file may have in a field."""
    names = declared.choices
    if declared.has_names:
        name: Any = str if names is None else _one_of(names)
        value: Any = Annotated[
            get_args(declared.kind.written)[1],
            Meta(ge=declared.least, extra={"expected": declared.expected(of_one=True)}),
        ]
        listed = None if names is None else {"propertyNames": {"enum": list(names)}}
        return Annotated[dict[name, value], Meta(extra_json_schema=listed)]
    if names is not None and declared.more_may_follow:
        pattern = rf"^({'|'.join(names)})(-[A-Za-z0-9.+~_-]+)?$(?!\n)"
        return Annotated[str, Meta(pattern=pattern, extra={"expected": declared.expected()})]
    if names is not None:
        # YAML takes `on` and `off` for true and false.
        return _one_of(names) | bool if "on" in names else _one_of(names)
    if declared.kind.written is int and declared.least is not None:
        return Annotated[int, Meta(ge=declared.least, le=declared.most)]
    return declared.kind.written


def _one_of(names: tuple[str, ...]) -> Any:
    return Annotated[Literal[names], Meta(extra={"expected": f"one of {', '.join(names)}"})]


def _entry(declared: Field) -> tuple[str, object, None]:
    """A field that may be missing."""
    default = declared.default_text
    usual = "" if default is None else f" Default: {default}."
    about = Meta(description=declared.about + usual, extra={"expected": declared.expected()})
    return declared.name, Annotated[_written(declared) | None, about], None


class Section(Protocol):
    """A section that a folder of `tailscope.extra` adds."""

    def record(self) -> dict[str, object]:
        """Return what ``campaign.json`` says of it."""


class _Part(Struct, frozen=True, forbid_unknown_fields=True):
    """Fields of a file, and their values."""


class _Block(_Part, frozen=True):
    def given(self) -> Given:
        """Return the fields that are set."""
        found = {}
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if name in FIELDS and value is not None:
                is_name = FIELDS[name].kind is NAME and isinstance(value, bool)
                found[name] = value_label(value) if is_name else value
        return found

    def __post_init__(self) -> None:
        """Refuse what only its declaration can check: a number, or a text for several."""
        for name, value in self.given().items():
            if FIELDS[name].otherwise is not None:
                _check(FIELDS[name], value)


def _check(declared: Field, value: object) -> None:
    try:
        found = declared.read(value)
        if not isinstance(found, str):
            declared.check(found)
    except UsageError as error:
        expected = str(error).partition("expected ")[2]
        raise WrongError(
            [declared.name], f"got {value!r}, expected {expected}", code=error.code
        ) from None


if TYPE_CHECKING:
    Traffic = _Block
else:
    Traffic = defstruct(
        "Traffic",
        map(_entry, TRAFFIC.values()),
        bases=(_Block,),
        namespace={"__doc__": "Fields of the traffic."},
    )


class _Fields(_Block, frozen=True, kw_only=True):
    traffic: Annotated[
        Traffic, Meta(description="Fields of the traffic, in a block of their own.")
    ] = field(default_factory=Traffic)

    def given(self) -> Given:
        """Return the fields that are set, those in the block of traffic included."""
        found = super().given() | self.traffic.given()
        return {name: found[name] for name in FIELDS if name in found}

    def __post_init__(self) -> None:
        """Refuse what stands in both places, too."""
        super().__post_init__()
        for name in self.traffic.given():
            if getattr(self, name) is not None:
                raise WrongError(
                    [_TRAFFIC, name], "it also stands outside of traffic", code="field-twice"
                )


if TYPE_CHECKING:
    Fields = _Fields
else:
    Fields = defstruct(
        "Fields",
        map(_entry, FIELDS.values()),
        bases=(_Fields,),
        namespace={"__doc__": "The fields of a run."},
    )

_Values: TypeAlias = Annotated[
    list[_Value] | dict[str, Fields] | None,
    Meta(extra={"expected": "a list of values, or labels with fields"}),
]
_Exclusions: TypeAlias = Annotated[
    list[
        dict[str, Annotated[_Value | list[_Value], Meta(extra={"expected": "a value or several"})]]
    ],
    Meta(description="Combinations to leave out: variables and their values."),
]
_Repeats: TypeAlias = Annotated[
    int, Meta(ge=1, le=1000, description="Number of repetitions of each combination.")
]


class _Matrix(_Part, frozen=True):
    fixed: Annotated[Fields, Meta(description="Fields common to all runs.")] = field(
        default_factory=Fields
    )
    vary: Annotated[
        dict[str, _Values],
        Meta(
            description="Variables: a field with a list of values (an option as dut_options.NAME),"
            " or a name of your own with labels, each of which sets several fields. All"
            " combinations are run."
        ),
    ] = field(default_factory=dict)


class Profile(_Matrix, frozen=True):
    """A variant: its fields replace those of the experiment, one by one."""

    exclude: _Exclusions | UnsetType = UNSET
    repeats: _Repeats | UnsetType = UNSET
    about: Annotated[str, Meta(description="Purpose of the profile.")] = ""


class Experiment(_Matrix, frozen=True, kw_only=True):
    """An experiment of tailscope."""

    exclude: _Exclusions = field(default_factory=list)
    repeats: _Repeats = 1
    name: Annotated[Name, Meta(description="Name of the experiment.")]
    about: Annotated[str, Meta(description="Purpose and origin of the experiment.")] = ""
    service_levels: Annotated[
        list[str], Meta(description="Service levels that each cell must meet.")
    ] = field(default_factory=list)
    order: Annotated[
        Literal["shuffled", "as-written"],
        Meta(description="Shuffled, so that drift of the machine does not become a result."),
    ] = "shuffled"
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1, description="Seed of the shuffling.")] = 1
    profiles: Annotated[dict[str, Profile], Meta(description="Variants, chosen by --profile.")] = (
        field(default_factory=dict)
    )

    def __post_init__(self) -> None:
        """Refuse what is no service level."""
        for at, level in enumerate(self.service_levels):
            if level not in _LEVEL_NAMES and not _LEVEL.fullmatch(level):
                raise WrongError(
                    ["service_levels", at],
                    f"got {level!r}, expected a bound such as p99.999<1ms, loss<1e-5, max<2ms or"
                    f" reordered=0, or one of {', '.join(_LEVEL_NAMES)}",
                    code="service-level",
                )

    @property
    def sections(self) -> dict[str, Section]:
        """The sections of folders of `tailscope.extra` that the file has."""
        added = {name: getattr(self, name, None) for name in registry.sections()}
        return {name: section for name, section in added.items() if section is not None}


@cache
def _with_sections() -> type[Experiment]:
    """An experiment with what folders of `tailscope.extra` add to it."""
    added = [(name, kind, None) for name, kind in registry.sections().items()]
    about = {"__doc__": Experiment.__doc__}
    whole: type[Any] = defstruct(
        "Experiment", added, bases=(Experiment,), namespace=about, kw_only=True
    )
    return whole


_SEE = "`tailscope schema` has every field, with its meaning and its values"
_NO_FILE = "`tailscope run --dut NAME` makes a single run without an experiment"


class Document:
    """The text of an experiment, and where in it things stand."""

    def __init__(self, path: Path) -> None:
        self.path = path
        refuse_absent(path, UsageError, "no-such-file", _NO_FILE)
        found = read_yaml(path)
        self._node, self.content, self.kind = found.node, found.content, found.kind

    def error(
        self,
        where: Sequence[str | int],
        message: str,
        *,
        code: str = "field-value",
        hint: str | None = None,
    ) -> UsageError:
        """Return the error about the field at `where`, with its line."""
        field = ".".join(str(part) for part in where)
        if hint is None and code == "unknown-field" and field in Fields.__struct_fields__:
            hint = f"`{field}` belongs below `fixed`, or with a list of values below `vary`"
        return UsageError(
            f"{self.path}:{self._line(where)}: {field}: {message}", code=code, hint=hint or _SEE
        )

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
        raise UsageError(
            f"{path}: got {document.kind}, expected an experiment: fields and their values",
            code="not-an-experiment",
            hint=f"`{{name: first, fixed: {{dut: l2fwd}}}}` is a whole one; {_SEE}",
        )
    try:
        experiment = typed(document.content, _with_sections())
    except WrongError as wrong:
        raise document.error(wrong.where, wrong.message, code=wrong.code) from None
    if profile is not None:
        refuse_unknown(
            "--profile", profile, experiment.profiles, "no-such-profile", of=f"those of {path}"
        )
        experiment = _with_profile(experiment, experiment.profiles[profile])
    return experiment, document


def schema() -> dict[str, object]:
    """The JSON Schema of an experiment, for editors."""
    return schema_of(_with_sections())


def schema_of(kind: type[Experiment]) -> dict[str, object]:
    """The JSON Schema of an experiment, with or without what folders add to it."""
    parts = msgspec.json.schema(kind)["$defs"]
    return {**parts.pop(kind.__name__), "$defs": parts}


def _with_profile(experiment: Experiment, profile: Profile) -> Experiment:
    fixed = profile.fixed.given()
    vary = {
        name: values
        for name, values in {**experiment.vary, **profile.vary}.items()
        if values is not None and name not in fixed
    }
    own = {"exclude": profile.exclude, "repeats": profile.repeats}
    return replace(
        experiment,
        fixed=Fields(**experiment.fixed.given() | fixed),
        vary=vary,
        **{name: value for name, value in own.items() if value is not UNSET},
    )
