"""Help that reads well on a terminal, and errors that lead to it."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import pytest
from docs.reference.cli import commands

from tailscope.cli import application
from tailscope.cli.panels import DUT, EXPERIMENT, HOST, MEASUREMENT, OUTPUT, TRAFFIC

if TYPE_CHECKING:
    from collections.abc import Callable

WIDTH = {**os.environ, "COLUMNS": "80"}


def sections(page: str) -> dict[str, list[str]]:
    """The options of each section of a page."""
    found: dict[str, list[str]] = {}
    for line in page.splitlines():
        if heading := re.fullmatch(r"(\w.*):", line):
            options = found.setdefault(heading[1], [])
        elif option := re.match(r"  (?:-\w, )?(--[a-z-]+)", line):
            options.append(option[1])
    return found


@pytest.fixture(params=[name for name in ("run", "search") if name in application().commands])
def page(request: pytest.FixtureRequest, tailscope: Callable[..., Any]) -> str:
    done = tailscope(request.param, "--help", env=WIDTH)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def test_long_pages_have_sections(page: str) -> None:
    found = sections(page)
    expected = [DUT, TRAFFIC, MEASUREMENT, HOST, *([EXPERIMENT] if "FILE]" in page else []), OUTPUT]
    assert [name for name in found if name != "Arguments"] == [*expected, "Options"]
    assert found["Options"] == ["--help"]
    assert found[HOST] == ["--cpus", "--co-runner", "--co-runner-cpus", "--tune"]
    shown = ["--exact", "--verbose"] if "FILE]" in page else []
    assert found[OUTPUT] == ["--out", "--json", "--dry-run", "--quiet", *shown]


def test_other_pages_have_one_list(tailscope: Callable[..., Any]) -> None:
    assert list(sections(tailscope("explain", "--help").stdout)) == ["Arguments", "Options"]


@pytest.mark.parametrize(
    "command", [pytest.param(command, id=name) for name, command in commands()]
)
def test_pages_fit_a_terminal(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within 80 columns, names to the left, and what they mean in one column."""
    monkeypatch.setenv("COLUMNS", "80")
    context = command.make_context("tailscope", [], resilient_parsing=True)
    lines = context.get_help().splitlines()
    assert max(map(len, lines)) <= 80
    listed = lines[next(at for at, line in enumerate(lines) if re.fullmatch(r"\w.*:", line)) :]
    starts = {match.end() for line in listed if (match := re.match(r"  \S.*?  +(?=\S)", line))}
    starts |= {len(line) - len(line.lstrip()) for line in listed if line.startswith("   ")}
    assert len(starts) == 1


@pytest.mark.parametrize(
    ("words", "path"),
    [
        ("run --rat 3", "tailscope run"),
        ("run --burst x", "tailscope run"),
        ("run FILE more", "tailscope run"),
        ("model energy --foo", "tailscope model energy"),
        ("model enrgy", "tailscope model"),
        ("host", "tailscope host"),
        ("host apply", "tailscope host apply"),
        ("rnu", "tailscope"),
        ("--vers", "tailscope"),
        ("", "tailscope"),
    ],
)
def test_errors_lead_to_the_help_of_the_command(
    words: str, path: str, tailscope: Callable[..., Any]
) -> None:
    done = tailscope(*words.split())
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.splitlines()[1:] == [f"hint: See `{path} --help`."]


@pytest.mark.parametrize(("words", "near"), [("rnu", "run"), ("model enrgy", "energy")])
def test_commands_of_similar_names_are_suggested(
    words: str, near: str, tailscope: Callable[..., Any]
) -> None:
    assert f"Did you mean '{near}'?" in tailscope(*words.split()).stderr
