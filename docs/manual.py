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

from docs.reference.cli import commands
from typer._completion_shared import get_completion_script

import tailscope
from tailscope.cli import application

if TYPE_CHECKING:
    from collections.abc import Iterator

COMPLETIONS = {
    "bash": "share/bash-completion/completions/tailscope",
    "zsh": "share/zsh/site-functions/_tailscope",
    "fish": "share/fish/vendor_completions.d/tailscope.fish",
}
_AT_ONCE = 2


def pages() -> Iterator[tuple[str, str]]:
    """The words of every command, and what it does."""
    yield "tailscope", application().help or ""
    for words, command in commands():
        yield words, command.help or ""


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
    man = folder / "share/man/man1"
    man.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for done in [pool.submit(_write_page, man, *each) for each in pages()]:
            done.result()
    for shell, path in COMPLETIONS.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        script = get_completion_script(
            prog_name="tailscope", complete_var="_TAILSCOPE_COMPLETE", shell=shell
        )
        (folder / path).write_text(script + "\n")


main()
