"""The command line: one file a command, each of them parse, then plan, then run.

Exit status: 0 ran and within limits, 1 could not run (wrong usage included), 2 ran and a limit was
exceeded, 3 ran and the evidence does not suffice, 130 interrupted. Results go to standard output,
all else to standard error. A command is imported when it is called (`tailscope.cli.lazy`), and
heavy libraries are imported where they are used: ``tailscope --help`` is quick.
"""

from __future__ import annotations

import errno
import io
import os
import re
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer
from typer import _completion_classes
from typer._click.exceptions import NoSuchOption

from tailscope.cli.groups import Application
from tailscope.cli.lazy import added_commands, commands_of
from tailscope.cli.status import INTERRUPTED, UNDECIDED
from tailscope.exceptions import STANDARD_OUTPUT, EvidenceError, TailscopeError, said
from tailscope.registry import not_installed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import FrameType
    from typing import TextIO

    from _typeshed import ReadableBuffer

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

_ERRORS = 2
"""Descriptor of standard error."""
_NO_PROCESS = (
    "no further process or thread can be started",
    "process-limit",
    "raise your limit of processes, `ulimit -u`, or that of the container or unit around it",
)

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
    with suppress(AttributeError, io.UnsupportedOperation):
        sys.stdout, sys.stderr = _stream(sys.stdout), _stream(sys.stderr)
    _interrupt_by_signals()
    status = _run(None if arguments is None else [*arguments])
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status


class _Stream(io.FileIO):
    """A standard stream: errors of output name it, and nobody could read those of messages."""

    def write(self, data: ReadableBuffer) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if self.fileno() == _ERRORS:
                return memoryview(data).nbytes
            error.filename = STANDARD_OUTPUT
            raise


def _stream(stream: TextIO) -> TextIO:
    """Return a stream that writes to the same place."""
    raw = _Stream(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        stream.encoding,
        "backslashreplace",
        line_buffering=bool(stream.line_buffering),
    )


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
    command = ("tailscope", *(sys.argv[1:] if arguments is None else arguments))
    try:
        status = application().main(
            arguments, prog_name="tailscope", standalone_mode=False, obj=command
        )
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort) as interrupt:
        # What interrupted a command may be the cause of what typer makes of it.
        remains = interrupt.args or getattr(interrupt.__cause__, "args", ())
        return _failed("interrupted", None, str(remains[0]) if remains else None, INTERRUPTED)
    except BrokenPipeError:
        return 1
    except (typer.TyperException, TailscopeError, OSError) as error:
        from tailscope.cli.next_step import next_step

        if isinstance(error, OSError) and error.errno == errno.EAGAIN and error.filename is None:
            return _failed(*_NO_PROCESS)
        status = UNDECIDED if isinstance(error, EvidenceError) else 1
        hint = next_step(error, application(), command[1:])
        return _failed(_message_of(error), _code_of(error), hint, status)
    except MemoryError:
        return _failed("out of memory", "memory", "end other programs, and repeat the command")
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and (lacking := not_installed(error)):
            return _failed(str(lacking), lacking.code, lacking.hint)
        if isinstance(error, ImportError) and (library := _MISSING_LIBRARY.search(str(error))):
            from tailscope.host.remedies import LIBRARIES

            missing = f"a package needs {library[1]}, which this system lacks"
            return _failed(missing, "library-missing", LIBRARIES)
        if isinstance(error, RuntimeError) and str(error).startswith("can't start new thread"):
            return _failed(*_NO_PROCESS)
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


def _code_of(error: Exception) -> str:
    """Return the kind of an error; of typer's ``no-such-option``, ``missing-parameter``."""
    if isinstance(error, TailscopeError):
        return error.code
    if isinstance(error, OSError):
        return "system"
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", type(error).__name__.removesuffix("Error")).lower()


def _message_of(error: Exception) -> str:
    if isinstance(error, NoSuchOption):
        return error.message
    return error.format_message() if isinstance(error, typer.TyperException) else said(error)


def _failed(message: str, code: str | None, hint: str | None, status: int = 1) -> int:
    """Report an error and its code on one line, its hint on the next."""
    from tailscope.cli.terminal import tell

    behind = "" if code is None else f" [{code}]"
    tell("error", f"{message}{behind}")
    if hint:
        tell("hint", hint)
    return status
