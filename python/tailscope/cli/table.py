"""The figures of one pair for a person: a table, or one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tailscope.text import printable
from tailscope.wording import (
    BOUND_NOTE,
    count_rows,
    has_bounds,
    latency_rows,
    provenance,
    sentence,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from tailscope.analysis import Analysis

__all__ = ["one_line", "print_table"]


def print_table(
    analysis: Analysis, plan: Mapping[str, Any], written: Iterable[Path | None] = ()
) -> None:
    """Print all figures of one pair on standard output.

    Parameters
    ----------
    analysis : Analysis
    plan : Mapping
        The resolved options, as in ``run.json``.
    written : iterable of Path or None
        Folders that more was written to.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("packets, latency", no_wrap=True)
    for name in ("value", "95 % interval", "samples beyond"):
        table.add_column(name, justify="right", no_wrap=True)
    for rows in (count_rows(analysis.summary), latency_rows(analysis.summary)):
        for row in rows:
            table.add_row(*row)
        table.add_section()
    # Wider than the table: on a narrow terminal its lines wrap, but no figure is cut.
    console = Console(highlight=False, markup=False, emoji=False, width=120)
    console.print(table)
    if has_bounds(analysis.summary):
        console.print(BOUND_NOTE)
    for name, value in provenance(analysis.summary, plan).items():
        console.print(f"{name:<10}{printable(value)}", soft_wrap=True)
    for folder in filter(None, written):
        console.print(f"{'written':<10}{printable(str(folder))}", soft_wrap=True)
    for warning in analysis.warnings:
        console.print(f"warning   {printable(warning)}", style="yellow", soft_wrap=True)


def one_line(name: str, analysis: Analysis) -> str:
    """Say the most important figures of one pair on one line."""
    warnings = "".join(f" Warning: {warning}." for warning in analysis.warnings)
    return printable(f"{name}: {sentence(analysis.summary)}{warnings}")
