"""A command imports what it needs: help and completion are quick because they import little."""

from __future__ import annotations

import os
import subprocess
import sys
from keyword import iskeyword
from typing import TYPE_CHECKING

import captures
import pytest
from docs.reference.cli import commands

from tailscope import cli
from tailscope.cli import compare, host, model, runs
from tailscope.registry import additions

if TYPE_CHECKING:
    from pathlib import Path

NAMES = [name.split()[1:] for name, _ in commands()]
TABLES = {
    "": [name for commands in cli.COMMANDS.values() for name in commands],
    "compare.": compare.COMMANDS,
    "host.": host.COMMANDS,
    "model.": model.COMMANDS,
    "runs.": runs.COMMANDS,
}
ADDED = {
    command.words: f"tailscope.extra.{folder}.{command.module}"
    for folder, addition in additions().items()
    for command in addition.commands
}
MODULES = {*ADDED.values()} | {
    f"tailscope.cli.{group}{name.replace('-', '_')}{'_' * iskeyword(name)}"
    for group, table in TABLES.items()
    for name in table
}
"""Those of commands and groups."""

DECLARATION = {"msgspec", "typing_extensions"}
"""What declares the fields of a run, from which commands make their options."""

ALWAYS = {
    *("tailscope", "tailscope.exceptions", "tailscope.registry"),
    *(
        f"tailscope.cli{name}"
        for name in ("", ".groups", ".lazy", ".panels", ".parsing", ".status")
    ),
    *("tailscope.extra", *(f"tailscope.extra.{name}" for name in additions())),
}
"""What every call imports of tailscope."""

REPORT = """
import sys
from tailscope.cli import main

try:
    main(sys.argv[1:])
finally:
    print(*sys.modules, file=sys.stderr)
"""


def imported(program: str, *arguments: str, **environment: str) -> set[str]:
    """The modules that a program has imported when it ends."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    )
    return set(done.stderr.split())


def own(modules: set[str]) -> set[str]:
    return {name for name in modules if name.split(".")[0] == "tailscope"}


def others(modules: set[str]) -> set[str]:
    """The packages that come neither with Python nor with tailscope."""
    return {name.split(".")[0] for name in modules} - sys.stdlib_module_names - {"tailscope"}


@pytest.fixture(scope="module")
def typers() -> set[str]:
    """What typer imports by itself."""
    return others(imported("import sys, typer; print(*sys.modules, file=sys.stderr)"))


def of_command(words: list[str]) -> set[str]:
    """The modules of a command, and of the group that it is in."""
    found = set()
    for count in range(1, len(words) + 1):
        names = [word.replace("-", "_") + "_" * iskeyword(word) for word in words[:count]]
        own = ".".join(["tailscope.cli", *names])
        found.add(ADDED.get(" ".join(words[:count]), own))
    return found


def test_help_imports_no_command(typers: set[str]) -> None:
    found = imported(REPORT, "--help")
    assert own(found) == ALWAYS
    assert others(found) == typers
    assert "rich" not in typers


@pytest.mark.parametrize("words", [["host"], ["model"], ["runs"], *NAMES], ids=" ".join)
def test_help_of_a_command_imports_that_command(words: list[str], typers: set[str]) -> None:
    found = imported(REPORT, *words, "--help")
    assert own(found) & MODULES == of_command(words)
    assert others(found) - DECLARATION == typers
    assert "tailscope._engine" not in found


@pytest.mark.parametrize(
    ("words", "shell"),
    [
        *(([], shell) for shell in ("bash", "zsh", "fish")),
        *((words.split(), "bash") for words in ("model", "model energy", "run", "compare save")),
    ],
)
def test_completion_imports_what_is_completed(
    words: list[str], shell: str, typers: set[str]
) -> None:
    line = ["tailscope", *words, "--"]
    found = imported(
        REPORT,
        _TAILSCOPE_COMPLETE=f"complete_{shell}",
        COMP_WORDS="\n".join(line),
        COMP_CWORD=str(len(line) - 1),
        _TYPER_COMPLETE_ARGS=" ".join(line),
        _TYPER_COMPLETE_FISH_ACTION="get-args",
    )
    assert own(found) & MODULES == of_command(words)
    assert others(found) - DECLARATION == typers


def test_only_what_measures_asks_whether_the_host_was_left_tuned() -> None:
    reminder = "tailscope.cli.reminder"
    for words in ("run --dry-run --dut l2fwd", "search --dut loop --dry-run"):
        assert reminder in imported(REPORT, *words.split()), words
    for words in ("runs list", "compare . .", "run --help"):
        assert reminder not in imported(REPORT, *words.split()), words


def test_an_analysis_imports_what_it_prints(tmp_path: Path, typers: set[str]) -> None:
    """Of what is kept in runs, only the plan; and nothing that makes cryptography start."""
    pair = captures.pair(tmp_path / "pair", [1_000, 2_000])
    found = imported(REPORT, "analyze", *map(str, pair))
    assert others(found) - DECLARATION == typers
    assert {name for name in found if name.startswith("tailscope.store.")} == {
        f"tailscope.store.{name}"
        for name in ("info", "records", "records.about", "records.base", "records.host")
    } | {"tailscope.store.records.plan"}
    assert not {"hashlib", "secrets", "tailscope.store.about"} & found


def test_a_run_directory_is_written_and_read_without_pandas(tmp_path: Path) -> None:
    """Arrow's own conversions import it; see `tailscope.engine.arrow`."""
    pair = captures.pair(tmp_path / "pair", [1_000, 2_000])
    out = str(tmp_path / "run")
    assert "pandas" not in imported(REPORT, "analyze", *map(str, pair), "--out", out)
    assert "pandas" not in imported(REPORT, "verify", out, "--slo", "p50<1ms")
    drawn = imported(REPORT, "report", out, "--out", str(tmp_path / "page.html"))
    assert not {"pandas", "scipy"} & drawn
