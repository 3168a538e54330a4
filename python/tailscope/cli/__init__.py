"""The command line: one file a command, each of them parse, then plan, then run.

Exit status: 0 ran and within limits, 1 could not run (wrong usage included), 2 ran and a limit was
exceeded, 3 ran and the evidence does not suffice, 130 interrupted. Results go to standard output,
all else to standard error. A command is imported when it is called (`tailscope.cli.lazy`), and
heavy libraries are imported where they are used: ``tailscope --help`` is quick.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer
from typer import _completion_classes
from typer._click.exceptions import NoSuchOption

from tailscope.cli.groups import Application, NoSuchCommandError
from tailscope.cli.lazy import added_commands, commands_of
from tailscope.cli.status import INTERRUPTED, UNDECIDED
from tailscope.exceptions import EvidenceError, TailscopeError
from tailscope.registry import not_installed
from tailscope.units import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import FrameType

__all__ = ["COMMANDS", "application", "main"]

_MISSING_LIBRARY = re.compile(r"(\S+\.so\S*): cannot open shared object file")
"""What Python says where a library of the system is missing, which extensions are linked to."""

COMMANDS: Mapping[str | None, Mapping[str, str]] = {
    "Main commands": {
        "run": "Measure the latency of every packet through a device under test.",
        "analyze": "Analyse latency, loss and order between two captures.",
        "explain": "Show the causes of the tail, or what one packet waited for.",
        "verify": "Judge whether runs meet a service level.",
        "compare": "Compare runs: what differs, and which differences are real.",
        "report": "Draw one run, several runs in the same figures, or a campaign.",
    },
    "Measuring": {
        "doctor": "Show what this machine can measure, and how to add the rest.",
        "calibrate": "Measure the floor of this machine and wire; reports show it.",
        "plan": "Show how many packets and how much time a quantile needs.",
        "simulate": "Simulate a device that stalls, and write two captures of it.",
    },
    "Explaining": {
        "noise": "Show what keeps CPUs from running, and for how long.",
    },
    "Improving": {
        "host": "Audit and tune this machine.",
        "recommend": "Recommend a set-up that these runs support.",
    },
    "Predicting": {
        "model": "Derive predictions from the figures of a run.",
    },
    "Deciding": {},
    "Keeping": {
        "runs": "List, show, label, complete, query and publish runs.",
    },
    None: {
        "schema": "Print the JSON Schema of experiments.",
    },
}
"""The commands with a summary of each, by section of help, in its order; it hides the last ones."""

_MEASURING = ("calibrate", "noise", "run")

_ALLOCATIONS_PER_COLLECTION = 10_000

_app = typer.Typer(
    cls=Application,
    invoke_without_command=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# zsh and fish show descriptions. typer renders them with rich, which takes "[default: 10s]" for
# markup and breaks long lines, whose rest fish then offers as a candidate of its own.
_completion_classes._sanitize_help_text = lambda text: text


def _print_version(context: typer.Context, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        import tailscope

        print(f"tailscope {tailscope.__version__}")
        raise typer.Exit


@_app.callback()
def tailscope_command(
    context: typer.Context,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Measure, explain and predict the tail latency of network functions."""
    if context.invoked_subcommand is None:
        assert isinstance(context.command, Application)
        print(context.command.overview(context))


def application() -> Application:
    """Return the command line: a group of commands that are not yet imported."""
    group = typer.main.get_command(_app)
    assert isinstance(group, Application)
    own = [
        commands_of(__name__, commands, _MEASURING, section)
        for section, commands in COMMANDS.items()
    ]
    found = {name: each for part in (*own, added_commands()) for name, each in part.items()}
    for command in found.values():
        command.hidden = command.rich_help_panel is None
    order = list(COMMANDS)
    in_order = sorted(found.items(), key=lambda item: order.index(item[1].rich_help_panel))
    group.commands = dict(in_order)
    return group


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    if arguments is None:
        _collect_seldom()
    _interrupt_by_signals()
    return _run(None if arguments is None else [*arguments])


