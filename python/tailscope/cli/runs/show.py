"""``tailscope runs show``: everything that is known of one run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tailscope.cli.options import (
    STANDARD,
    Exact,
    JsonFile,
    RunName,
    RunsFolder,
    Verbose,
    flag,
    without_format,
    write_json,
)
from tailscope.cli.terminal import say
from tailscope.cli.view import View
from tailscope.exceptions import RunCorruptError
from tailscope.units import count_text

if TYPE_CHECKING:
    from tailscope.store.notes import Remarks
    from tailscope.store.run import Run

EXAMPLE = "tailscope runs show runs/first --verify"


def command(
    run: RunName,
    verify: Annotated[
        bool, flag("--verify", "Read all files, and compare their checksums.")
    ] = False,
    folder: RunsFolder = Path("runs"),
    json_file: JsonFile = None,
    exact: Exact = False,
    verbose: Verbose = False,
) -> int:
    from tailscope.store.folders import run_named
    from tailscope.store.reader import file_states, read_run

    path = run_named(run, folder)
    shown = read_run(path)
    states = file_states(path, shown.info, checksums=verify)
    remarks = shown.remarks
    write_json(json_file, _record(path, shown, states, remarks))
    if json_file != STANDARD:
        _print(path, shown, states, remarks, View(exact, verbose))
    bad = [f"{name} ({state})" for name, state in states.items() if state in _BAD]
    if bad:
        raise RunCorruptError(
            f"{path}: files are missing or have changed: {', '.join(bad)}", code="files-changed"
        )
    return 0


_BAD = ("missing", "changed")


def _record(path: Path, run: Run, states: dict[str, str], remarks: Remarks) -> dict[str, object]:
    from tailscope.store.records.base import as_content

    info = as_content(run.info)
    return {
        "run": run.label,
        "path": str(path.resolve()),
        "info": {name: value for name, value in info.items() if name != "files"},
        "summary": run.summary,
        "warnings": list(run.warnings),
        "explanation": None if run.explanation is None else without_format(run.explanation),
        "tags": list(remarks.tags),
        "notes": [as_content(note) for note in remarks.notes],
        "files": [
            {"file": name, **as_content(file), "state": states[name]}
            for name, file in run.info.files.items()
        ],
        "repeat": _repeat(path, run),
    }


def _repeat(path: Path, run: Run) -> str | None:
    """Return the command that measures a run once more; a folder of the wing knows its own."""
    from tailscope.registry import offered
    from tailscope.store.repeat import command_of

    told = (command(path) for command in offered("repeat"))
    return next(filter(None, told), None) or command_of(run.info)


def _print(path: Path, run: Run, states: dict[str, str], remarks: Remarks, view: View) -> None:
    from tailscope.cli.figures import print_table
    from tailscope.cli.table import note_lines
    from tailscope.cli.terminal import say_command

    print_table(run, run.info, [path], view)
    if remarks.tags:
        view.say_named("tags", " ".join(remarks.tags))
    if run.explanation is not None:
        from tailscope.cli.explain import print_tail

        print()
        print_tail(run.explanation, view)
    if remarks.notes:
        print("\nnotes")
        for line in note_lines(remarks.notes):
            say(line)
        print()
    files = run.info.files
    if view.verbose or set(states.values()) != {"there"}:
        rows = [(name, count_text(file.size_bytes), states[name]) for name, file in files.items()]
        view.print_table(("file", "bytes", "state"), [rows])
    else:
        size = sum(file.size_bytes for file in files.values())
        view.say_named("files", f"{len(files)}, {count_text(size)} bytes in all: -v lists them")
    if (repeat := _repeat(path, run)) is None:
        how = "nothing does: not all that it was made of was kept"
        if run.info.hosts is not None:
            how = "`tailscope run FILE`: the experiment names the machines"
        view.say_named("repeat", how)
    else:
        say_command("repeat", repeat)
