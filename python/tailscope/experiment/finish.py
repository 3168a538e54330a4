"""What can be made of a whole run again: what explains its tail, and its page."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tailscope.store import layout
from tailscope.store.atomic import write_text
from tailscope.store.kept import keep
from tailscope.store.reader import open_packets, read_run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tailscope.store.run import Run

__all__ = ["finish"]


def finish(path: Path, *, command: Sequence[str]) -> list[str]:
    """Make what a run lacks.

    Parameters
    ----------
    path : Path
        A run directory.
    command : sequence of str
        What was called.

    Returns
    -------
    list of str
        The names of the files that were written.

    Raises
    ------
    RunError
        If it is none, was never finished, or is not what was written.
    """
    run = read_run(path)
    written = []
    if run.explanation is None and run.info.noise is not None and layout.NOISE in run.info.files:
        run = _explained(run, path, command)
        written.append(layout.EXPLANATION)
    if written or not (path / layout.REPORT).exists():
        from tailscope.report.page import page

        write_text(path / layout.REPORT, page([run]))
        written.append(layout.REPORT)
    return written


def _explained(run: Run, path: Path, command: Sequence[str]) -> Run:
    from tailscope.noise.explanation import explain_tail_and_worst
    from tailscope.noise.table import read_blocked

    blocked = read_blocked(path, run.info)
    with open_packets(path, run.info) as packets:
        known = packets.latencies()
        tail, explained = explain_tail_and_worst(packets, known, blocked, run.worst)
    keep(path, run.info, layout.EXPLANATION, tail, command=command)
    return replace(run, explanation=tail, worst_explained=explained.columns())
