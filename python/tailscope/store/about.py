"""Descriptions of captures and tables by people: in a file, in options, in names of files."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tailscope.exceptions import UsageError
from tailscope.plan.field import COUNT, fields_of
from tailscope.plan.fields import AboutFields
from tailscope.store.records.about import AboutRecord
from tailscope.units import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tailscope.plan.field import Field

SIDE = "side"
"""Label of a pattern that stands for the side of a capture, before or behind the device."""

_PLACE = re.compile(r"\{([^{}]*)\}|(\*)")
_NAMES = {each.name: each for each in fields_of(AboutFields).values()}
_WITH_NAMES = tuple(name for name, each in _NAMES.items() if each.has_names)


@dataclass(frozen=True)
class NamePattern:
    """A pattern of file names that contain values of labels."""

    text: str
    """Pattern with ``{name}`` where the value of a label is, and ``*`` for anything; it
    covers as many folders as it names."""

    def __post_init__(self) -> None:
        names = self._names()
        if not names:
            raise UsageError(
                f"--name-pattern: got {self.text!r}, expected at least one label",
                code="name-pattern",
                hint="such as '{dut}-{rate}-repeat{repeat}'",
            )
        for name in names:
            if name != SIDE:
                _check_name(name, f"--name-pattern: {{{name}}}")
        if len(set(names)) < len(names):
            raise UsageError(
                f"--name-pattern: got {self.text!r}, expected each label once",
                code="name-pattern-twice",
            )

    def values(self, path: Path, stem: str) -> dict[str, str]:
        """Return the values of labels in the name of a file."""
        folders = self.text.count("/")
        parents = path.absolute().parts[:-1]
        name = "/".join([*parents[len(parents) - folders :], stem])
        found = _divided(name, _PLACE.sub("\0", self.text).split("\0"), self._least())
        if found is None:
            raise UsageError(
                f"{path}: --name-pattern: got {name!r}, expected a name such as {self.text!r}",
                code="name-pattern-mismatch",
                hint="{label} stands for a value, * for anything; the pattern covers the whole"
                " name without its extensions",
            )
        places = zip(_PLACE.finditer(self.text), found, strict=True)
        return {place[1]: value for place, value in places if place[1] not in (None, SIDE)}

    def _names(self) -> list[str]:
        return [each[1] for each in _PLACE.finditer(self.text) if each[2] is None]

    def _least(self) -> list[int]:
        """Return the least number of characters at each place."""
        return [0 if each[2] else 1 for each in _PLACE.finditer(self.text)]


def _divided(name: str, texts: list[str], least: list[int]) -> list[str] | None:
    """Return what stands between texts in a name, each as short as can be; None if it has no such.

    Nothing of that reaches into another folder. The ways to divide a name are countless where a
    pattern has many places, so for each text, the positions where the rest fits are found first.
    """
    never = len(name) + 1
    ahead: list[list[int]] = []
    """For each text, the nearest position from here on where it and what follows it fit."""
    for text, gap in zip(reversed(texts), [None, *reversed(least)], strict=True):
        nearest = [never] * (never + 1)
        for at in reversed(range(never)):
            end = at + len(text)
            if not name.startswith(text, at):
                fits = False
            elif gap is None:
                fits = end == len(name)
            else:
                fits = "/" not in name[end : end + gap] and ahead[-1][min(end + gap, never)] < never
            further = never if name[at : at + 1] == "/" else nearest[at + 1]
            nearest[at] = at if fits else further
        ahead.append(nearest)
    if ahead[-1][0] != 0:
        return None
    found, end = [], len(texts[0])
    for text, gap, nearest in zip(texts[1:], least, reversed(ahead[:-1]), strict=True):
        at = nearest[end + gap]
        found.append(name[end:at])
        end = at + len(text)
    return found


@dataclass(frozen=True)
class Labels:
    """The labels given for captures or tables, before the names of these are known."""

    written: Mapping[str, object] = field(default_factory=dict)
    """Checked values in a file, by the names of labels."""
    given: Mapping[str, object] = field(default_factory=dict)
    """Values of options: they win over names of files, and those over the file."""
    pattern: NamePattern | None = None

    def of(self, path: Path, stem: str) -> AboutRecord:
        """Return the labels of one file."""
        named: Mapping[str, object] = {}
        if self.pattern is not None:
            named = _typed(self.pattern.values(path, stem), f"{path}: --name-pattern: ")
        merged: dict[str, Any] = {}
        for source in (self.written, named, self.given):
            for attribute, value in source.items():
                before = merged.get(attribute)
                if isinstance(before, dict) and isinstance(value, dict):
                    merged[attribute] = before | value
                else:
                    merged[attribute] = value
        return AboutRecord(**merged)


def labels_of(file: Path | None, given: Mapping[str, str], pattern: str | None) -> Labels:
    """Read what was said on a command line."""
    return Labels(
        {} if file is None else read_about_file(file),
        _typed(given, "-D "),
        None if pattern is None else NamePattern(pattern),
    )


def read_about_file(file: Path) -> dict[str, object]:
    """Read labels from a file."""
    from tailscope.plan.yaml_file import read_yaml

    found = read_yaml(file)
    content = found.content
    if not isinstance(content, dict):
        raise UsageError(
            f"{file}: got {found.kind}, expected labels such as `dut: l2fwd`", code="labels"
        )
    flat: dict[str, object] = {}
    for name, value in content.items():
        if name in _WITH_NAMES and isinstance(value, dict):
            flat |= {f"{name}.{inner}": one for inner, one in value.items()}
        else:
            flat[str(name)] = value
    return _typed(flat, f"{file}: ")


def _typed(written: Mapping[str, object], where: str) -> dict[str, object]:
    """Values by the attributes of `AboutFields`, of what was written by the names of labels."""
    found: dict[str, Any] = {}
    for label, value in written.items():
        name, _, inner = label.partition(".")
        _check_name(label, f"{where}{label}")
        declared = _NAMES[name]
        if declared.has_names:
            if not isinstance(value, str | int | float):
                raise UsageError(
                    f"{where}{label}: got {value!r}, expected a text or a number",
                    code="label-value",
                )
            others = found.setdefault(declared.attribute, {})
            others.update(declared.kind.read({inner: value}, declared.option))
        else:
            found[declared.attribute] = _value(replace(declared, given_as=where + label), value)
    return found


def _check_name(label: str, where: str) -> None:
    """See that there is such a label."""
    name, dot, inner = label.partition(".")
    declared = _NAMES.get(name)
    if declared is not None and declared.has_names == bool(dot and inner):
        return
    if declared is not None:
        said = f"{name}.NAME" if declared.has_names else name
        raise UsageError(
            f"{where}: expected {said}", code="label-name", hint=f"{name}: {declared.about}"
        )
    meant = did_you_mean(name, _NAMES)
    listed = ", ".join(f"{each}.NAME" if each in _WITH_NAMES else each for each in _NAMES)
    raise UsageError(
        f"{where}: unknown label",
        code="unknown-label",
        hint=" ".join(
            filter(None, (meant, f"labels are {listed}; labels.NAME takes anything else"))
        ),
    )


def _value(declared: Field, value: object) -> object:
    if declared.kind is COUNT and isinstance(value, str) and value.isdecimal():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, declared.kind.written):  # type: ignore[arg-type]
        raise UsageError(
            f"{declared.option}: got {value!r}, expected {declared.expected()}", code="label-value"
        )
    found = declared.read(value)
    declared.check(found)
    return found


def words_of(about: AboutRecord) -> Iterator[str]:
    """Yield the words of a command line that give the same labels."""
    for attribute, declared in fields_of(AboutFields).items():
        value = getattr(about, attribute)
        if isinstance(value, dict):
            texts = [f"{declared.name}.{name}={one}" for name, one in value.items()]
        else:
            texts = [] if value is None else [f"{declared.name}={declared.kind.write(value)}"]
        for text in texts:
            yield from ("-D", text)
