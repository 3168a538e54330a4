"""YAML of others: bombs, circles and depths are errors with a line, and soon."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from errors import code_of, raises

from tailscope.exceptions import UsageError
from tailscope.plan.yaml_file import read_yaml

if TYPE_CHECKING:
    from pathlib import Path

Run = Callable[..., Any]

TIMEOUT_S = 20
"""A bomb takes longer, or all of the memory."""
LEVELS = 30


def bomb(inside: str) -> str:
    """Nine values at the first level, and nine times as many at each further one."""
    lines = [f"a0: &a0 [{', '.join(['x'] * 9)}]"]
    for level in range(1, LEVELS):
        nine = ", ".join([f"*a{level - 1}"] * 9)
        lines.append(f"a{level}: &a{level} {inside.format(nine)}")
    return "\n".join(lines)


def merged() -> str:
    """The same of mappings that take over each other."""
    lines = ["a0: &a0 {x: 1}"]
    for level in range(1, LEVELS):
        nine = ", ".join([f"*a{level - 1}"] * 9)
        lines.append(f"a{level}: &a{level} {{<<: [{nine}]}}")
    return "\n".join(lines)


BAD: dict[str, tuple[str, str, str]] = {
    "bomb of lists": (bomb("[{}]"), "yaml-size", ":5: "),
    "bomb of mappings": (bomb("{{l: [{}]}}"), "yaml-size", ":5: "),
    "bomb of merges": (merged(), "yaml-size", ":5: "),
    "values": ("name: [" + "1," * 20_000 + "]", "yaml-size", ":1: "),
    "list in itself": ("name: t\nvary: &a [1, *a]", "yaml-circle", ":2: "),
    "mapping in itself": ("&a\nname: t\nfixed: *a", "yaml-circle", ":3: "),
    "merge of itself": ("name: &a\n  <<: *a", "yaml-circle", ":2: "),
    "deep list": ("name: " + "[" * 100_000, "yaml-depth", ":1: "),
    "deep mapping": ("{a: " * 50_000, "yaml-depth", ":1: "),
    "deep blocks": ("- " * 100_000, "yaml-depth", ":1: "),
    "deep JSON": ('{"a": ' * 40_000, "yaml-depth", ":1: "),
    "deep and whole": ("[" * 600 + "]" * 600, "yaml-depth", ":1: "),
    "large": (
        "name: t\n" + "# nothing\n" * 100_000,
        "file-too-large",
        ": expected at most 256 KiB",
    ),
    "no anchor": ("name: *a", "yaml", ":1: found undefined alias 'a'"),
    "twice": ("name: t\nfixed: {dut: a, dut: b}", "yaml-key-twice", ":2: dut: "),
    "list as key": ("name: t\n? [a]\n: b", "yaml", ":2: found unhashable key"),
    "mapping as key": ("? {a: b}\n: b", "yaml", ":1: found unhashable key"),
    "no date": (
        "name: 2001-13-45",
        "yaml-value",
        ":1: expected a value of the type timestamp, got '2001-13-45'",
    ),
    "long number": (
        "name: " + "1" * 5_000,
        "yaml-value",
        ":1: expected a value of the type int, got '1111",
    ),
    "no number": ("name: !!int x", "yaml-value", ":1: expected a value of the type int, got 'x'"),
    "no boolean": (
        "name: !!bool x",
        "yaml-value",
        ":1: expected a value of the type bool, got 'x'",
    ),
    "no time": (
        "name: !!timestamp x",
        "yaml-value",
        ":1: expected a value of the type timestamp, got 'x'",
    ),
    "object": (
        "name: !!python/object/apply:os.getpid []",
        "yaml",
        ":1: could not determine a constructor",
    ),
    "two documents": ("name: t\n---\nname: u", "yaml", ":2: but found another document"),
    "control characters": ("name: \x00", "yaml", ": unacceptable character #x0000"),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_is_wrong_is_said_with_its_line(tailscope: Run, tmp_path: Path, kind: str) -> None:
    text, code, place = BAD[kind]
    file = tmp_path / "x.yaml"
    file.write_text(text)
    done = tailscope("run", file, "--dry-run", "--out", tmp_path / "out", timeout=TIMEOUT_S)
    assert (done.returncode, done.stdout) == (1, "")
    assert code_of(done) == code
    error, hint = done.stderr.splitlines()
    assert error.startswith(f"error: {file}{place}") and hint.startswith("hint: ")


@pytest.mark.parametrize("kind", ["bomb of lists", "list in itself", "deep JSON", "no date"])
def test_labels_are_read_with_the_same_care(tailscope: Run, tmp_path: Path, kind: str) -> None:
    text, code, place = BAD[kind]
    file = tmp_path / "about.yaml"
    file.write_text(text)
    done = tailscope(
        "analyze", "a.pcap", "b.pcap", "--about", file, "--out", tmp_path / "a", timeout=TIMEOUT_S
    )
    assert (done.returncode, code_of(done)) == (1, code)
    assert done.stderr.splitlines()[0].startswith(f"error: {file}{place}")


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_bytes(b"name: \xff")
    with raises(UsageError, "not-text") as refused:
        read_yaml(file)
    assert str(refused.value).startswith(f"{file}: byte 6: ")


def test_half_a_character_is_no_text(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text('a: 1\nb: "\\ud800"\n')
    with raises(UsageError, "yaml-value") as refused:
        read_yaml(file)
    assert str(refused.value).startswith(f"{file}:2: ")


def test_anchors_and_merges_are_understood(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(
        "usual: &usual {a: 1, b: [2, 3]}\nother: {<<: *usual, a: 4}\nsame: *usual\nempty:\n"
    )
    usual = {"a": 1, "b": [2, 3]}
    assert read_yaml(file).content == {
        "usual": usual,
        "other": {**usual, "a": 4},
        "same": usual,
        "empty": None,
    }


def test_nothing_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("# nothing\n")
    assert read_yaml(tmp_path / "x.yaml").content is None


WORDS = (
    *("a", "b", "[", "]", "{", "}", ", ", ": ", "- ", "? ", "\n", "\n  ", "\n    ", "&a ", "*a"),
    *(
        "&b ",
        "*b",
        "<<: ",
        "!!int ",
        "!!map ",
        "!!omap ",
        "!!set ",
        "!!binary ",
        "'",
        '"',
        "|",
        ">",
    ),
    *("1", "0x", "1:2:3", "2001-01-01", ".inf", "~", "#", "%YAML 1.1\n", "---\n", "...\n", "\t"),
)


@pytest.mark.parametrize("seed", range(20))
def test_any_text_is_content_or_an_error(tmp_path: Path, seed: int) -> None:
    chance, file = random.Random(seed), tmp_path / "x.yaml"
    for _ in range(150):
        file.write_text("".join(chance.choices(WORDS, k=chance.randrange(1, 40))))
        try:
            repr(read_yaml(file).content)
        except UsageError as error:
            assert str(error).startswith(str(file))
            assert "\n" not in str(error)
