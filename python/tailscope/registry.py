"""The additions in the folders of `tailscope.extra`, and the extras of the Python package.

This is the one place where the core meets the wing. A folder declares an `Addition` as
``ADDITION`` in its ``__init__.py``. Nothing here or elsewhere in the core names one, so that each
can be deleted.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, NamedTuple

from tailscope import extra
from tailscope.exceptions import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping


class Extra(NamedTuple):
    """An extra of the Python package: what pip installs for a part of tailscope alone."""

    name: str
    packages: Mapping[str, str]
    """Packages, by the modules that are imported of them."""
    install: str | None = None
    """What pip installs where the extra itself asks for more than tailscope imports."""

    @property
    def remedy(self) -> str:
        """The line that installs it."""
        from tailscope.host.remedies import pip_extra, pip_install

        return pip_extra(self.name) if self.install is None else pip_install(self.install)


_OF_THE_CORE = (
    Extra("arrow", {"pyarrow": "pyarrow"}),
    Extra("plot", {"matplotlib": "matplotlib"}),
)
"""Extras that parts of the core need: tables for Python and notebooks, figures as files."""


class AddedCommand(NamedTuple):
    """A command of the command line."""

    name: str
    summary: str
    measures: bool = False
    """True if it is reminded of a host that is still tuned."""
    module: str = "command"
    group: str | None = None
    """The command that it stands below, such as ``model``; without one it stands alone."""
    section: str | None = None
    """Its section in the help of tailscope, if it stands alone; hidden without one."""
    option: str | None = None
    """The option that makes a command of this name this one, such as ``--to``."""

    @property
    def words(self) -> str:
        """The words that call it: ``model tail``, ``run --to``."""
        return " ".join(filter(None, (self.group, self.name, self.option)))


class AddedFile(NamedTuple):
    """A file that a folder writes, for the reference."""

    name: str
    about: str
    record: str | None = None
    """The type of a JSON file, as ``module:Type``."""


class AddedSection(NamedTuple):
    """A section of an experiment, which says where its cells are measured."""

    kind: str
    """Its msgspec type, which has None where a file lacks the section, as ``module:name``."""
    bench: str
    """The class of the bench that is made of it, as ``module:name``."""


@dataclass(frozen=True, kw_only=True)
class Addition:
    """The additions of a folder; modules are those of the folder, imported when they are used."""

    commands: tuple[AddedCommand, ...] = ()
    files: tuple[AddedFile, ...] = ()
    services: Mapping[str, str] = field(default_factory=dict)
    """Services that the core asks for by name, as ``module:name``."""
    extra: Extra | None = None
    """The packages that it imports beyond those of the core, wherever in it."""
    conclusions: Mapping[str, str] = field(default_factory=dict)
    """Conclusions that are kept beside a run, by their files: the type of each, a `KeptRecord`, as
    ``module:name``."""
    sections: Mapping[str, AddedSection] = field(default_factory=dict)
    """Sections of an experiment, by their names."""
    formats: Mapping[str, str] = field(default_factory=dict)
    """Formats that ``tailscope report`` writes a run in, by name: each the function that takes the
    run and a file, or None for the usual one, and returns lines that say what it wrote, as
    ``module:name``."""


@cache
def additions() -> Mapping[str, Addition]:
    """Find what is there, by the names of folders."""
    names = sorted(each.name for each in iter_modules(extra.__path__) if each.ispkg)
    return {name: import_module(f"{extra.__name__}.{name}").ADDITION for name in names}


def service(name: str, wanted_by: str) -> Any:
    """Import what a folder offers under a name; the packages for it must be installed."""
    for folder, addition in additions().items():
        if name in addition.services:
            if addition.extra is not None:
                require(addition.extra.name)
            return _imported(folder, addition.services[name])
    raise UsageError(f"{wanted_by}: this installation has no {name}", code="no-service")


def offered(name: str) -> list[Any]:
    """Import what each folder offers under a name; there may be none."""
    return [
        _imported(folder, addition.services[name])
        for folder, addition in additions().items()
        if name in addition.services
    ]


def extras() -> Mapping[str, Extra]:
    """Find all extras, by their names."""
    declared = (*_OF_THE_CORE, *(addition.extra for addition in additions().values()))
    return {needed.name: needed for needed in declared if needed is not None}


def require(name: str) -> None:
    """Refuse to begin what imports the packages of an extra later, if one is not installed."""
    needed = extras()[name]
    for module, package in needed.packages.items():
        with suppress(ModuleNotFoundError):
            if find_spec(module) is not None:
                continue
        raise _lacking(needed, package)


def not_installed(error: ModuleNotFoundError) -> UsageError | None:
    """Say which extra has the module that an import did not find, if one has it."""
    missing = f"{error.name}."
    for needed in extras().values():
        for module, package in needed.packages.items():
            if missing.startswith(f"{module}.") or f"{module}.".startswith(missing):
                return _lacking(needed, package)
    return None


def _lacking(needed: Extra, package: str) -> UsageError:
    return UsageError(
        f"{needed.name} needs {package}, which is not installed",
        code="not-installed",
        remedy=needed.remedy,
    )


def sections() -> Mapping[str, object]:
    """Import the types of sections of experiments, by the names of sections."""
    return {
        name: _imported(folder, section.kind)
        for folder, addition in additions().items()
        for name, section in addition.sections.items()
    }


def bench_for(section: str) -> Any:
    """Import the bench of a section of an experiment."""
    for folder, addition in additions().items():
        if section in addition.sections:
            return _imported(folder, addition.sections[section].bench)
    raise UsageError(f"{section}: this installation has no such section", code="no-section")


def added_conclusions() -> Mapping[str, tuple[str, str]]:
    """Find the conclusions that folders keep, by file: the folder and the type of each."""
    return {
        file: (folder, place)
        for folder, addition in additions().items()
        for file, place in addition.conclusions.items()
    }


def added_conclusion(file: str) -> Any:
    """Import the type of a conclusion that a folder keeps."""
    return _imported(*added_conclusions()[file])


def formats() -> Mapping[str, tuple[str, str]]:
    """Find the formats that a run can be written in: the folder and the function of each."""
    return {
        name: (folder, place)
        for folder, addition in additions().items()
        for name, place in addition.formats.items()
    }


def writer_of(format_name: str) -> Any:
    """Import what writes a run in a format."""
    return _imported(*formats()[format_name])


def _imported(folder: str, place: str) -> Any:
    module, _, attribute = place.partition(":")
    return getattr(import_module(f"{extra.__name__}.{folder}.{module}"), attribute)
