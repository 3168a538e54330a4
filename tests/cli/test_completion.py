"""Shells complete commands and options, as they would ask for them."""

from __future__ import annotations

import os
import shlex
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from command import COMMAND

from tailscope.cli import application

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SHOWN = [name for name, command in application().commands.items() if not command.hidden]
LINES = [
    ("tailscope ", SHOWN),
    ("tailscope comp", [name for name in SHOWN if name.startswith("comp")]),
    ("tailscope help comp", [name for name in SHOWN if name.startswith("comp")]),
    ("tailscope model o", ["overload"]),
    ("tailscope compare sa", ["save"]),
    ("tailscope compare --ju", ["--junit"]),
    ("tailscope compare save --o", ["--out"]),
    ("tailscope runs list --so", ["--sort"]),
    ("tailscope host au", ["audit"]),
    ("tailscope run --power", ["--power", "--power-phase"]),
    ("tailscope run --power none --power", ["--power-phase"]),
    ("tailscope model overload --oth", ["--other-rate"]),
    ("tailscope --ver", ["--version"]),
    ("tailscope --version pl", ["plan"]),
    ("tailscope run experiments/q", []),
    ("tailscope nothing --p", []),
]


def asked(shell: str, **environment: str) -> str:
    """The answer to a shell."""
    done = subprocess.run(
        [COMMAND],
        env={**os.environ, "_TAILSCOPE_COMPLETE": f"complete_{shell}", **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize(("line", "expected"), LINES)
def test_bash(line: str, expected: list[str], tmp_path: Path) -> None:
    """By bash itself, with the script that is to be installed."""
    words = line.split(" ")
    program = f"""
eval "$(tailscope --show-completion)"
[[ $(complete -p tailscope) == *"-F _tailscope_completion tailscope" ]] || exit 1
COMP_WORDS=({shlex.join(words)}) COMP_CWORD={len(words) - 1}
_tailscope_completion tailscope
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = shell_run(program, tmp_path)
    assert done.stdout.split() == expected, done.stderr


def shell_run(program: str, home: Path) -> subprocess.CompletedProcess[str]:
    path = f"{COMMAND.parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", program],
        env={**os.environ, "HOME": str(home), "PATH": path},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(("line", "expected"), LINES)
def test_fish(line: str, expected: list[str]) -> None:
    said = asked("fish", _TYPER_COMPLETE_ARGS=line, _TYPER_COMPLETE_FISH_ACTION="get-args")
    assert [each.partition("\t")[0] for each in said.splitlines() if each] == expected


@pytest.mark.parametrize(("line", "expected"), LINES)
def test_zsh(line: str, expected: list[str]) -> None:
    said = asked("zsh", _TYPER_COMPLETE_ARGS=line).strip()
    if not expected:
        assert said == "_files"
        return
    assert said.startswith("_arguments '*: :((") and said.endswith("))'")
    found = said.removeprefix("_arguments '*: :((").removesuffix("))'").splitlines()
    assert [each.split('"')[1] for each in found] == expected


def test_descriptions_are_the_help() -> None:
    line = {"_TYPER_COMPLETE_ARGS": "tailscope run --pattern"}
    said = asked("fish", **line, _TYPER_COMPLETE_FISH_ACTION="get-args")
    about = "Spacing of departures, or of bursts: cbr, poisson or captured (of a replayed capture)."
    assert said == f"--pattern\t{about}  [default: cbr]\n"
    assert r"[default\\: cbr]" in asked("zsh", **line)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts(shell: str, tailscope: Callable[..., Any]) -> None:
    environment = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    done = tailscope("--show-completion", shell, env=environment)
    assert done.returncode == 0, done.stderr
    assert f"_TAILSCOPE_COMPLETE=complete_{shell}" in done.stdout
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=done.stdout, text=True, check=True)


def test_installed_for_the_shell_that_asks(tmp_path: Path) -> None:
    done = shell_run("tailscope --install-completion; exit", tmp_path)
    assert done.returncode == 0, done.stderr
    script = tmp_path / ".bash_completions" / "tailscope.sh"
    assert f"source '{script}'" in (tmp_path / ".bashrc").read_text()
    assert "complete_bash" in script.read_text()