def _collect_seldom() -> None:
    """Let Python look for reference cycles seldom, and never among what is imported by now.

    A process that ends soon has few of them, and when Python ends it looks through everything.
    """
    gc.set_threshold(_ALLOCATIONS_PER_COLLECTION)
    gc.freeze()


def _interrupt_by_signals() -> None:
    """Let other signals act as Ctrl-C: what was begun is taken back, or ends with what there is.

    They may come together, as where a session ends: only the first one interrupts, and the others
    do not interrupt what it has caused. Under nohup the end of the terminal ends nothing.
    """
    is_ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    ending = (signal.SIGTERM,) if is_ignored else (signal.SIGTERM, signal.SIGHUP)
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        for number in ending:
            signal.signal(number, lambda *_: None)
        raise KeyboardInterrupt

    for number in ending:
        signal.signal(number, interrupt)


def _run(arguments: list[str] | None) -> int:
    """Turn every way in which a command can end into an exit status: the only place that does."""
    try:
        command = ("tailscope", *(sys.argv[1:] if arguments is None else arguments))
        status = application().main(
            arguments, prog_name="tailscope", standalone_mode=False, obj=command
        )
        sys.stdout.flush()
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        path = "tailscope" if context is None else context.command_path
        hint = f"{_meant(error, path)}See `{path} --help`."
        return _failed(_message_of(error), _code_of(error), hint)
    except EvidenceError as error:
        return _failed(str(error), error.code, error.hint, UNDECIDED)
    except TailscopeError as error:
        return _failed(str(error), error.code, error.hint)
    except (KeyboardInterrupt, typer.Abort) as interrupt:
        # What interrupted a command may be the cause of what typer makes of it.
        remains = interrupt.args or getattr(interrupt.__cause__, "args", ())
        return _failed("interrupted", None, str(remains[0]) if remains else None, INTERRUPTED)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        name = f"{error.filename}: " if error.filename is not None else ""
        return _failed(f"{name}{error.strerror or error}", "system", None)
    except MemoryError:
        return _failed("out of memory", "memory", None)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and (lacking := not_installed(error)):
            return _failed(str(lacking), lacking.code, lacking.hint)
        if isinstance(error, ImportError) and (library := _MISSING_LIBRARY.search(str(error))):
            from tailscope.host.remedies import LIBRARIES

            missing = f"a package needs {library[1]}, which this system lacks"
            return _failed(missing, "library-missing", LIBRARIES)
        # In some places Python makes another error of what interrupts it.
        if isinstance(error.__cause__, KeyboardInterrupt):
            return _failed("interrupted", None, None, INTERRUPTED)
        if sys.flags.dev_mode:
            raise
        return _failed(
            f"internal: {type(error).__name__}: {error}",
            "internal",
            "this is a bug in tailscope; `python -X dev -m tailscope ...` shows where",
        )
    return _failed("interrupted", None, None, INTERRUPTED) if status == INTERRUPTED else status or 0


def _code_of(error: typer.TyperException) -> str:
    """Name the kind of an error of typer's: ``no-such-option``, ``missing-parameter``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", type(error).__name__.removesuffix("Error")).lower()


def _message_of(error: typer.TyperException) -> str:
    return error.message if isinstance(error, NoSuchOption) else error.format_message()


def _meant(error: typer.TyperException, path: str) -> str:
    """Ask which command or option was meant, if there are any like it."""
    if isinstance(error, NoSuchOption):
        names = list(error.possibilities or ())
    elif isinstance(error, NoSuchCommandError):
        names = [f"{path} {name}" for name in error.possibilities]
    else:
        return ""
    return f"Did you mean {' or '.join(f'`{name}`' for name in names[:2])}? " if names else ""


def _failed(message: str, code: str | None, hint: str | None, status: int = 1) -> int:
    """Report an error and its code on one line, its hint on the next."""
    behind = "" if code is None else f" [{code}]"
    from tailscope.cli.terminal import painted

    print(f"{painted('error', 'error', sys.stderr)}: {printable(message)}{behind}", file=sys.stderr)
    if hint:
        print("hint:", printable(hint), file=sys.stderr)
    return status
