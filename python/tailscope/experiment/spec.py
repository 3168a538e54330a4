"""An experiment as a file says it: what is fixed, what varies, how often, in what order."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
)

from tailscope.duts.catalogue import DUTS
from tailscope.exceptions import UsageError
from tailscope.experiment.plan import LOADS, PATTERNS
from tailscope.host.kernel import KERNELS
from tailscope.noise.recorder import NOISE
from tailscope.platforms.catalogue import PLATFORMS
from tailscope.testbed.neighbours import KINDS
from tailscope.testbed.wires import WIRES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

__all__ = ["Document", "Experiment", "Fields", "Host", "Hosts", "load_experiment", "schema"]

Scalar = str | int | float | bool
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
_LEVEL = re.compile(
    r"(p\d+(\.\d+)?|median|mean|max|loss|reordered|duplicated)\s*(<=?|=)\s*[0-9.]+(e-?\d+)?(ns|us|ms|s|%)?"
)
_TYPES = re.compile(r"(list|dict|function-\w+)\[.*\]|str|int|float|bool|Fields")
_LEVEL_NAMES = ("urllc-itu", "urllc-22.104", "nf-350us")


def _one_of(names: Iterable[str]) -> Any:
    known = tuple(names)

    def check(value: str) -> str:
        if value not in known:
            raise ValueError(f"expected one of {', '.join(known)}")
        return value

    return Annotated[
        str, AfterValidator(check), WithJsonSchema({"type": "string", "enum": list(known)})
    ]


if TYPE_CHECKING:
    DutName: TypeAlias = str
    PlatformName: TypeAlias = str
    KernelName: TypeAlias = str
    WireName: TypeAlias = str
    LoadName: TypeAlias = str
    NeighbourName: TypeAlias = str
    NoiseName: TypeAlias = str
    PatternName: TypeAlias = str
else:
    DutName, PlatformName, KernelName = map(_one_of, (DUTS, PLATFORMS, KERNELS))
    WireName, LoadName, NeighbourName = map(_one_of, (WIRES, LOADS, KINDS))
    NoiseName, PatternName = map(_one_of, (NOISE, PATTERNS))


def _level(value: str) -> str:
    if value not in _LEVEL_NAMES and not _LEVEL.fullmatch(value):
        raise ValueError(
            "expected a bound such as p99.999<1ms, loss<1e-5, max<2ms or reordered=0, or one of"
            f" {', '.join(_LEVEL_NAMES)}"
        )
    return value


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, use_attribute_docstrings=True)


class Fields(_Model):
    """What a run is made of."""

    dut: DutName | None = None
    """The device under test."""
    dut_options: dict[str, Scalar] | None = None
    """Its options, by name."""
    platform: PlatformName | None = None
    """What it runs on; bare by default."""
    platform_options: dict[str, Scalar] | None = None
    """Its options, by name."""
    kernel: KernelName | None = None
    """The kernel it runs on; any by default."""
    boot: str | None = None
    """Parameters that its kernel is to be booted with; {cpus} stands for the device's CPUs."""
    cpus: str | int | None = None
    """The CPUs to poll on: generator, then device; chosen by topology by default."""
    wire: WireName | None = None
    """What joins it with the generator; the first that device and platform both can have."""
    wire_options: dict[str, Scalar] | None = None
    """Its options, by name."""
    instances: Annotated[int, Field(ge=1)] | None = None
    """So many devices side by side."""
    load: LoadName | None = None
    """Whether all of them get traffic, or one."""
    neighbours: dict[NeighbourName, Annotated[int, Field(ge=1)]] | None = None
    """Co-runners: workers by kind."""
    neighbour_cpus: str | int | None = None
    """Where they run, as a list of CPUs."""
    rate: str | int | None = None
    """Packets per second, such as 10k."""
    pattern: PatternName | None = None
    """How departures are spaced."""
    burst: Annotated[int, Field(ge=1)] | None = None
    """Packets back to back, at the same rate."""
    size: Annotated[int, Field(ge=64, le=1518)] | None = None
    """Bytes of a frame with its check sequence."""
    flows: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Flows, which differ by source port."""
    seed: Annotated[int, Field(ge=0)] | None = None
    """Of the Poisson process."""
    duration: str | None = None
    """How long to measure, such as 30s."""
    warm_up: str | None = None
    """How long to send before."""
    captures: bool | None = None
    """Whether to keep captures of both sides."""
    noise: NoiseName | None = None
    """What to record of what keeps CPUs from their work."""
    power: str | None = None
    """Where to read power: auto, none, rapl, ipmi, or command:CMD ARGS, which prints watts."""
    power_phase: str | None = None
    """How long to leave the machine idle, and the device without packets, where power is read."""
    tune: bool | None = None
    """Whether to set the host's knobs for the run, and take them back after it."""
    counter_interval: str | None = None
    """How often to read counters of interrupts; before and after alone by default."""


