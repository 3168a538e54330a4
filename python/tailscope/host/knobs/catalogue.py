"""All knobs, in the order in which they are set."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from tailscope.exceptions import UsageError
from tailscope.host.knobs import boot, cache, interrupts, memory, network, power, scheduler

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tailscope.host.knobs.knob import Knob

_MODULES = (boot, scheduler, memory, interrupts, power, cache, network)

KNOBS: tuple[Knob, ...] = tuple(knob for module in _MODULES for knob in module.KNOBS)
"""All knobs."""


def knobs_named(patterns: Iterable[str]) -> list[Knob]:
    """Find knobs by name."""
    wanted = list(patterns)
    for pattern in wanted:
        if not any(fnmatchcase(knob.name, pattern) for knob in KNOBS):
            names = ", ".join(knob.name for knob in KNOBS)
            raise UsageError(
                f"got {pattern!r}, expected a knob: one of {names}", code="no-such-knob"
            )
    return [knob for knob in KNOBS if any(fnmatchcase(knob.name, name) for name in wanted)]
