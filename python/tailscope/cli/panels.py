"""Pages of help whose options stand in sections."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import typer
from typer.core import TyperArgument, TyperCommand, TyperOption

from tailscope.cli.groups import summaries
from tailscope.cli.parsing import SingleValues

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typer._click import Command, Context, HelpFormatter

DUT = "Device under test"
TRAFFIC = "Traffic"
MEASUREMENT = "Measurement"
HOST = "Host"
EXPERIMENT = "Experiment"
OUTPUT = "Output"

_ORDER = ("Arguments", DUT, TRAFFIC, MEASUREMENT, HOST, EXPERIMENT, OUTPUT, "Options", "Commands")
"""Order of the sections."""

_WIDEST = 30
"""A name that is longer stands on a line of its own."""


class PanelCommand(SingleValues, TyperCommand):
    """A command whose options stand in sections, if each of them names one (``rich_help_panel``).

    typer itself draws panels with rich alone, whose import takes longer than all of the help.
    """

    example: str | None = None
    """A call of it, which its help begins with."""
    beside: Mapping[str, Command] = MappingProxyType({})
    """The commands that its name begins, too."""

    def invoke(self, ctx: Context) -> object:
        """Call it; typer would forget what an interrupt says."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            raise typer.Abort from interrupt

    def format_usage(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the usage, and the example below it."""
        super().format_usage(ctx, formatter)
        if self.example is not None:
            formatter.write(f"Example: {self.example}\n")

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the sections in their order, all names in one column."""
        panels = {param.rich_help_panel for param in self.params if isinstance(param, TyperOption)}
        has_panels = len(panels) > 1 and None not in panels
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            assert isinstance(param, TyperArgument | TyperOption)
            record = param.get_help_record(ctx)
            if record is not None:
                panel = has_panels and param.rich_help_panel
                title = panel or f"{param.param_type_name.capitalize()}s"
                sections.setdefault(title, []).append(record)
        if self.beside:
            sections["Commands"] = summaries(self.beside)
        names = [name for rows in sections.values() for name, _ in rows]
        width = min(max(map(len, names)), _WIDEST)
        for title, rows in sorted(sections.items(), key=lambda each: _ORDER.index(each[0])):
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), about) for name, about in rows])
