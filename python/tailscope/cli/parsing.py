"""Parsers of options: an option that takes one value is given once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typer._click.core import Command
from typer._click.exceptions import UsageError
from typer._click.parser import _OptionParser
from typer.core import TyperOption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typer._click import Context, Parameter


class OptionRepeatedError(UsageError):
    """An option that takes one value was given several."""


class SingleValues(Command):
    """A command that refuses a second value of an option, unless the option takes several.

    The same flag given twice asks for the same thing, and is accepted.
    """

    def make_parser(self, ctx: Context) -> _OptionParser:
        """Make a parser for the parameters of the command."""
        parser = _Parser(ctx)
        for parameter in self.get_params(ctx):
            parameter.add_to_parser(parser, ctx)
        return parser


class _Parser(_OptionParser):
    """Collects all values of each option, where typer's own keeps the last one."""

    def add_option(
        self,
        obj: TyperOption,
        opts: Sequence[str],
        dest: str | None,
        action: str = "store",
        nargs: int = 1,
        const: object = None,
    ) -> None:
        """Add an option whose values are appended to a list."""
        super().add_option(obj, opts, dest, action.replace("store", "append"), nargs, const)

    def parse_args(self, args: list[str]) -> tuple[dict[str, object], list[str], list[Parameter]]:
        """Parse arguments; an option that takes one value has the only one that was given."""
        values, rest, order = super().parse_args(self._with_lists(args))
        for parameter in dict.fromkeys(order):
            if isinstance(parameter, TyperOption) and not parameter.multiple:
                assert parameter.name is not None
                values[parameter.name] = self._only(parameter, values[parameter.name])
        return values, rest, order

    def _with_lists(self, args: list[str]) -> list[str]:
        """Join the words behind an option that takes several, up to the next option."""
        lists = {
            name
            for name, option in self._long_opt.items()
            if isinstance(option.obj, TyperOption) and str(option.obj.metavar).endswith("...")
        }
        joined: list[str] = []
        for word in args:
            is_more = len(joined) > 1 and joined[-2] in lists
            if is_more and not (word.startswith("-") and word != "-"):
                joined[-1] += f",{word}"
            else:
                joined.append(word)
        return joined

    def _only(self, option: TyperOption, given: list[object]) -> object:
        is_repeated = len(set(given)) > 1 if option.is_flag else len(given) > 1
        # While a shell completes a line, nothing in it is an error yet.
        if is_repeated and not (self.ctx and self.ctx.resilient_parsing):
            raise OptionRepeatedError(_repetition(option, given), self.ctx)
        return given[-1]


def _repetition(option: TyperOption, given: list[object]) -> str:
    name = option.opts[0]
    if option.is_flag:
        return f"{name}: got it and {option.secondary_opts[0]}, expected one of them"
    *others, last = map(repr, given)
    return f"{name}: got {', '.join(others)} and {last}, expected one value"
