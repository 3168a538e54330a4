"""Help that reads well on a terminal, and errors that lead to it."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from docs.reference.cli import commands
from errors import advice_of, commands_in

from tailscope.cli import COMMANDS, application
from tailscope.cli.groups import CommandGroup
from tailscope.cli.panels import DUT, EXPERIMENT, HOST, MEASUREMENT, OUTPUT, TRAFFIC
from tailscope.registry import additions

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
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
    options = [name for name in found if name not in ("Arguments", "Commands")]
    assert options == [*expected, "Options"]
    assert found["Options"] == ["--help"]
    co_runners = ["--co-runner", "--co-runner-cpus", "--co-runner-platform"]
    assert found[HOST] == ["--cpus", *co_runners, "--tune"]
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
        ("run --burst x", "tailscope run"),
        ("run FILE more", "tailscope run"),
        ("model energy --foo", "tailscope model energy"),
        ("host apply", "tailscope host apply"),
        ("xyzzy", "tailscope"),
        ("--xyzzy", "tailscope"),
        ("runs xyzzy", "tailscope runs"),
    ],
)
def test_errors_lead_to_the_help_of_the_command(
    words: str, path: str, tailscope: Callable[..., Any]
) -> None:
    done = tailscope(*words.split())
    assert done.returncode == 1 and done.stdout == ""
    [hint] = done.stderr.splitlines()[1:]
    assert re.fullmatch(
        rf"hint: (Such as `.*tailscope |Commands are ).*: see `{path} --help`.", hint
    )


@pytest.mark.parametrize(
    ("words", "near", "path"),
    [
        ("rnu", "`tailscope run`", "tailscope"),
        ("lst", "`tailscope runs list`", "tailscope"),
        ("audti", "`tailscope host audit`", "tailscope"),
        ("mesure", "`tailscope run`", "tailscope"),
        ("model enrgy", "`tailscope model energy`", "tailscope model"),
        ("host adit", "`tailscope host audit`", "tailscope host"),
        ("compare sav runs", "`tailscope compare save`", "tailscope compare"),
        ("run --rat 3", "`--rate` or `--repeat`", "tailscope run"),
        ("--vers", "`--version`", "tailscope"),
        ("help rnu", "`tailscope run`", "tailscope"),
    ],
)
def test_commands_and_options_of_similar_names_are_suggested(
    words: str, near: str, path: str, tailscope: Callable[..., Any]
) -> None:
    done = tailscope(*words.split())
    assert done.returncode == 1 and done.stdout == ""
    assert advice_of(done) == [*commands_in(near), f"{path} --help"]


@pytest.mark.parametrize("group", ["host", "model", "runs"])
def test_a_group_alone_prints_its_help(group: str, tailscope: Callable[..., Any]) -> None:
    alone, asked = tailscope(group), tailscope(group, "--help")
    assert (alone.returncode, alone.stderr, alone.stdout) == (0, "", asked.stdout)


def test_alone_it_prints_the_main_commands_and_the_names_of_all_others(
    tailscope: Callable[..., Any],
) -> None:
    done = tailscope(env=WIDTH)
    assert done.returncode == 0 and done.stderr == ""
    lines = done.stdout.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    main, *others = application().sections().values()
    shown = re.findall(r"^  (\w+)  +\S", done.stdout, re.MULTILINE)
    assert shown[: len(main)] == list(main)
    for name in (name for names in others for name in names):
        assert re.search(rf"  .*\b{name}(,|$)", done.stdout, re.MULTILINE)


def test_the_help_has_each_command_on_one_line_in_the_sections_of_the_guide(
    tailscope: Callable[..., Any],
) -> None:
    page = tailscope("--help", env=WIDTH).stdout
    for commands_of_it in application().sections().values():
        for name, command in commands_of_it.items():
            assert re.search(rf"^  {name} +{re.escape(command.help)}$", page, re.MULTILINE)
    titles = re.findall(r"^(\w.*):$", page, re.MULTILINE)
    guide = (ROOT / "docs" / "which-command.md").read_text()
    headings = re.findall(r"^## (\w+)", guide, re.MULTILINE)
    assert titles[0] == "Main commands" and titles[-1] == "Options"
    assert set(titles[1:-1]) <= set(headings)
    assert list(COMMANDS)[1:-1] == [each for each in headings if each in COMMANDS]


def test_sections_of_added_commands_are_those_of_the_help() -> None:
    added = [each for found in additions().values() for each in found.commands]
    alone = {each.section for each in added if each.group is None}
    assert alone <= set(COMMANDS)


@pytest.mark.parametrize(
    ("words", "same"),
    [
        ("help", "--help"),
        ("help verify", "verify --help"),
        ("help runs list", "runs list --help"),
        ("help compare", "compare --help"),
    ],
)
def test_help_of_a_command(words: str, same: str, tailscope: Callable[..., Any]) -> None:
    done = tailscope(*words.split())
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout == tailscope(*same.split()).stdout


@pytest.mark.parametrize(
    ("words", "command"), [pytest.param(*each, id=each[0]) for each in commands()]
)
def test_help_begins_with_an_example_of_the_command(words: str, command: Any) -> None:
    context = command.make_context(words, [], resilient_parsing=True)
    beginning, *_ = context.get_help().split("\n\n")
    usage, _, example = beginning.partition("\nExample: ")
    assert usage.startswith(f"Usage: {words}")
    call = shlex.split(example.partition(" > ")[0].partition("tailscope ")[2])
    context = application().make_context("tailscope", call)
    while isinstance(context.command, CommandGroup):
        given = [*context._protected_args, *context.args]
        name, called, rest = context.command.resolve_command(context, given)
        assert called is not None
        context = called.make_context(name, rest, parent=context)
    assert context.command_path == words
