"""Man pages and completions, which the wheel has: ``python -m docs.manual FOLDER``.

In the folder they lie as below ``/usr``. help2man makes the pages from what ``--help`` prints.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from typer._completion_shared import get_completion_script

import tailscope
from tailscope.cli import application

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from typer._click import Command

COMPLETIONS = {
    "bash": "share/bash-completion/completions/tailscope",
    "zsh": "share/zsh/site-functions/_tailscope",
    "fish": "share/fish/vendor_completions.d/tailscope.fish",
}
_AT_ONCE = 2


def commands() -> Iterator[tuple[str, str]]:
    """The words of every command, and what it does."""
    group = application()
    yield "tailscope", group.help or ""
    yield from _below("tailscope", group.commands)


def _below(words: str, found: Mapping[str, Command]) -> Iterator[tuple[str, str]]:
    for name, command in found.items():
        yield f"{words} {name}", command.help or ""
        loaded = command.load() if hasattr(command, "load") else command
        yield from _below(f"{words} {name}", getattr(loaded, "commands", {}))


def _write_page(folder: Path, words: str, about: str) -> None:
    name = words.replace(" ", "-")
    program, *rest = words.split()
    called = " ".join([str(Path(sys.executable).with_name(program)), *rest])
    made = subprocess.run(
        [
            *("help2man", "--no-info", "--section=1", "--manual=tailscope"),
            f"--version-string={name} {tailscope.__version__}",
            f"--name={about.splitlines()[0].rstrip('.')}",
            called,
        ],
        env={**os.environ, "COLUMNS": "80", "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        raise SystemExit(f"error: help2man {called}: {made.stderr.strip()}")
    (folder / f"{name}.1").write_text(made.stdout.replace(called, words))


def main() -> None:
    """Write all of them."""
    parser = argparse.ArgumentParser(prog="python -m docs.manual")
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    pages = folder / "share/man/man1"
    pages.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for done in [pool.submit(_write_page, pages, *each) for each in commands()]:
            done.result()
    for shell, path in COMPLETIONS.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        script = get_completion_script(
            prog_name="tailscope", complete_var="_TAILSCOPE_COMPLETE", shell=shell
        )
        (folder / path).write_text(script + "\n")


main()
