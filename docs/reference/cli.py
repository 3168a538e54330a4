"""``cli.md``: every command, from the application itself."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

from docs.reference.markdown import NOTE, code, joined, table

from tailscope.cli import application, lazy
from tailscope.cli.status import EXIT_STATUS
from tailscope.registry import additions

if TYPE_CHECKING:
    from collections.abc import Iterator


_DEFAULT = re.compile(r"\s*\[default: (.*)\]$")


def page() -> str:
    """The page."""
    return joined(_blocks())


@cache
def commands() -> tuple[tuple[str, Any], ...]:
    """Every command by its full name."""
    return tuple(_below("tailscope", application()))


def other_ways() -> Iterator[tuple[str, Any]]:
    """Commands that folders of `tailscope.extra` put in place of one, if it has an option."""
    for addition in additions().values():
        for each in addition.commands:
            if each.option is not None:
                yield f"tailscope {each.words}", lazy.other_ways(each.name)[each.option].load()


def core_commands() -> Iterator[tuple[str, Any]]:
    """Those that no folder of `tailscope.extra` adds."""
    added = {f"tailscope {each.words}" for found in additions().values() for each in found.commands}
    return ((name, command) for name, command in commands() if name not in added)


def _below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    if hasattr(command, "default"):
        yield name, command.default
    if hasattr(command, "commands"):
        for own, inner in sorted(command.commands.items()):
            yield from _below(f"{name} {own}", inner.load())
    elif not command.hidden:
        yield name, command


def _blocks() -> Iterator[str]:
    found = list(core_commands())
    yield "# Commands"
    yield NOTE
    yield (
        "Every command has `--help`. Data goes to standard output, everything else to standard"
        " error."
    )
    rows = [(f"[`{name}`](#{_anchor(name)})", _first(command)) for name, command in found]
    yield table(("command", ""), rows)
    yield "## Exit status"
    yield table(
        ("status", "meaning"), ((str(status), about) for status, about in EXIT_STATUS.items())
    )
    yield "Commands that use 2 and 3 explain them in their help."
    for name, command in found:
        yield from described(name, command)


def described(name: str, command: Any) -> Iterator[str]:
    """The blocks of a page for a command."""
    yield f"## {name}"
    yield _help(command)
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [
        each for each in command.params if each.param_type_name == "option" and not each.hidden
    ]
    yield f"For example, `{command.example}`."
    usage = " ".join([name, *(["[options]"] if options else []), *map(_argument, arguments)])
    yield f"```text\n{usage}\n```"
    rows = [(code(each.metavar or each.name), each.help or "") for each in arguments]
    yield table(("argument", ""), rows)
    yield table(("option", "default", ""), map(_option, options))


def _argument(argument: Any) -> str:
    named = argument.metavar or argument.name.upper()
    return f"[{named}]" if not argument.required and not named.startswith("[") else str(named)


def _option(option: Any) -> tuple[str, str, str]:
    """Its names, its default, and what it does."""
    about = option.help or ""
    value = "" if option.is_flag or option.metavar is None else f" {option.metavar}"
    given = [*option.opts, *option.secondary_opts]
    names = ", ".join(code(name + value) for name in sorted(given, key=len, reverse=True))
    written = _DEFAULT.search(about)
    if written:
        default = written[1]
    elif option.required:
        default = "required"
    else:
        default = "" if option.default in (None, False, ()) else code(str(option.default))
    return names, default, _DEFAULT.sub("", about) + _bounds(option.type)


def _bounds(kind: Any) -> str:
    low, high = getattr(kind, "min", None), getattr(kind, "max", None)
    said = [f"at least {low}"] if low is not None else []
    said += [f"at most {high}"] if high is not None else []
    return f" ({', '.join(said)})" if said else ""


def _first(command: Any) -> str:
    return _help(command).split("\n\n", 1)[0]


def _help(command: Any) -> str:
    """Its help, without the ways that folders of `tailscope.extra` add."""
    parts = (command.help or "").split("\n\n")
    ways = tuple(f"With {option}: " for option in lazy.other_ways(command.name))
    return "\n\n".join(" ".join(part.split()) for part in parts if not part.startswith(ways))


def _anchor(name: str) -> str:
    return name.replace(" ", "-")
