"""A reminder, before a measurement, that the host was left tuned."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from tailscope.cli.terminal import say
from tailscope.units import printable

if TYPE_CHECKING:
    from tailscope.host.machine import Machine


def remind(machine: Machine | None = None) -> None:
    """Say that the host is tuned, where a command that has ended left it so."""
    from tailscope.exceptions import TuningError
    from tailscope.host.journal import Journal, journal_file, tuning_lock
    from tailscope.host.machine import Machine

    machine = machine or Machine()
    file = journal_file(machine)
    if not file.exists():
        return
    by = ""  # For root's eyes; that there is a journal says enough.
    if os.access(file, os.R_OK):
        try:
            with tuning_lock(machine):
                journal = Journal.read(machine)
        except (OSError, TuningError):
            return  # In use, or damaged: `host revert` says so.
        by = "" if journal is None else f" by `{printable(journal.by)}`"
    say(f"the host was tuned{by} and not reverted: run `tailscope host revert`", stream=sys.stderr)
