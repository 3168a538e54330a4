"""The command line: one file a command, each of them parse, then plan, then run.

Exit status: 0 ran and within limits, 1 could not run (wrong usage included), 2 ran and a limit was
exceeded, 3 ran and the evidence does not suffice, 130 interrupted. Results go to standard output,
all else to standard error. Heavy libraries are imported where they are used: ``tailscope --help``
is quick.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from tailscope.cli import (
    agent,
    analyze,
    calibrate,
    clean,
    compare,
    compare_instruments,
    explain,
    export,
    host,
    model,
    noise,
    note,
    plan,
    publish,
    recommend,
    report,
    run,
    schema,
    search,
    show,
    simulate,
    sql,
    tag,
    tune,
    verify,
)
from tailscope.cli import list as list_runs
from tailscope.cli.options import INTERRUPTED, UNDECIDED
from tailscope.exceptions import EvidenceError, TailscopeError
from tailscope.text import printable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

__all__ = ["main"]

_MEASURING = ("calibrate", "compare-instruments", "noise", "run", "search", "tune")

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        import tailscope

        print(f"tailscope {tailscope.__version__}")
        raise typer.Exit


@app.callback()
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
    if context.invoked_subcommand in _MEASURING:
        host.remind()


app.command("agent")(agent.command)
app.command("analyze")(analyze.command)
app.command("calibrate")(calibrate.command)
app.command("clean")(clean.command)
app.command("compare")(compare.command)
app.command("compare-instruments")(compare_instruments.command)
app.command("explain")(explain.command)
app.command("export")(export.command)
app.add_typer(host.app, name="host")
app.command("list")(list_runs.command)
app.add_typer(model.app, name="model")
app.command("noise")(noise.command)
app.command("note")(note.command)
app.command("plan")(plan.command)
app.command("publish")(publish.command)
app.command("recommend")(recommend.command)
app.command("report")(report.command)
app.command("run")(run.command)
app.command("schema")(schema.command)
app.command("search")(search.command)
app.command("show")(show.command)
app.command("simulate")(simulate.command)
app.command("sql")(sql.command)
app.command("tag")(tag.command)
app.command("tune")(tune.command)
app.command("verify")(verify.command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status.

    Parameters
    ----------
    arguments : sequence of str, optional
        Without the name of the program; those of the process by default.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    _end_as_by_ctrl_c()
    status = _run(None if arguments is None else [*arguments])
    return _failed("interrupted", None, INTERRUPTED) if status == INTERRUPTED else status


def _end_as_by_ctrl_c() -> None:
    """Let other signals act as Ctrl-C: what was begun is taken back, or ends with what there is.

    They may come together, as where a session ends: only the first one interrupts, and the others
    do not interrupt what it has caused. Under nohup the end of the terminal ends nothing.
    """
    is_ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    ending = (signal.SIGTERM,) if is_ignored else (signal.SIGTERM, signal.SIGHUP)

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        for each in ending:
            signal.signal(each, lambda *_: None)
        raise KeyboardInterrupt

    for each in ending:
        signal.signal(each, interrupt)


def _run(arguments: list[str] | None) -> int:
    """Turn every way in which a command can end into an exit status: the only place that does."""
    try:
        command = ("tailscope", *(sys.argv[1:] if arguments is None else arguments))
        status = app(arguments, prog_name="tailscope", standalone_mode=False, obj=command)
        sys.stdout.flush()
    except typer.TyperException as error:
        return _failed(error.format_message(), "`tailscope --help` lists what can be said")
    except EvidenceError as error:
        return _failed(str(error), error.hint, UNDECIDED)
    except TailscopeError as error:
        return _failed(str(error), error.hint)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        name = f"{error.filename}: " if error.filename is not None else ""
        return _failed(f"{name}{error.strerror or error}", None)
    except MemoryError:
        return _failed("out of memory", None)
    except Exception as error:
        if sys.flags.dev_mode:
            raise
        return _failed(
            f"internal: {type(error).__name__}: {error}",
            "this is a bug in tailscope; `python -X dev -m tailscope ...` shows where",
        )
    return status or 0


def _failed(message: str, hint: str | None, status: int = 1) -> int:
    """Report an error on one line, with its hint on the next."""
    print("error:", printable(message), file=sys.stderr)
    if hint:
        print("hint:", printable(hint), file=sys.stderr)
    return status
