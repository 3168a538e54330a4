"""Commands that are known by name and summary, and imported when they are called."""

from __future__ import annotations

import inspect
from importlib import import_module
from keyword import iskeyword
from typing import TYPE_CHECKING

import typer
from typer.core import TyperCommand

from tailscope import extra
from tailscope.cli.groups import CommandGroup, DefaultGroup
from tailscope.cli.panels import PanelCommand
from tailscope.registry import additions

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from typer._click import Command, Context


def commands_of(
    package: str,
    summaries: Mapping[str, str],
    measuring: Container[str] = (),
    section: str | None = None,
) -> dict[str, LazyCommand]:
    """Return the commands of a package by name, each with its summary."""
    return {
        name: LazyCommand(_module_of(package, name), name, about, name in measuring, section)
        for name, about in summaries.items()
    }


def added_commands(group: str | None = None) -> dict[str, LazyCommand]:
    """Return the commands that the folders of `tailscope.extra` add below a command, or alone."""
    return {
        command.name: LazyCommand(
            f"{extra.__name__}.{folder}.{command.module}",
            command.name,
            command.summary,
            command.measures,
            command.section,
        )
        for folder, addition in additions().items()
        for command in addition.commands
        if command.group == group and command.option is None
    }


def other_ways(name: str | None) -> dict[str, LazyCommand]:
    """Return the commands that folders of `tailscope.extra` put in place of one, by the option."""
    return {
        command.option: LazyCommand(
            f"{extra.__name__}.{folder}.{command.module}",
            command.words,
            command.summary,
            command.measures,
            None,
        )
        for folder, addition in additions().items()
        for command in addition.commands
        if command.name == name and command.option is not None
    }


def _module_of(package: str, name: str) -> str:
    module = name.replace("-", "_")
    return f"{package}.{module}_" if iskeyword(module) else f"{package}.{module}"


class LazyCommand(TyperCommand):
    """Stands for a command, or for a group, until it is called.

    The module of a command holds the function ``command``, whose docstring says what the help says
    beyond the summary, and an ``EXAMPLE`` of it; that of a group, the table ``COMMANDS``. A module
    that has both is a command which others stand below.
    """

    def __init__(
        self, module: str, name: str, summary: str, measures: bool, section: str | None
    ) -> None:
        super().__init__(name, help=summary, rich_markup_mode=None, rich_help_panel=section)
        self._module, self._measures = module, measures

    def load(self) -> Command:
        """Import the command."""
        module = import_module(self._module)
        own = commands_of(self._module, getattr(module, "COMMANDS", {}))
        inner: dict[str, Command] = {**own, **added_commands(self.name)}
        if not hasattr(module, "command"):
            return CommandGroup(
                name=self.name,
                help=self.help,
                commands=dict(sorted(inner.items())),
                rich_markup_mode=None,
            )
        more = inspect.getdoc(module.command) or ""
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        ways = [f"With {option}: {way.help}" for option, way in other_ways(self.name).items()]
        about = "\n\n".join(filter(None, (self.help, more, *ways)))
        app.command(self.name, cls=PanelCommand, help=about)(module.command)
        command = typer.main.get_command(app)
        assert isinstance(command, PanelCommand)
        command.example, command.beside = module.EXAMPLE, inner
        return DefaultGroup(command, inner) if inner else command

    def way(self, args: list[str]) -> LazyCommand:
        """Return the command that arguments call: this one, or one that an option puts there."""
        given = {word.partition("=")[0] for word in args}
        ways = other_ways(self.name).items()
        return next((way for option, way in ways if option in given), self)

    def make_context(
        self, info_name: str | None, args: list[str], parent: Context | None = None, **extra: object
    ) -> Context:
        """Let the command read its arguments: who is called is the context's command."""
        way = self.way(args)
        if way is not self:
            return way.make_context(info_name, args, parent, **extra)
        context = self.load().make_context(info_name, args, parent, **extra)
        # Of a group, the command that is called below it says so by itself.
        if (
            self._measures
            and not context.resilient_parsing
            and not isinstance(context.command, CommandGroup)
        ):
            from tailscope.cli.reminder import remind

            remind()
        return context
