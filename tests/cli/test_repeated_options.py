"""An option that takes one value refuses a second one: in every command, and in those to come."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import captures
import pytest
from errors import code_of
from typer.core import TyperOption

from tailscope.cli import application
from tailscope.cli.parsing import OptionRepeatedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from typer._click import Command, Context


def below(command: Any, path: str = "tailscope") -> Iterator[tuple[str, Command]]:
    """Every command and every group, hidden ones too."""
    command = getattr(command, "load", lambda: command)()
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from below(inner, f"{path} {name}")


ALL = list(below(application()))
EVERY_COMMAND = pytest.mark.parametrize(
    "command", [pytest.param(command, id=path) for path, command in ALL]
)


def parsed(command: Command, words: list[str], *, completing: bool = False) -> dict[str, Any]:
    """What the parser of a command makes of words."""
    context: Context = command.context_class(command, resilient_parsing=completing)
    return command.make_parser(context).parse_args([*words])[0]


def options(command: Command) -> list[TyperOption]:
    context = command.context_class(command)
    return [each for each in command.get_params(context) if isinstance(each, TyperOption)]


def test_the_walk_reaches_what_there_is() -> None:
    paths = [path for path, _ in ALL]
    assert {"tailscope", "tailscope run", "tailscope host apply", "tailscope noise"} <= {*paths}
    assert sum(len(options(command)) for _, command in ALL) > 200


@EVERY_COMMAND
def test_a_second_value_is_kept_or_refused(command: Command) -> None:
    """By any two of an option's names, short or long."""
    for option in options(command):
        if option.is_flag:
            continue
        for name in option.opts:
            words = [option.opts[0], "first", name, "second"]
            if option.multiple:
                assert parsed(command, words)[option.name] == ["first", "second"]
                continue
            with pytest.raises(OptionRepeatedError) as refused:
                parsed(command, words)
            said = refused.value.format_message()
            assert said.startswith(f"{option.opts[0]}: ")
            assert re.findall("'(.*?)'", said)[:2] == ["first", "second"]
            assert parsed(command, words, completing=True)[option.name] == "second"


@EVERY_COMMAND
def test_a_flag_may_be_repeated_and_not_contradicted(command: Command) -> None:
    for option in options(command):
        if not option.is_flag:
            continue
        yes, no = option.opts[0], option.secondary_opts[:1]
        assert parsed(command, [yes, yes])[option.name] is True
        for other in no:
            assert parsed(command, [other, other])[option.name] is False
            with pytest.raises(OptionRepeatedError) as refused:
                parsed(command, [yes, other])
            said = refused.value.format_message()
            assert said.startswith(f"{yes}: ") and other in re.findall(r"[\w-]+", said)


@pytest.mark.parametrize(
    ("words", "path", "said"),
    [
        ("run --dut l2fwd --rate 1k --rate 5k", "run", "--rate: got '1k' and '5k'"),
        ("run --dut l2fwd -d 5s --duration=6s -d7s", "run", "--duration: got '5s', '6s' and '7s'"),
        ("analyze a b --worst 5 --worst 5", "analyze", "--worst: got '5' and '5'"),
        ("host export --cpus 1 -c 2", "host export", "--cpus: got '1' and '2'"),
    ],
)
def test_the_error_names_the_option_and_its_values(
    tailscope: Callable[..., Any], words: str, path: str, said: str
) -> None:
    done = tailscope(*words.split())
    assert (done.returncode, done.stdout) == (1, "")
    assert code_of(done) == "option-repeated"
    error, hint = done.stderr.splitlines()
    assert error.startswith(f"error: {said}, ")
    assert f"tailscope {path} --help" in hint


def test_pairs_are_analysed_in_the_order_in_which_they_are_given(
    tailscope: Callable[..., Any], tmp_path: Path
) -> None:
    latencies_ns = {"slow": 9_000, "fast": 1_000}
    pairs = [
        captures.pair(tmp_path / name, [latency] * 5) for name, latency in latencies_ns.items()
    ]
    words = [word for pre, post in pairs for word in ("--pre", pre, "--post", post)]
    done = tailscope("analyze", *words, "--json", "-", "--out", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    found = {each["pair"]: each["latency_ns_p50"] for each in json.loads(done.stdout)}
    assert list(found.items()) == [
        (f"{name}/x-pre-1.pcap", latency) for name, latency in latencies_ns.items()
    ]
    for name, latency in latencies_ns.items():
        summary = json.loads((tmp_path / "out" / name / "x-pre-1/summary.json").read_text())
        assert summary["latency_ns_p50"] == latency


@pytest.mark.parametrize(
    ("words", "code", "got"),
    [
        ("--pre a --pre b --post c", "pairs-uneven", "got 2 and 1"),
        ("--pre a", "pairs-uneven", "got 1 and 0"),
        ("c --pre a --post b", "pre-post-with-captures", "got c"),
        ("--pre - --pre a --post b --post c", "pairs-standard-input", "got -"),
        ("--pre /a --post b --pre /a --post c", "pair-name-twice", "got /a twice"),
    ],
)
def test_captures_that_are_no_pairs_are_refused(
    tailscope: Callable[..., Any], words: str, code: str, got: str
) -> None:
    done = tailscope("analyze", *words.split())
    assert (done.returncode, code_of(done)) == (1, code)
    assert got in done.stderr
