"""Former names of commands, and words that mean the same, lead on to what they are called now."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from docs.reference.cli import commands
from synthetic import write_run

from tailscope.cli import application
from tailscope.cli.old_names import NEW_NAMES, OLD_NAMES, SYNONYMS
from tailscope.registry import formats

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KNOWN = {name.removeprefix("tailscope ") for name, _ in commands()} | {*application().commands}
FORMER = {
    **{name: name for name in ("agent", "analyze", "calibrate", "compare", "explain", "host")},
    **{name: name for name in ("init", "model", "noise", "plan", "recommend", "report", "run")},
    **{name: name for name in ("schema", "search", "simulate", "trend", "verify", "watch")},
    "baseline": "compare",
    "baseline compare": "compare baseline",
    "baseline save": "compare save",
    "clean": "runs clean",
    "compare-instruments": "calibrate --instruments all",
    "duet": "compare duet",
    "export": "runs export",
    "finish": "runs finish",
    "import": "runs import",
    "list": "runs list",
    "note": "runs note",
    "publish": "runs publish",
    "rfc": "search standard",
    "show": "runs show",
    "sql": "runs sql",
    "tag": "runs tag",
    "trace": "report --format perfetto",
    "tune": "host tune",
}
"""The 35 commands of the version before, and the two below `baseline`, with what each is now."""


def is_here(words: str) -> bool:
    """Whether no folder of the wing that it takes is deleted."""
    command, _, format_name = words.partition(" --format ")
    return command in KNOWN and (not format_name or format_name in formats())


def test_every_command_of_the_version_before_is_known() -> None:
    assert len({name.split()[0] for name in FORMER}) == 35
    assert {name: new for name, new in FORMER.items() if name != new} == OLD_NAMES


@pytest.mark.parametrize(("old", "new"), [pair for pair in FORMER.items() if is_here(pair[1])])
def test_a_former_name_is_the_command_that_it_is_now(
    old: str, new: str, tailscope: Callable[..., Any]
) -> None:
    former = tailscope(*old.split(), "--help")
    assert former.returncode == 0
    assert former.stdout == tailscope(*new.split(), "--help").stdout
    note = f"note: `tailscope {old}` is now `tailscope {new}`\n"
    assert former.stderr == ("" if old == new else note)
    asked = tailscope("help", *old.split())
    assert (asked.stdout, asked.stderr) == (former.stdout, former.stderr)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs as they may be called: one as a command is."""
    made = tmp_path_factory.mktemp("runs")
    for seed, name in enumerate(("one", "other", "save")):
        rng = np.random.default_rng(seed)
        write_run(made / name, np.rint(rng.exponential(4_000, 5_000)).astype(np.int64) + 2_000)
    return made


SAME = [
    ("list .", "runs list ."),
    ("show one --json -", "runs show one --json -"),
    ("tag one --add paper", "runs tag one --add paper"),
    ("note one", "runs note one"),
    ("finish one", "runs finish one"),
    ("clean --dry-run", "runs clean --dry-run"),
    ("baseline save one other -o b.json", "compare save one other -o b.json"),
    ("baseline compare b.json one --json -", "compare baseline b.json one --json -"),
    ("trace one -o one.pftrace", "report one --format perfetto -o one.pftrace"),
    ("trace one", "report one --format perfetto"),
    ("open one --out page.html", "report one --out page.html"),
    ("duet '{dut:", "compare duet '{dut:"),
    ("rfc 2544 --dut l2fwd --dry-run", "search standard 2544 --dut l2fwd --dry-run"),
    ("rfc2544 --dut l2fwd --dry-run", "search standard 2544 --dut l2fwd --dry-run"),
    ("measure --dut l2fwd --dry-run --out r", "run --dut l2fwd --dry-run --out r"),
    ("version", "--version"),
]


@pytest.mark.parametrize(
    ("old", "new"), [pair for pair in SAME if is_here(NEW_NAMES[pair[0].split()[0]].split()[0])]
)
def test_arguments_go_to_the_command_that_it_is_now(
    old: str, new: str, folder: Path, tailscope: Callable[..., Any]
) -> None:
    former, now = (tailscope(*words.split(), cwd=folder) for words in (old, new))
    assert (former.returncode, former.stdout) == (now.returncode, now.stdout)
    note, _, rest = former.stderr.partition("\n")
    assert note.startswith("note: `tailscope ")
    assert rest == now.stderr


@pytest.mark.parametrize("name", SYNONYMS)
def test_a_synonym_leads_to_a_command(name: str) -> None:
    words = SYNONYMS[name].split()
    assert name not in application().commands
    assert words == ["--version"] or words[0] in application().commands or not is_here(words[0])


def test_help_does_not_show_former_names(tailscope: Callable[..., Any]) -> None:
    page = tailscope("--help").stdout
    assert not {f"\n  {name} " for name in NEW_NAMES if f"\n  {name} " in page}


def test_a_run_that_is_called_as_a_command_is_a_path(
    folder: Path, tailscope: Callable[..., Any]
) -> None:
    done = tailscope("compare", "./save", "one", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert re.search(r"\bsave\W+one$", done.stdout, re.M)
    named = tailscope("compare", "save", "one", "-o", "saved.json", cwd=folder)
    assert named.stdout.split()[:2] == ["saved.json:", "1"]
