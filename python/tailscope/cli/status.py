"""Exit statuses of the commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

Level: TypeAlias = Literal["pass", "note", "warning", "error"]

INTERRUPTED = 130
"""The exit status of what somebody has ended before its time."""

UNDECIDED = 3
"""The exit status where the evidence does not suffice."""

OF_VERDICTS = {"pass": 0, "fail": 2, "inconclusive": UNDECIDED}
"""The exit status of a command that judges."""

LEVELS: Mapping[str, Level] = {"pass": "pass", "fail": "error", "inconclusive": "warning"}
"""How serious a verdict is."""

EXIT_STATUS = {
    0: "completed, and within limits",
    1: "could not run (usage, input, disk, permissions), or a part of it failed",
    2: "completed, but a limit was exceeded",
    UNDECIDED: "completed, but there is not enough evidence",
    INTERRUPTED: "interrupted",
}
"""Meaning of the exit statuses."""
