"""A table or figure of a paper, or a part of one, and what stands for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Part:
    """A table or figure of a paper, or a part of one."""

    name: str
    """Its name, such as ``Figure 5``."""
    shows: str
    """What it shows, in a few words."""
    command: str = ""
    """The command that makes it, beginning with its first word; empty if nothing does."""
    needs: str = ""
    """What that takes beyond this machine, or how the result differs from the paper's."""
    experiment: str = ""
    """Name of the experiment whose cells stand for it."""
    cells: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Values of these cells by variable; any value of the variables that are left out."""

    def has(self, values: Mapping[str, str]) -> bool:
        """Return True if a cell with these values stands for it."""
        return all(values.get(name) in wanted for name, wanted in self.cells.items())


@dataclass(frozen=True)
class Paper:
    """A paper with all its tables and figures."""

    name: str
    title: str
    page: str
    """Its page in the documentation."""
    parts: tuple[Part, ...]
