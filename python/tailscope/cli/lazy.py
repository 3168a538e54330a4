"""Commands that are known by name and summary, and imported when they are called."""

from __future__ import annotations

import inspect
from importlib import import_module
from keyword import iskeyword
from typing import TYPE_CHECKING

import typer
from typer.core import TyperCommand

from tailscope import extra
from tailscope.cli.panels import PanelCommand
from tailscope.cli.parsing import CommandGroup
from tailscope.registry import additions

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from typer._click import Command, Context


def commands_of(
    package: str, summaries: Mapping[str, str], measuring: Container[str] = ()
) -> dict[str, Command]:
    """Return the commands of a package by name, each with its summary."""
    return {
        name: LazyCommand(_module_of(package, name), name, about, measures=name in measuring)
        for name, about in summaries.items()
    }


def added_commands(group: str | None = None) -> dict[str, Command]:
    """Return the commands that the folders of `tailscope.extra` add below a command, or alone."""
    return {
        command.name: LazyCommand(
            f"{extra.__name__}.{folder}.{command.module}",
            command.name,
            command.summary,
            measures=command.measures,
        )
        for folder, addition in additions().items()
        for command in addition.commands
        if command.group == group
    }


def _module_of(package: str, name: str) -> str:
    module = name.replace("-", "_")
    return f"{package}.{module}_" if iskeyword(module) else f"{package}.{module}"


class LazyCommand(TyperCommand):
    """Stands for a command, or for a group, until it is called.

    The module of a command holds the function ``command``, whose docstring says what the help says
    beyond the summary; that of a group, the table ``COMMANDS``.
    """

    def __init__(self, module: str, name: str, summary: str, *, measures: bool) -> None:
        super().__init__(name, help=summary, rich_markup_mode=None)
        self._module, self.measures = module, measures

    def load(self) -> Command:
        """Import the command."""
        module = import_module(self._module)
        if hasattr(module, "COMMANDS"):
            inner = {**commands_of(self._module, module.COMMANDS), **added_commands(self.name)}
            return CommandGroup(
                name=self.name, help=self.help, commands=inner, rich_markup_mode=None
            )
        more = inspect.getdoc(module.command) or ""
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        about = f"{self.help}\n\n{more}".strip()
        app.command(self.name, cls=PanelCommand, help=about)(module.command)
        return typer.main.get_command(app)

    def make_context(
        self, info_name: str | None, args: list[str], parent: Context | None = None, **extra: object
    ) -> Context:
        """Let the command read its arguments: who is called is the context's command."""
        return self.load().make_context(info_name, args, parent, **extra)
