"""Without an extra, what needs it says how to install it, and all else works."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import captures
import numpy as np
import pytest
from docs.reference.cli import commands
from errors import code_of

from tailscope.registry import extras
from tailscope.store.parquet import write_parquet

if TYPE_CHECKING:
    from collections.abc import Callable

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
OF_THE_PROJECT = {"all", "bench", "dev"}
"""Extras that no command needs."""
BARE = """
import shlex
import sys

lacking, *lines = sys.argv[1:]

class Without:
    def find_spec(name, path=None, target=None):
        if name in lacking.split(","):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Without)
from tailscope.cli import main
sys.exit(max(main(shlex.split(words)) for words in lines))
"""
"""Runs commands, one behind the other, where modules are not installed."""

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
    ("plot", "report run --figures drawn"),
    ("plot", "model tail run --figure tail.svg"),
    ("plot", "model aliasing run --figure worst.svg"),
    ("plot", "runs publish campaign site"),
    ("trace", "report run --format perfetto"),
    ("trace", "report run --format perfetto --out page.html"),
    ("trend", "trend ."),
    ("cluster", "analyze pairs --scheduler local --out runs"),
    ("cluster", "report campaign --scheduler local"),
    ("lab", "run lab.yaml --out lab"),
    ("postgresql", "runs export run --to postgresql://localhost/x"),
    ("postgresql", "trend --from postgresql://localhost/x"),
    ("publish", "runs publish campaign site"),
    ("sql", "runs sql 'FROM run' ."),
    ("tail", "model tail varied"),
    ("standards", "search --dut l2fwd --dry-run"),
    ("standards", "search standard 2544 --dut l2fwd --dry-run"),
    ("watch", "watch --dut l2fwd"),
]
"""Commands that need an extra, in the folder of the fixture."""


def bare(
    *lines: str, without: str | None = None, folder: Path | None = None, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run commands without an extra, or without any."""
    lacking = [name for name in extras() if without in (None, name)]
    modules = [module for name in lacking for module in extras()[name].packages]
    command = [sys.executable, "-c", BARE, ",".join(modules), *lines]
    environment = {**os.environ, **more}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def folder(tailscope: Callable[..., object], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pair of captures, its run, and an experiment with hosts; a campaign is not looked into."""
    made = tmp_path_factory.mktemp("extras")
    (made / "pairs").mkdir()
    pre, post = captures.pair(made / "pairs", [3_000] * 100, gap=100_000)
    tailscope("analyze", pre, post, "--out", made / "run")
    for name, least_ns in (("varied", 3_000), ("slower", 30_000)):
        random = np.random.default_rng(4)
        latencies = np.rint(least_ns + random.exponential(20_000, 20_000)).astype(int).tolist()
        varied = captures.pair(made / f"{name} pair", latencies, gap=100_000)
        tailscope("analyze", *varied, "--out", made / name)
    (made / "lab.yaml").write_text(LABORATORY)
    (made / "campaign").mkdir()
    (made / "campaign" / "campaign.json").touch()
    return made


@pytest.mark.parametrize("name", sorted(extras()))
def test_an_extra_installs_what_is_imported(name: str) -> None:
    options = PROJECT["optional-dependencies"]
    installed = {requirement.partition(">")[0] for requirement in options[name]}
    assert installed >= {*extras()[name].packages.values()}
    [everything] = options["all"]
    among_all = name in everything.removeprefix("tailscope[").removesuffix("]").split(",")
    install = extras()[name].install
    assert among_all == (install is None), "what asks for too much has a line of its own"
    if install is not None:
        assert all(repr(requirement) in install for requirement in options[name])


def test_every_extra_has_a_command_that_needs_it() -> None:
    declared = set(PROJECT["optional-dependencies"]) - OF_THE_PROJECT
    assert declared == {name for name, _ in NEEDED} | {"arrow"}, "arrow is for Python alone"


@pytest.mark.parametrize(
    ("name", "words"), [(name, words) for name, words in NEEDED if name in extras()]
)
def test_a_missing_package_is_named_before_anything_is_done(
    folder: Path, name: str, words: str
) -> None:
    before = sorted(folder.rglob("*"))
    done = bare(words, without=name, folder=folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert code_of(done) == "not-installed"
    [_, hint] = done.stderr.splitlines()
    installed = extras()[name].install or f"'tailscope[{name}]'"
    assert hint.startswith(f"hint: pip install {installed}; `tailscope doctor` ")
    assert sorted(folder.rglob("*")) == before


def test_all_help_works_without_extras() -> None:
    done = bare("--help", *(f"{name.partition(' ')[2]} --help" for name, _ in commands()))
    assert done.returncode == 0, done.stderr


def test_completion_works_without_extras() -> None:
    words = {
        "_TAILSCOPE_COMPLETE": "complete_bash",
        "COMP_WORDS": "tailscope rep",
        "COMP_CWORD": "1",
    }
    done = bare("", **words)
    assert done.stdout.split() == ["report"]


def test_captures_are_analysed_without_extras(folder: Path, tmp_path: Path) -> None:
    pre, post = sorted((folder / "pairs").iterdir(), reverse=True)
    times = [1_599_999_999 * 10**9, 1_600_000_001 * 10**9]
    counters = {"unix_ns": times, "interrupt": ["LOC"] * 2, "cpu": [0, 0], "count": [0, 9]}
    write_parquet(tmp_path / "counters.parquet", counters)
    done = bare(
        *(f"analyze '{pre}' '{post}' --out {name}" for name in ("run", "other")),
        "report run --out page.html",
        "runs tag run --add paper",
        "runs list . tag=paper",
        "explain run --interrupts counters.parquet",
        "runs show run",
        "compare run other",
        "verify run --slo 'p50<1s'",
        folder=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run/report.html").exists()


def test_runs_are_judged_and_modelled_without_extras(folder: Path) -> None:
    done = bare(
        "verify varied --slo 'p99<1ms'",
        "compare varied slower",
        "plan --quantile p99 --rate 10k --from varied",
        "model overload varied slower",
        "model aliasing varied",
        folder=folder,
    )
    assert done.returncode == 0, done.stderr


def test_tables_for_python_say_what_they_need(folder: Path) -> None:
    program = f"""{BARE.rpartition("from tailscope.cli")[0]}
from tailscope import open
from tailscope.exceptions import UsageError
try:
    open("run").latencies()
except UsageError as error:
    print(error.code, error.hint)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, "pyarrow"], cwd=folder, capture_output=True, text=True
    )
    assert done.stdout.startswith("not-installed pip install 'tailscope[arrow]'; "), done.stderr


def test_a_library_that_the_system_lacks_is_named(folder: Path) -> None:
    missing = "libstdc++.so.6: cannot open shared object file: No such file or directory"
    program = BARE.replace(
        """ModuleNotFoundError(f"No module named {name!r}", name=name)""",
        f"ImportError({missing!r})",
    )
    asked = [sys.executable, "-c", program, "numpy", "verify run --slo 'p50<1s'"]
    done = subprocess.run(asked, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 1 and code_of(done) == "library-missing"
    assert "libstdc++.so.6" in done.stderr and "hint: " in done.stderr
