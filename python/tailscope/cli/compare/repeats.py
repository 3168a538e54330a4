"""Runs that are named on the command line, and repeat each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailscope.exceptions import UsageError

if TYPE_CHECKING:
    from pathlib import Path


def repeated(paths: list[Path]) -> dict[Path, str]:
    """Return the runs at paths, and the name of each."""
    from tailscope.compare.sources import read_source

    if len({path.resolve() for path in paths}) < len(paths):
        raise UsageError("expected runs, each named once", code="runs")
    names: dict[Path, str] = {}
    for path in paths:
        source = read_source(path)
        unfinished = [why for reasons in source.unfinished.values() for why in reasons]
        if unfinished or len(source.cells) != 1:
            got = unfinished[0] if unfinished else f"{len(source.cells)} combinations of values"
            raise UsageError(
                f"{path}: expected runs that repeat each other, got {got}",
                code="runs-not-repeats",
                hint="name the runs of one combination",
            )
        [cell] = source.cells
        names |= source.names(cell)
    return names


def named(paths: list[Path]) -> str:
    """Return a common name for runs."""
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"{paths[0]}{more}"
