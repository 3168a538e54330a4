"""What the folders of `tailscope.extra` add: the one place where the core meets them.

A folder declares an `Addition` as ``ADDITION`` in its ``__init__.py``. Nothing here or elsewhere in
the core names one, so that each can be deleted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, NamedTuple

from tailscope import extra
from tailscope.exceptions import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping


class AddedCommand(NamedTuple):
    """A command of the command line."""

    name: str
    summary: str
    measures: bool = False
    """Whether it is reminded of a host that is still tuned."""
    module: str = "command"


class AddedFile(NamedTuple):
    """A file that a folder writes, for the reference."""

    name: str
    about: str
    record: str | None = None
    """The type of a JSON file, as ``module:Type``."""


@dataclass(frozen=True, kw_only=True)
class Addition:
    """What a folder adds; modules are those of the folder, imported when they are used."""

    commands: tuple[AddedCommand, ...] = ()
    files: tuple[AddedFile, ...] = ()
    services: Mapping[str, str] = field(default_factory=dict)
    """What the core asks for by name, as ``module:name``."""
    sections: Mapping[str, str] = field(default_factory=dict)
    """Sections of an experiment by their names: msgspec types, which have None where a file lacks
    the section, as ``module:name``. A section is a `Section` of `experiment.campaign.bench`."""


@cache
def additions() -> Mapping[str, Addition]:
    """Find what is there, by the names of folders."""
    names = sorted(each.name for each in iter_modules(extra.__path__) if each.ispkg)
    return {name: import_module(f"{extra.__name__}.{name}").ADDITION for name in names}


def service(name: str, wanted_by: str) -> Any:
    """Import what a folder offers under a name."""
    for folder, addition in additions().items():
        if name in addition.services:
            return _imported(folder, addition.services[name])
    raise UsageError(f"{wanted_by}: this installation has no {name}")


def sections() -> Mapping[str, Any]:
    """Import the types of sections of experiments, by the names of sections."""
    return {
        name: _imported(folder, place)
        for folder, addition in additions().items()
        for name, place in addition.sections.items()
    }


def _imported(folder: str, place: str) -> Any:
    module, _, attribute = place.partition(":")
    return getattr(import_module(f"{extra.__name__}.{folder}.{module}"), attribute)
