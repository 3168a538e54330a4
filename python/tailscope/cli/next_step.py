"""The next step after an error that does not say one itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typer._click.exceptions import NoSuchOption

from tailscope import exceptions
from tailscope.cli.groups import CommandGroup, NoSuchCommandError
from tailscope.paths import hint_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typer._click import Command

_STEPS: dict[type[exceptions.TailscopeError], str] = {
    exceptions.CaptureError: "record it again, such as by `tcpdump -i INTERFACE -w FILE`",
    exceptions.AnalysisError: (
        "`tcpdump -r FILE` shows what a capture holds, `tailscope analyze --help` how to match it"
    ),
    exceptions.EvidenceError: (
        "measure for longer: `tailscope plan` says how many packets a quantile needs"
    ),
    exceptions.ModelError: "`tailscope runs show RUN` shows the figures that it starts from",
    exceptions.ClusterError: "check the address of the scheduler, or leave out `--scheduler`",
    exceptions.HostError: "check `hosts` in the experiment, and that `ssh` to it works",
    exceptions.TestbedError: "`tailscope doctor` shows what this machine can measure",
    exceptions.DatabaseError: "check that `psql` connects to the same address",
    exceptions.RunCorruptError: (
        "measure again, or restore it: `tailscope runs show --verify RUN` lists what has changed"
    ),
    exceptions.RunIncompleteError: "measure it again; `tailscope runs list` lists the others",
    exceptions.RunError: "`tailscope runs list` lists runs",
}
"""By class: subclasses first."""


def next_step(error: Exception, application: CommandGroup, words: Sequence[str]) -> str:
    """Return what can be done about an error: what it says itself, or what its kind suggests."""
    if hint := hint_of(error):
        return hint
    for kind, step in _STEPS.items():
        if isinstance(error, kind):
            return step
    path, command = _called(application, words)
    if meant := _meant(error, path):
        return f"{meant} See `{path} --help`."
    if isinstance(command, CommandGroup) and not hasattr(command, "default"):
        shown = [name for name, each in command.commands.items() if not each.hidden]
        return f"Commands are {', '.join(shown)}: see `{path} --help`."
    command = getattr(command, "default", command)
    example = getattr(command, "example", None)
    such = f"Such as `{example}`: see" if example else "See"
    return f"{such} `{path} --help`."


def _called(application: CommandGroup, words: Sequence[str]) -> tuple[str, Command]:
    """Return the command that words call, and how it is called."""
    from tailscope.cli.old_names import led_on

    path, command = "tailscope", application
    for word in led_on([*words], quiet=True):
        inner = getattr(command, "commands", {}).get(word)
        if inner is None:
            break
        path, command = f"{path} {word}", inner.way([*words]).load()
    return path, command


def _meant(error: Exception, path: str) -> str:
    """Ask which command or option was meant, if there are any like it."""
    if isinstance(error, NoSuchOption):
        names = list(error.possibilities or ())
    elif isinstance(error, NoSuchCommandError):
        names = [f"{path} {name}" for name in error.possibilities]
    else:
        return ""
    return f"Did you mean {' or '.join(f'`{name}`' for name in names[:2])}?" if names else ""
