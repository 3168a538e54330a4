"""Groups of commands: sections of help, a command that needs no name, and names that are meant."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from typer._click.exceptions import UsageError
from typer.core import TyperGroup, _typer_format_options

from tailscope.cli.parsing import SingleValues

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from typer._click import Command, Context, HelpFormatter
    from typer._click.shell_completion import CompletionItem


class NoSuchCommandError(UsageError):
    """A word that is no command; `possibilities` are the commands that may be meant."""

    def __init__(self, word: str, possibilities: Iterable[str], context: Context) -> None:
        super().__init__(f"No such command {word!r}.", context)
        self.possibilities = list(possibilities)


class CommandGroup(SingleValues, TyperGroup):
    """A group of commands; alone it shows its help."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Show the help where nothing is asked for."""
        asks = args or self.invoke_without_command or ctx.resilient_parsing
        return super().parse_args(ctx, args if asks else ["--help"])

    def resolve_command(
        self, ctx: Context, args: list[str]
    ) -> tuple[str | None, Command | None, list[str]]:
        """Find the command that the first word names."""
        word = args[0]
        if word not in self.commands and not word.startswith("-") and not ctx.resilient_parsing:
            raise NoSuchCommandError(word, self.near(word), ctx)
        return super().resolve_command(ctx, args)

    def near(self, word: str) -> list[str]:
        """Return the commands whose names are like a word."""
        from difflib import get_close_matches

        return get_close_matches(word, self.commands)

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:  # noqa: ARG002
        """List the commands, each with all of its summary."""
        write_commands(formatter, {"Commands": self.commands})


class DefaultGroup(CommandGroup):
    """A group with a command of its own name, which is called where no other one is named.

    A file or directory that is called as one of the others is written as a path: ``./duet``.
    """

    def __init__(self, default: Command, commands: dict[str, Command]) -> None:
        super().__init__(
            name=default.name, help=default.help, commands=commands, rich_markup_mode=None
        )
        self.default = default

    def make_context(
        self, info_name: str | None, args: list[str], parent: Context | None = None, **extra: object
    ) -> Context:
        """Let the command that is meant read the arguments."""
        is_completed = not args and extra.get("resilient_parsing")
        if is_completed or (args and args[0] in self.commands):
            return super().make_context(info_name, args, parent, **extra)
        if args and not extra.get("resilient_parsing"):
            is_argument = args[0][:1] == "-" or "/" in args[0] or Path(args[0]).exists()
            if not is_argument and (near := self.near(args[0])):
                own = self.context_class(self, parent=parent, info_name=info_name)
                raise NoSuchCommandError(args[0], near, own)
        return self.default.make_context(info_name, args, parent, **extra)

    def shell_complete(self, ctx: Context, incomplete: str) -> list[CompletionItem]:
        """Return the names of the others, and the options of its own command."""
        others = [each for each in super().shell_complete(ctx, incomplete) if each.value[:1] != "-"]
        return others + self.default.shell_complete(ctx, incomplete)


class Application(CommandGroup):
    """All commands, in the sections of their help.

    A word that was the name of a command, or means the same as one, leads on to it.
    """

    def resolve_command(
        self, ctx: Context, args: list[str]
    ) -> tuple[str | None, Command | None, list[str]]:
        """Find the command that the first words mean; after ``help``, to show its help."""
        while args[:1] == ["help"]:
            args = [*args[1:], "--help"]
        if args[0] not in self.commands:
            from tailscope.cli.old_names import led_on

            args = led_on(args, quiet=ctx.resilient_parsing)
        return super().resolve_command(ctx, args)

    def near(self, word: str) -> list[str]:
        """Return the commands whose names, or former ones, are like a word, wherever they stand."""
        from difflib import get_close_matches

        from tailscope.cli.old_names import NEW_NAMES

        words = dict(NEW_NAMES)
        for name, command in self.commands.items():
            if not command.hidden:
                inner = getattr(command.load(), "commands", {})  # type: ignore[attr-defined]
                words = {**{each: f"{name} {each}" for each in inner}, **words, name: name}
        return list(dict.fromkeys(words[each] for each in get_close_matches(word, words)))

    def sections(self) -> Mapping[str, Mapping[str, Command]]:
        """Return the commands that help shows, by section."""
        found: dict[str, dict[str, Command]] = {}
        for name, command in self.commands.items():
            if not command.hidden:
                found.setdefault(command.rich_help_panel, {})[name] = command  # type: ignore[attr-defined]
        return found

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the commands first."""
        write_commands(formatter, self.sections())
        _typer_format_options(self, ctx=ctx, formatter=formatter)

    def overview(self, ctx: Context) -> str:
        """Return the most important commands, and the names of the others."""
        formatter = ctx.make_formatter()
        [(first, main), *others] = self.sections().items()
        formatter.write(f"{self.help}\n")
        write_commands(formatter, {first: main})
        with formatter.section("More commands"):
            formatter.write_dl([(name, ", ".join(commands)) for name, commands in others])
        formatter.write_paragraph()
        formatter.write(
            "`tailscope help COMMAND` shows the help of one, `tailscope --help` lists all.\n"
        )
        return formatter.getvalue().rstrip("\n")


def write_commands(formatter: HelpFormatter, sections: Mapping[str, Mapping[str, Command]]) -> None:
    """Write names and summaries, all names in one column."""
    names = [name for commands in sections.values() for name in commands]
    width = max(map(len, names))
    for title, commands in sections.items():
        with formatter.section(title):
            formatter.write_dl([(name.ljust(width), about) for name, about in summaries(commands)])


def summaries(commands: Mapping[str, Command]) -> list[tuple[str, str]]:
    """Return the names of commands, each with the first sentence of its help."""
    return [(name, (each.help or "").split("\n\n", 1)[0]) for name, each in commands.items()]
