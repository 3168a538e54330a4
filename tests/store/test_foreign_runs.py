"""Run directories of others are input: whatever is in one, it is one line, and no more."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from errors import code_of, raises
from runs import write_mark
from shelves import linked, shelf
from synthetic import write_campaign

from tailscope.exceptions import RunCorruptError, RunError, RunExistsError
from tailscope.report.campaign.material import read_material
from tailscope.store import layout
from tailscope.store.catalogue import catalogue_of
from tailscope.store.directory import RunWriter
from tailscope.store.kept import keep
from tailscope.store.reader import read_figures, read_info, read_mark, read_run
from tailscope.store.records.verdict import VerdictRecord

Run = Callable[..., Any]
Odd = Callable[[Path], object]

RUNS = {"plain", "fast", "half", "guest", "matrix/rate=1M"}
HUGE_BYTES = 10 << 30
FLIPS = 1_500
TIMEOUT_S = 60
"""Reading what never ends takes longer."""


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(path.parent)
        server.bind(path.name)


def _huge(path: Path) -> None:
    path.touch()
    os.truncate(path, HUGE_BYTES)


ODD: dict[str, tuple[Odd, str]] = {
    "pipe": (os.mkfifo, "expected a regular file, got a pipe"),
    "zeros": (lambda path: path.symlink_to("/dev/zero"), "got a symbolic link"),
    "terminal": (lambda path: path.symlink_to("/dev/tty"), "got a symbolic link"),
    "itself": (lambda path: path.symlink_to(path), "got a symbolic link"),
    "nowhere": (lambda path: path.symlink_to("/nowhere"), "got a symbolic link"),
    "folder": (Path.mkdir, "got a folder"),
    "socket": (_socket, "got a socket"),
    "huge": (_huge, f"got {HUGE_BYTES}"),
}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shelf(tmp_path_factory.mktemp("original"))


@pytest.fixture
def runs(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which there is ./runs."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(original, tmp_path / "runs"))


def listed(folder: Path) -> dict[str, tuple[str, str | None]]:
    """The state of each run, and what is wrong with it."""
    with catalogue_of([folder]) as catalogue:
        rows = catalogue.rows("SELECT * FROM run")
    return {row["run"]: (row["state"], row["problem"]) for row in rows}


def of_run(name: str, output: str) -> str:
    """Return the one warning about a run, which may go over several lines."""
    [_, problem] = " ".join(output.split()).split(f" warning {name}: ")
    return problem.partition(" warning ")[0]


def replaced(path: Path, odd: Odd) -> None:
    path.unlink(missing_ok=True)
    odd(path)


def of_mark(run: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run / "run.json").read_text())
    return content


def written_anew(run: Path, name: str, content: bytes) -> None:
    """Give a run another file, with the checksum that tailscope would have given it."""
    (run / name).write_bytes(content)
    entry = {"size_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    mark = of_mark(run)
    write_mark(run, {**mark, "files": {**mark["files"], name: entry}})


BRIEF = ("pipe", "huge")
"""What every file is tried as; what else there is, one of them alone."""


def _odd(odd: str, *names: str) -> object:
    return pytest.param(odd, *names, marks=[] if odd in BRIEF else [pytest.mark.long])


@pytest.fixture(scope="module")
def listed_others(
    original: Path, tailscope: Run, tmp_path_factory: pytest.TempPathFactory
) -> list[str]:
    """What is listed of the runs that nobody has touched."""
    folder = tmp_path_factory.mktemp("others")
    shutil.copytree(original, folder / "runs")
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    listed: list[str] = tailscope(
        "runs", "list", "run!=plain", env=environment, cwd=folder
    ).stdout.splitlines()
    return listed


@pytest.mark.parametrize(
    ("odd", "name"),
    [
        *((odd, "run.json") for odd in ODD),
        *(
            _odd(odd, name)
            for name in ("summary.json", "notes.json", "latency.parquet")
            for odd in ODD
        ),
    ],
)
def test_a_bad_run_is_one_line_among_the_others(
    tailscope: Run, runs: Path, listed_others: list[str], odd: str, name: str
) -> None:
    make, said = ODD[odd]
    replaced(runs / "plain" / name, make)
    os.chdir(runs.parent)
    done = tailscope("runs", "list", timeout=TIMEOUT_S)
    assert (done.returncode, done.stderr) == (0, "")
    problem = of_run("plain", done.stdout)
    assert problem.startswith(f"{name}: expected")
    assert said in problem
    assert tailscope("runs", "list", "run!=plain").stdout.splitlines() == listed_others


@pytest.mark.parametrize("odd", list(map(_odd, ODD)))
def test_a_command_about_a_bad_run_ends(tailscope: Run, runs: Path, odd: str) -> None:
    make, said = ODD[odd]
    replaced(runs / "plain" / "summary.json", make)
    replaced(runs / "fast" / "run.json", make)
    os.chdir(runs.parent)
    for run, name in (("plain", "summary.json"), ("fast", "run.json")):
        path = runs / run
        for command in (
            ("runs", "show", path),
            ("verify", path, "--slo", "p99<1ms"),
            ("report", path, "--out", runs / "page.html"),
            ("compare", path, runs / "guest"),
            ("explain", path),
        ):
            done = tailscope(*command, timeout=TIMEOUT_S)
            assert done.returncode == 1, command
            (error,) = (line for line in done.stderr.splitlines() if line.startswith("error: "))
            assert name in error
            assert "internal" not in error
            if run == "fast":
                assert said in error


@pytest.mark.parametrize("odd", list(map(_odd, ODD)))
def test_a_bad_campaign_ends(tailscope: Run, runs: Path, odd: str) -> None:
    make, _ = ODD[odd]
    replaced(runs / "matrix" / "campaign.json", make)
    os.chdir(runs.parent)
    assert listed(runs).keys() == RUNS
    for command in ("report", "verify --slo p99<1ms"):
        name, *options = command.split()
        done = tailscope(name, runs / "matrix", *options, timeout=TIMEOUT_S)
        assert done.returncode == 1
        assert "campaign.json: expected" in done.stderr


def test_links_lead_to_runs_not_to_their_files(tailscope: Run, runs: Path) -> None:
    Path("link").symlink_to(runs / "plain", target_is_directory=True)
    assert tailscope("runs", "show", "link", "--verify").returncode == 0
    (runs / "plain" / "rate.csv").rename("elsewhere")
    (runs / "plain" / "rate.csv").symlink_to(Path("elsewhere").resolve())
    done = tailscope("runs", "show", "link")
    assert code_of(done) == "not-regular-file"
    assert "rate.csv: " in done.stderr and "symbolic link" in done.stderr
    assert "hint: " in done.stderr


def test_folders_of_a_run_are_its_own(runs: Path) -> None:
    run = runs / "plain"
    (runs / "outside").mkdir()
    (runs / "outside" / "x").write_text("x")
    (run / "captures").symlink_to(runs / "outside")
    mark = of_mark(run)
    entry = {"size_bytes": 1, "sha256": hashlib.sha256(b"x").hexdigest()}
    write_mark(run, {**mark, "files": {**mark["files"], "captures/x": entry}})
    with raises(RunCorruptError, "not-a-folder") as refused:
        read_figures(run)
    assert str(run / "captures/x") in str(refused.value)


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "", ".", "a\0b", "\ud800"])
def test_names_of_files_are_within_the_run(runs: Path, name: str) -> None:
    mark = of_mark(runs / "plain")
    files = {**mark["files"], name: {"size_bytes": 1, "sha256": ""}}
    write_mark(runs / "plain", {**mark, "files": files})
    found = listed(runs)
    assert found.keys() == RUNS
    state, problem = found["plain"]
    assert state == "damaged"
    assert str(problem).startswith("run.json: files: ") and repr(name) in str(problem)


@pytest.mark.parametrize("name", ["../x", "/x", "", "a\0b", "\ud800"])
def test_names_of_runs_are_within_the_campaign(tailscope: Run, runs: Path, name: str) -> None:
    write_campaign(runs / "matrix", [{"runs": [name]}])
    done = tailscope("report", runs / "matrix")
    assert done.returncode == 1
    assert code_of(done) == "run-outside-campaign" and "campaign.json: runs: " in done.stderr


def test_no_flipped_bit_of_the_mark_is_believed(runs: Path) -> None:
    chance, mark = random.Random(17), runs / "plain" / "run.json"
    whole = mark.read_bytes()
    for bit in chance.sample(range(8 * len(whole)), FLIPS):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        mark.write_bytes(flipped)
        with pytest.raises(RunError):
            read_info(runs / "plain")
        with pytest.raises(RunError), RunWriter(runs / "plain"):
            pass
        assert mark.read_bytes() == flipped


def test_an_older_format_does_not_bring_the_checksum_to_silence(runs: Path) -> None:
    mark = runs / "plain" / "run.json"
    whole = mark.read_bytes()
    for older in (b'"format": 2', b'"format": 1'):
        mark.write_bytes(whole.replace(b'"format": 3', older))
        with raises(RunError, "format-older") as refused:
            read_info(runs / "plain")
        assert f"expected 3, got {older[-1:].decode()}" in str(refused.value)


@pytest.mark.parametrize("said", ["no", "yes", "", 0, 1, None, [], {}])
def test_only_true_is_complete(tailscope: Run, runs: Path, said: object) -> None:
    write_mark(runs / "plain", {**of_mark(runs / "plain"), "complete": said})
    with raises(RunCorruptError, "field-value") as refused:
        read_mark(runs / "plain")
    assert "run.json: complete: " in str(refused.value)
    assert listed(runs)["plain"][0] == "damaged"
    done = tailscope("runs", "show", "plain")
    assert code_of(done) == "field-value" and "run.json: complete: " in done.stderr


def test_a_mark_that_does_not_say_it_is_no_place_for_another_run(runs: Path) -> None:
    content = of_mark(runs / "plain")
    del content["complete"]
    write_mark(runs / "plain", content)
    with raises(RunCorruptError, "field-missing") as refused, RunWriter(runs / "plain"):
        pass
    assert "run.json: complete: " in str(refused.value)


def test_every_bit_of_a_run_is_read(tailscope: Run, runs: Path) -> None:
    chance, run = random.Random(4), runs / "plain"
    for name in ["run.json", *of_mark(run)["files"]]:
        whole = (run / name).read_bytes()
        bit = chance.randrange(8 * len(whole))
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        (run / name).write_bytes(flipped)
        done = tailscope("runs", "show", "plain", "--verify")
        assert done.returncode == 1, (name, bit)
        assert name in done.stderr
        (run / name).write_bytes(whole)
    assert tailscope("runs", "show", "plain", "--verify").returncode == 0


@pytest.mark.parametrize(
    "harm", ["longer", *(pytest.param(harm, marks=pytest.mark.long) for harm in ("gone", "pipe"))]
)
def test_verify_and_show_look_at_the_same_files(tailscope: Run, runs: Path, harm: str) -> None:
    run = runs / "plain"
    for name in of_mark(run)["files"]:
        aside = runs / "aside"
        (run / name).rename(aside)
        if harm == "longer":
            (run / name).write_bytes(aside.read_bytes() + b"\n")
        elif harm == "pipe":
            os.mkfifo(run / name)
        for command in (("runs", "show", "plain"), ("verify", run, "--slo", "p99<1ms")):
            done = tailscope(*command, timeout=TIMEOUT_S)
            assert done.returncode == 1, (command[0], name)
            assert name in done.stderr
        assert listed(runs)["plain"][0] == "damaged"
        aside.replace(run / name)
    assert tailscope("runs", "show", "plain").returncode == 0


def _nested(depth: int) -> Any:
    found: Any = []
    for _ in range(depth):
        found = [found]
    return found


@pytest.mark.parametrize("depth", [70, 300, 900])
def test_content_that_is_nested_too_deeply_is_refused(runs: Path, depth: int) -> None:
    mark = of_mark(runs / "plain")
    write_mark(runs / "plain", {**mark, "tuning": _nested(depth)})
    with raises(RunCorruptError, "json-depth") as refused:
        read_info(runs / "plain")
    assert "run.json: " in str(refused.value)
    assert listed(runs).keys() == RUNS


def test_content_of_too_many_values_is_refused(runs: Path) -> None:
    written_anew(runs / "plain", "summary.json", b'{"a": [' + b"[]," * 1_000_000 + b"[]]}")
    with raises(RunCorruptError, "json-size") as refused:
        read_figures(runs / "plain")
    assert "summary.json: " in str(refused.value) and "1000000" in str(refused.value)


@pytest.mark.parametrize("size", [layout.SUMMARY, layout.PERCENTILES])
def test_figures_that_are_huge_are_not_read(runs: Path, size: str) -> None:
    """Even if ``run.json`` says that they are."""
    mark = of_mark(runs / "plain")
    _huge(runs / "plain" / size)
    entry = {"size_bytes": HUGE_BYTES, "sha256": "0" * 64}
    write_mark(runs / "plain", {**mark, "files": {**mark["files"], size: entry}})
    with raises(RunCorruptError, "file-too-large") as refused:
        read_figures(runs / "plain")
    assert f"{size}: " in str(refused.value) and " 16777216 " in str(refused.value)
    assert listed(runs).keys() == RUNS


VALUES = (
    *(None, True, -1, 0, 2**63 - 1, 2**63, 2**64, 10**400, -(2**70), 1e308, 0.5, "", "x" * 100_000),
    *("\0", "\ud800", "\x1b[2J\n", "../x", [], {}, [[]], {"": None}, _nested(60), {"a" * 9_999: 1}),
)


def _changed(content: Any, chance: random.Random) -> Any:
    """The same with another value somewhere."""
    if isinstance(content, dict | list) and content and chance.random() < 0.9:
        if isinstance(content, list):
            at = chance.randrange(len(content))
            return [*content[:at], _changed(content[at], chance), *content[at + 1 :]]
        name = chance.choice(list(content))
        return {**content, name: _changed(content[name], chance)}
    return chance.choice(VALUES)


def _spoilt(run: Path, name: str, chance: random.Random) -> None:
    """Change a value in a file; every checksum is right."""
    usual = {"format": 1, "tags": ["a"], "notes": [{"written_unix_ns": 1, "text": "b"}]}
    whole = usual if name == "notes.json" else json.loads((run / name).read_text())
    changed = _changed(whole, chance)
    if name == "run.json":
        write_mark(run, changed if isinstance(changed, dict) else {"complete": changed})
        return
    (run / name).unlink(missing_ok=True)
    if name == "notes.json":
        (run / name).write_text(json.dumps(changed))
    else:
        written_anew(run, name, json.dumps(changed).encode())


@pytest.mark.parametrize("seed", range(6))
def test_whatever_others_wrote_the_rest_is_listed(runs: Path, seed: int) -> None:
    chance = random.Random(seed)
    spoilt = [linked(runs / "plain", runs / f"spoilt {number}") for number in range(60)]
    for run in spoilt:
        name = chance.choice(["run.json", "summary.json", "explanation.json", "notes.json"])
        _spoilt(run, name, chance)
    found = listed(runs)
    assert found.keys() == RUNS | {run.name for run in spoilt}
    assert {found[name][0] for name in RUNS} == {"complete", "partial"}
    for run in spoilt:
        try:
            read_run(run)
        except RunError as error:
            assert str(error).startswith(str(run))


@pytest.mark.parametrize("seed", range(6))
def test_whatever_a_campaign_says_it_is_read_or_refused(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    values = {"rate": "10k", "dut_options.batch": 4}
    plan = {"name": "a", "fixed": {"dut": "l2fwd"}, "vary": {"rate": ["10k", "20k"]}}
    cell = {"values": values, "runs": ["a"], "started_unix_ns": 1, "lasted_s": 1.5}
    file = write_campaign(tmp_path, [cell, cell], name="a", experiment=plan) / "campaign.json"
    whole = json.loads(file.read_text())
    for _ in range(200):
        file.write_text(json.dumps(_changed(whole, chance)))
        try:
            material = read_material(tmp_path)
        except RunError as error:
            assert str(error).startswith(str(file))
        else:
            assert all(isinstance(problem, str) for problem in material.problems())


@pytest.mark.parametrize("text", [b"1e999", b"-1e999", b"NaN", b"Infinity"])
def test_numbers_are_numbers(runs: Path, text: bytes) -> None:
    whole = (runs / "plain" / "summary.json").read_bytes()
    lines = [
        line.partition(b": ")[0] + b": " + text + b"," if b"_pps" in line else line
        for line in whole.splitlines()
    ]
    written_anew(runs / "plain", "summary.json", b"\n".join(lines))
    state, problem = listed(runs)["plain"]
    assert state == "damaged"
    assert str(problem).startswith("summary.json: expected JSON: ")
    assert str(problem).endswith(f" got {text.decode()}")


def test_a_long_problem_is_shortened(tailscope: Run, runs: Path) -> None:
    mark = of_mark(runs / "plain")
    many = {f"{number}": {"size_bytes": 1, "sha256": ""} for number in range(5_000)}
    plan = {**mark["plan"], "dut_options": {"a": "b" * 1_000_000}}
    write_mark(runs / "plain", {**mark, "plan": plan, "files": {**mark["files"], **many}})
    done = tailscope("runs", "list")
    assert done.returncode == 0
    assert max(map(len, done.stdout.splitlines())) < 2_000
    problem = of_run("plain", done.stdout)
    assert re.findall(r"(\d+): missing", problem) == ["0", "1", "2", "3", "4"]
    assert problem.endswith(" 4995 more")


def test_a_conclusion_is_not_written_through_a_link(runs: Path) -> None:
    run, target = runs / "plain", runs / "target"
    target.write_text("mine")
    (run / layout.VERDICT).symlink_to(target)
    verdict = VerdictRecord(slo="p99<1us", verdict="pass", level=0.95, runs=())
    with raises(RunCorruptError, "not-regular-file") as refused:
        keep(run, read_info(run), layout.VERDICT, verdict, command=["tailscope"])
    assert "verdict.json: " in str(refused.value) and "symbolic link" in str(refused.value)
    assert target.read_text() == "mine"
    assert any("verdict.json" in text for text in read_run(run).warnings)


def test_a_run_is_not_taken_for_unfinished(runs: Path) -> None:
    with raises(RunExistsError, "run-exists"), RunWriter(runs / "plain"):
        pass