class Host(_Model):
    """A machine with a role."""

    ssh: str | None = None
    """USER@ADDRESS or a name of the user's ssh configuration; this machine without."""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Of its sshd."""
    cards: list[str] = Field(min_length=2, max_length=2)
    """Two network cards: PCI addresses for DPDK, or links of the kernel. Of the load generator:
    sending, receiving; of the device: receiving, sending; of the timestamper: what goes to the
    device, and what comes from it."""
    command: str = "tailscope"
    """tailscope on that machine."""
    cpus: str | int | None = None
    """CPUs to poll on."""


class Timestamper(Host):
    """A machine that only watches, by TAPs."""

    method: Literal["auto", "tcpdump", "stamp"] = "auto"
    """What stamps frames: tcpdump (links) or tailscope-dp stamp (PCI addresses)."""


class Hosts(_Model):
    """A laboratory of up to three machines."""

    loadgen: Host
    dut: Host
    timestamper: Timestamper


class _Matrix(_Model):
    fixed: Fields = Fields()
    """What is the same in all runs."""
    vary: dict[str, list[Scalar] | dict[str, Fields] | None] = Field(default_factory=dict)
    """What is not: a field with a list of values (an option as dut_options.NAME), or a name of your
    own with labels, each of which sets several fields. All combinations are run."""
    exclude: list[dict[str, Scalar | list[Scalar]]] = Field(default_factory=list)
    """Combinations to leave out: variables and their values."""
    repeats: int = Field(1, ge=1, le=1000)
    """How often each combination is run."""


class Profile(_Matrix):
    """A variant: what it says replaces what the experiment does, field by field."""

    about: str = ""
    """What it is for."""


class Experiment(_Matrix):
    """An experiment of tailscope."""

    name: Name
    """What it is called."""
    about: str = ""
    """What it shows, and where it comes from."""
    service_levels: list[Annotated[str, AfterValidator(_level)]] = Field(default_factory=list)
    """Bounds that each cell is held to."""
    order: Literal["shuffled", "as-written"] = "shuffled"
    """Shuffled, so that drift of the machine does not become a result."""
    seed: int = Field(1, ge=0)
    """Of the shuffling."""
    hosts: Hosts | None = None
    """A laboratory; all on this machine without."""
    profiles: dict[str, Profile] = Field(default_factory=dict)
    """Variants, chosen by --profile."""


class Document:
    """The text of an experiment, and where in it things stand."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            text = path.read_text()
        except UnicodeDecodeError as error:
            raise UsageError(f"{path}: {error}") from None
        try:
            self._node = yaml.compose(text, Loader=yaml.SafeLoader)
            self.content = yaml.safe_load(text)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = "" if mark is None else f":{mark.line + 1}"
            raise UsageError(f"{path}{line}: {error.problem}") from None
        except yaml.YAMLError as error:
            raise UsageError(f"{path}: {error}") from None
        self._refuse_twins(self._node)

    def error(self, where: Sequence[str | int], message: str) -> UsageError:
        """Say what is wrong with the thing at `where`, and on which line that is."""
        named = ".".join(str(part) for part in where)
        return UsageError(f"{self.path}:{self._line(where)}: {named}: {message}")

    def _line(self, where: Sequence[str | int]) -> int:
        node, line = self._node, 1
        for part in where:
            found = None
            if isinstance(node, yaml.MappingNode):
                for key, value in node.value:
                    if key.value == str(part):
                        found, line = value, key.start_mark.line + 1
            elif isinstance(node, yaml.SequenceNode) and isinstance(part, int):
                found = node.value[part] if part < len(node.value) else None
                line = line if found is None else found.start_mark.line + 1
            if found is None:
                break
            node = found
        return line

    def _refuse_twins(self, node: yaml.Node | None) -> None:
        """YAML takes the last of two equal keys without a word."""
        if isinstance(node, yaml.MappingNode):
            seen = set()
            for key, value in node.value:
                if key.value in seen:
                    line = key.start_mark.line + 1
                    raise UsageError(f"{self.path}:{line}: {key.value}: it is there twice")
                seen.add(key.value)
                self._refuse_twins(value)
        elif isinstance(node, yaml.SequenceNode):
            for value in node.value:
                self._refuse_twins(value)


def load_experiment(path: Path, profile: str | None = None) -> tuple[Experiment, Document]:
    """Read an experiment.

    Parameters
    ----------
    path : Path
    profile : str, optional
        The variant to take.

    Raises
    ------
    UsageError
        If it is not one: with file, line, field and what is allowed.
    """
    document = Document(path)
    if not isinstance(document.content, dict):
        raise UsageError(f"{path}: expected an experiment, got {type(document.content).__name__}")
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
    changes: dict[str, Any] = {"fixed": Fields(**fixed), "vary": vary}
    for name in ("exclude", "repeats"):
        if name in profile.model_fields_set:
            changes[name] = getattr(profile, name)
    return experiment.model_copy(update=changes)


def _said(document: Document, error: ValidationError) -> UsageError:
    """The first of pydantic's complaints, in our words."""
    found = error.errors()[0]
    where = [part for part in found["loc"] if not _is_type(part)]
    kind, message = found["type"], found["msg"].removeprefix("Value error, ")
    if kind == "extra_forbidden":
        known = _known(where[:-1])
        near = difflib.get_close_matches(str(where[-1]), known, 1)
        meant = f"; did you mean {near[0]}?" if near else ""
        message = f"there is no such field, expected one of {', '.join(known)}{meant}"
    elif kind == "missing":
        message = "it is missing"
    else:
        message = f"got {found['input']!r}: {message[:1].lower()}{message[1:]}"
    return document.error(where, message)


def _is_type(part: str | int) -> bool:
    """Whether it is pydantic's name for one choice of several, not a place in the file."""
    return isinstance(part, str) and bool(_TYPES.fullmatch(part))


def _known(where: Sequence[str | int]) -> list[str]:
    last = [part for part in where if isinstance(part, str)]
    if not last:
        return list(Experiment.model_fields)
    if "fixed" in last or "vary" in last:
        return list(Fields.model_fields)
    if "hosts" in last:
        models: dict[str, type[BaseModel]] = {"timestamper": Timestamper, "hosts": Hosts}
        return list(models.get(last[-1], Host).model_fields)
    return list(Profile.model_fields)
