"""``tailscope runs show``: everything that is known of one run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tailscope.cli.options import (
    STANDARD,
    JsonFile,
    RunName,
    RunsFolder,
    without_format,
    write_json,
)
from tailscope.exceptions import RunCorruptError

if TYPE_CHECKING:
    from tailscope.store.notes import Remarks
    from tailscope.store.run import Run

EXAMPLE = "tailscope runs show runs/first --verify"


def command(
    run: RunName,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read all files, and compare their checksums.")
    ] = False,
    folder: RunsFolder = Path("runs"),
    json_file: JsonFile = None,
) -> int:
    from tailscope.store.folders import run_named
    from tailscope.store.notes import read_notes
    from tailscope.store.reader import file_states, read_run

    path = run_named(run, folder)
    shown = read_run(path)
    states = file_states(path, shown.info, checksums=verify)
    remarks = read_notes(path)
    if json_file is not None:
        write_json(json_file, _record(path, shown, states, remarks))
    if json_file != STANDARD:
        _print(path, shown, states, remarks)
    bad = [f"{name} ({state})" for name, state in states.items() if state in _BAD]
    if bad:
        raise RunCorruptError(
            f"{path}: files are missing or have changed: {', '.join(bad)}", code="files-changed"
        )
    return 0


_BAD = ("missing", "changed")


def _record(path: Path, run: Run, states: dict[str, str], remarks: Remarks) -> dict[str, object]:
    from tailscope.store.records.base import as_content
    from tailscope.store.repeat import command_of

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
        "repeat": command_of(run.info),
    }


def _print(path: Path, run: Run, states: dict[str, str], remarks: Remarks) -> None:
    from tailscope.cli.table import aligned, note_lines, print_table
    from tailscope.store.repeat import command_of
    from tailscope.units import count_text, printable

    print_table(run, run.info, written=[path])
    repeat = command_of(run.info) or "`tailscope run FILE`: the experiment names the machines"
    print(printable(f"{'repeat':<10}{repeat}"))
    if remarks.tags:
        print(printable(f"{'tags':<10}{' '.join(remarks.tags)}"))
    if run.explanation is not None:
        from tailscope.cli.explain import print_tail

        print()
        print_tail(run.explanation)
    if remarks.notes:
        print("\nnotes")
        for line in note_lines(remarks.notes):
            print(line)
    print()
    files = [
        (printable(name), count_text(file.size_bytes), states[name])
        for name, file in run.info.files.items()
    ]
    for line in aligned(("file", "bytes", ""), [files]):
        print(line)
