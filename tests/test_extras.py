"""Without an extra, what needs it says how to install it, and all else works."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import captures
import pytest
from docs.reference.cli import commands
from errors import code_of

from tailscope.registry import extras

if TYPE_CHECKING:
    from collections.abc import Callable

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
BARE = f"""
import shlex
import sys

class Without:
    def find_spec(name, path=None, target=None):
        if name in {sorted(module for each in extras().values() for module in each.packages)}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Without)
from tailscope.cli import main
sys.exit(max(main(shlex.split(words)) for words in sys.argv[1:]))
"""
"""Runs commands, one behind the other, where no extra is installed."""

LABORATORY = """
name: lab
hosts:
  loadgen: {ssh: lab1, cards: ["0000:01:00.0", "0000:01:00.1"]}
  dut: {ssh: lab2, cards: [enp1s0f0, enp1s0f1]}
  timestamper: {ssh: lab3, cards: [enp1s0f0, enp1s0f1]}
vary:
  dut: [bridge]
"""
NEEDED = [
    ("trace", "report run --format perfetto"),
    ("trace", "report run --trace --out page.html"),
    ("cluster", "analyze pairs --scheduler local --out runs"),
    ("lab", "run lab.yaml --out lab"),
    ("postgresql", "runs export run --to postgresql://localhost/x"),
    ("publish", "runs publish campaign site"),
    ("standards", "search --dut l2fwd --dry-run"),
    ("standards", "search standard 2544 --dut l2fwd --dry-run"),
    ("watch", "watch --dut l2fwd"),
]
"""Commands that need an extra, in the folder of the fixture."""


def bare(*lines: str, folder: Path | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", BARE, *lines]
    environment = {**os.environ, **more}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def folder(tailscope: Callable[..., object], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pair of captures, its run, and an experiment with hosts."""
    made = tmp_path_factory.mktemp("extras")
    (made / "pairs").mkdir()
    pre, post = captures.pair(made / "pairs", [3_000] * 100, gap=100_000)
    tailscope("analyze", pre, post, "--out", made / "run")
    (made / "lab.yaml").write_text(LABORATORY)
    return made


@pytest.mark.parametrize("name", sorted(extras()))
def test_an_extra_installs_what_is_imported(name: str) -> None:
    options = PROJECT["optional-dependencies"]
    installed = {requirement.partition(">")[0] for requirement in options[name]}
    assert installed >= {*extras()[name].packages.values()}
    [everything] = options["all"]
    assert name in everything.removeprefix("tailscope[").removesuffix("]").split(",")


@pytest.mark.parametrize(
    ("name", "words"), [(name, words) for name, words in NEEDED if name in extras()]
)
def test_a_missing_package_is_named_with_what_installs_it(
    folder: Path, name: str, words: str
) -> None:
    done = bare(words, folder=folder)
    assert done.returncode == 1
    assert code_of(done) == "not-installed"
    assert done.stderr.endswith(f"hint: pip install 'tailscope[{name}]'\n")


def test_all_help_works_without_extras() -> None:
    done = bare("--help", *(f"{name.partition(' ')[2]} --help" for name, _ in commands()))
    assert done.returncode == 0, done.stderr


def test_completion_works_without_extras() -> None:
    words = {
        "_TAILSCOPE_COMPLETE": "complete_bash",
        "COMP_WORDS": "tailscope re",
        "COMP_CWORD": "1",
    }
    done = bare("", **words)
    assert done.stdout.split() == ["report", "recommend"]


def test_captures_are_analysed_without_extras(folder: Path, tmp_path: Path) -> None:
    pre, post = sorted((folder / "pairs").iterdir(), reverse=True)
    done = bare(
        *(f"analyze '{pre}' '{post}' --out {name}" for name in ("run", "other")),
        "report run --figures . --format svg",
        "runs list .",
        "runs show run",
        "compare run other",
        "verify run --slo 'p50<1s'",
        folder=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run/report.html").exists()
