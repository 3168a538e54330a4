"""The command that measures or analyses a run once more."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from tailscope.exceptions import RunCorruptError
from tailscope.plan import PairFields, PlanFields, fields_of

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["command_of"]

_DERIVED = ("command", "stall_ns")
"""Names in a plan that follow from the others."""


def command_of(info: Mapping[str, Any]) -> str | None:
    """The command, for a shell; None where a laboratory is part of it, which only a file names.

    All options are spelled out: defaults may change.

    Parameters
    ----------
    info : Mapping
        The content of ``run.json``.

    Raises
    ------
    RunCorruptError
        If the plan has a field that no command has.
    """
    if "hosts" in info:
        return None
    plan, command = info["plan"], info["plan"]["command"]
    declared = fields_of(PairFields if command == "analyze" else PlanFields)
    words = ["tailscope", command]
    for attribute, value in plan.items():
        if attribute in _DERIVED:
            continue
        if attribute not in declared:
            raise RunCorruptError(f"run.json: plan: there is no field {attribute}")
        field = declared[attribute]
        if not field.on:
            words.append(value)
        elif command in field.on:
            words += field.words(value)
    return shlex.join(words)
