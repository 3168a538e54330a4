"""Runs found again at the terminal: list, show, tag, note."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import captures
import pytest
from documentation import undocumented
from errors import code_of
from shelves import copied, edited, shelf
from wording import assert_wording

from tailscope.exceptions import UsageError
from tailscope.store.catalogue import catalogue_of
from tailscope.store.filters import choose, is_filter, parse_filter

Run = Callable[..., Any]

HOSTILE = ("new\nline", "\x1b[31mred", 'it\'s "quoted"; --', "<script>alert(1)</script>", "a*[b]?")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shelf(tmp_path_factory.mktemp("original"))


@pytest.fixture
def runs(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which there is ./runs."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(original, tmp_path / "runs"))


def named(tailscope: Run, *arguments: object) -> list[str]:
    """The names of the runs that are listed."""
    done = tailscope("runs", "list", *arguments, "--json", "-")
    assert done.returncode == 0, done.stderr
    return [run["run"] for run in json.loads(done.stdout)["runs"]]


def refused(tailscope: Run, *arguments: object) -> str:
    done = tailscope(*arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert "internal" not in done.stderr
    error: str = done.stderr
    return error


def test_runs_are_listed(tailscope: Run, runs: Path) -> None:
    done = tailscope("runs", "list")
    assert (done.returncode, done.stderr) == (0, "")
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line}
    assert "p50" in lines["run"]
    assert "tags" not in lines["run"], "no run has any"
    assert "2.100 µs" in lines["plain"]
    assert "p99.9 29.40 µs" in lines["plain"]
    assert "100,000" in lines["fast"]
    assert lines["guest"].endswith("EMULATED")
    assert lines["matrix/rate=1M"].rstrip()
    assert "partial" in done.stdout
    assert lines["warning"].endswith("half: the device died")


def test_a_run_without_support_has_bounds(tailscope: Run, runs: Path) -> None:
    pair = captures.pair(runs.parent / "captures", [1_000 + at for at in range(15)])
    done = tailscope("analyze", *pair, "--out", "runs/few", "--trim", "0s")
    assert done.returncode == 0, done.stderr
    (line,) = (
        line for line in tailscope("runs", "list").stdout.splitlines() if line.startswith("few ")
    )
    assert "≥ " in line


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (["dut=suricata"], ["fast"]),
        (["rate>=100k"], ["fast", "matrix/rate=1M"]),
        (["rate=1M", "campaign=matrix"], ["matrix/rate=1M"]),
        (["pattern!=cbr"], ["fast"]),
        (["name~AS"], ["fast"]),
        (["state=partial"], ["half"]),
        (["emulated=yes"], ["guest"]),
        (["latency_ns_p999<20us"], []),
        (["p99.9<1ms", "rate_pps<100k", "state=complete", "emulated=no"], ["plain"]),
        (["duration=1s", "dut~meer"], []),
        (["duration<10000000000s", "rate<10000000000G", "name=fast"], ["fast"]),
        (["loss_ratio<1e-5", "latency_ns_p999_supported=true", "name=fast"], ["fast"]),
        (["written<2020-01-01"], []),
        (["sent>=20000", "wire=memif", "state!=partial", "rate<1M"], ["fast", "guest", "plain"]),
    ],
)
def test_filters_choose(runs: Path, filters: list[str], expected: list[str]) -> None:
    with catalogue_of([runs]) as catalogue:
        found = choose(catalogue, map(parse_filter, filters), sort="run")
    assert [run["run"] for run in found] == expected


def test_a_date_is_a_whole_day(runs: Path) -> None:
    with catalogue_of([runs]) as catalogue:
        [first, *_] = choose(catalogue)
        day = first["written_utc"].date()
        for operator in ("=", "<=", ">=", "!=", "<", ">"):
            found = choose(catalogue, [parse_filter(f"written{operator}{day}")])
            is_in = first["run"] in {run["run"] for run in found}
            assert is_in == (operator in ("=", "<=", ">=")), operator


def test_a_folder_is_told_from_a_filter(tailscope: Run, runs: Path) -> None:
    """By its operator; what has a slash before that is a folder."""
    assert named(tailscope, "runs/matrix/rate=1M") == ["rate=1M"]
    assert named(tailscope, runs / "matrix", "rate=1M") == ["rate=1M"]
    os.chdir("runs/matrix")
    assert named(tailscope, "./rate=1M") == ["rate=1M"]
    assert "[filter-value]" in refused(tailscope, "runs", "list", "rate=1N")
    assert "error: nowhere: " in refused(tailscope, "runs", "list", "nowhere")
    assert "error: runs: " in refused(tailscope, "runs", "list")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("latency_p999<1ms", "latency_ns_p999"),
        ("dutt=l2fwd", "did you mean dut"),
        ("xyzzy=1", "--fields"),
        ("rate~100", "expected = != < <= > >="),
        ("dut<a", "expected = != ~"),
        ("tag<a", "expected = != ~"),
        ("p50<fast", "a time, such as 20us"),
        ("emulated=maybe", "yes or no"),
        ("written>yesterday", "a date"),
        ("sent>many", "a number"),
    ],
)
def test_a_filter_that_is_none_is_explained(wrong: str, said: str) -> None:
    assert is_filter(wrong)
    with pytest.raises(UsageError) as caught:
        parse_filter(wrong)
    assert said in f"{caught.value} {caught.value.hint}"


def test_runs_are_sorted(tailscope: Run, runs: Path) -> None:
    assert named(tailscope, "--sort", "name")[0] == "fast"
    assert named(tailscope, "--sort=-rate")[:2] == ["matrix/rate=1M", "fast"]
    assert "[unknown-field]" in refused(tailscope, "runs", "list", "--sort", "colour")
    fields = tailscope("runs", "list", "--fields").stdout
    assert "latency_ns_p999 " in fields
    (rate,) = (line for line in fields.splitlines() if line.startswith("rate_pps "))
    assert_wording("list/field-of-a-rate", " ".join(rate.split()))


def test_a_run_that_is_wrong_is_listed(tailscope: Run, runs: Path) -> None:
    (runs / "plain" / "run.json").write_text("{")
    (runs / "fast" / "latency.parquet").unlink()
    edited(runs / "half", complete=False)
    done = tailscope("runs", "list")
    assert done.returncode == 0
    problems = [line for line in done.stdout.splitlines() if line.startswith("warning ")]
    assert_wording("list/wrong-runs", "\n".join(problems))


def test_an_empty_folder_has_no_run(tailscope: Run, runs: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert_wording("list/no-run", tailscope("runs", "list", "empty").stdout)
    assert_wording("list/no-match", tailscope("runs", "list", "dut=none").stdout)


def test_runs_are_found_by_tags_and_notes(tailscope: Run, runs: Path) -> None:
    done = tailscope("runs", "tag", "plain", runs / "fast", "--add", "paper", "--add", "b")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{runs}/plain: b paper", f"{runs}/fast: b paper"]
    tailscope("runs", "tag", "fast", "--remove", "paper")
    assert tailscope("runs", "tag", "fast").stdout == f"{runs}/fast: b\n"
    assert named(tailscope, "tag=paper") == ["plain"]
    assert sorted(named(tailscope, "tag=b")) == ["fast", "plain"]
    assert "plain" not in named(tailscope, "tag!=paper")
    assert tailscope("runs", "note", "rate=1M", "port 2\nNEW cable, ÖL").returncode == 0
    assert "NEW cable" in tailscope("runs", "note", "rate=1M").stdout
    assert named(tailscope, "note~new cable, öl") == ["matrix/rate=1M"]
    listed = tailscope("runs", "list", "--json", "-", "tag=paper").stdout
    (run,) = json.loads(listed)["runs"]
    assert (run["tags"], run["notes"]) == (["b", "paper"], [])
    assert " b paper" in tailscope("runs", "list").stdout
    assert "[tag]" in refused(tailscope, "runs", "tag", "plain", "--add", "two words")


def test_a_name_must_mean_one_run(tailscope: Run, runs: Path) -> None:
    copied(runs / "plain", runs / "other" / "rate=1M")
    assert "several runs" in refused(tailscope, "runs", "show", "rate=1M")
    near = refused(tailscope, "runs", "show", "plan")
    assert "[no-such-run]" in near and " plain?" in near
    assert tailscope("runs", "tag", "rate=1M", "--dir", "runs/other").returncode == 0


def test_a_run_is_shown_as_it_was_printed(tailscope: Run, runs: Path) -> None:
    tailscope("runs", "tag", "plain", "--add", "paper")
    tailscope("runs", "note", "plain", "first\nsecond")
    done = tailscope("runs", "show", "plain")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert any(line.startswith("p99.9 ") and "29.40 µs" in line for line in lines)
    assert any(line.startswith("p99.99 *") and "≥" in line for line in lines)
    assert "tags      paper" in lines
    (traffic,) = (line for line in lines if line.startswith("traffic "))
    assert_wording("show/traffic", traffic)
    assert any(line.startswith("DuT: local timer") and "75.0%" in line for line in lines)
    assert any(line.endswith("  first") for line in lines)
    assert any(line.endswith("  second") for line in lines)
    lines = tailscope("show", "plain", "-v").stdout.splitlines()
    assert any(line.startswith("latency.parquet") and line.endswith("there") for line in lines)


def test_the_command_of_a_run_plans_the_same_run(tailscope: Run, runs: Path) -> None:
    for name in ("plain", "fast"):
        shown = json.loads(tailscope("runs", "show", name, "--json", "-").stdout)
        program, *arguments = shlex.split(shown["repeat"])
        assert program == "tailscope"
        done = tailscope(*arguments, "--dry-run", "--json", "-")
        if name == "fast":
            assert "suricata" in arguments
        if done.returncode != 0:
            assert "--dut suricata" in shown["repeat"], done.stderr
            continue
        planned = json.loads(done.stdout)
        was = shown["info"]["plan"]
        assert {field: planned[field] for field in was if field != "cpus"} == {
            field: was[field] for field in was if field != "cpus"
        }


def test_an_analysis_is_shown_with_its_command(tailscope: Run, runs: Path) -> None:
    pair = captures.pair(runs.parent / "my captures", [1_000 + at for at in range(100)])
    assert tailscope("analyze", *pair, "--out", "runs/few", "--trim", "10us").returncode == 0
    shown = json.loads(tailscope("runs", "show", "few", "--json", "-").stdout)
    _, *arguments = shlex.split(shown["repeat"])
    again = tailscope(*arguments, "--json", "-")
    assert json.loads(again.stdout) == {**shown["summary"], "warnings": shown["warnings"]}
    row = json.loads(tailscope("runs", "list", "name=few", "--json", "-").stdout)["runs"][0]
    assert (row["command"], row["trim_ns"], row["dut"]) == ("analyze", 10_000, None)


def test_checksums_are_verified(tailscope: Run, runs: Path) -> None:
    done = tailscope("runs", "show", "plain", "--verify")
    assert done.returncode == 0
    assert done.stdout.count("verified") == 10
    latency = runs / "plain" / "latency.parquet"
    content = bytearray(latency.read_bytes())
    content[100] ^= 1
    latency.write_bytes(content)
    assert tailscope("runs", "show", "plain").returncode == 0, "its size is right"
    done = tailscope("runs", "show", "plain", "--verify")
    assert done.returncode == 1
    assert code_of(done) == "files-changed"
    assert "latency.parquet (changed)" in done.stderr
    latency.unlink()
    assert "latency.parquet (missing)" in tailscope("runs", "show", "plain").stderr
    mark = json.loads((runs / "fast" / "run.json").read_text())
    edited(runs / "fast", files={**mark["files"], "../../secret": {"size_bytes": 1, "sha256": ""}})
    assert "../../secret" in refused(tailscope, "runs", "show", "fast", "--verify")


def test_what_json_has_is_documented(tailscope: Run, runs: Path) -> None:
    tailscope("runs", "note", "plain", "words")
    pages = ("catalogue.md", "analyze.md", "run.md", "energy.md")
    (run,) = json.loads(tailscope("runs", "list", "name=plain", "--json", "-").stdout)["runs"]
    names = {*run, *run["summary"], *run["notes"][0]} - {"summary", "tags", "notes"}
    assert undocumented(names, *pages) == []
    shown = json.loads(tailscope("runs", "show", "plain", "--json", "-").stdout)
    assert undocumented([*shown, *shown["files"][0]], "catalogue.md") == []


def test_what_has_no_shape_of_its_own_is_escaped(tailscope: Run, runs: Path) -> None:
    for name in HOSTILE:
        run = copied(runs / "plain", runs / name, dut=name, dut_options={name: name})
        edited(run, partial=[name])
        notes = [{"written_unix_ns": 1, "text": f"\x1b[2J{name}"}]
        content = {"format": 1, "tags": [name], "notes": notes}
        (run / "notes.json").write_text(json.dumps(content))
    with catalogue_of([runs]) as catalogue:
        for name in HOSTILE:
            filters = map(parse_filter, (f"name={name}", f"tag={name}", f"dut={name}"))
            assert [run["run"] for run in choose(catalogue, filters)] == [name]
    shown = [("runs", "show", name) for name in HOSTILE[:2]]
    for command in (
        ("runs", "list"),
        *shown,
        ("runs", "note", HOSTILE[1]),
        ("runs", "tag", *HOSTILE),
    ):
        done = tailscope(*command)
        assert done.returncode == 0, done.stderr
        assert all(char.isprintable() for char in done.stdout.replace("\n", ""))
    assert "new\nline" not in tailscope("runs", "list").stdout


def test_a_note_without_a_word_harms_nothing(tailscope: Run, runs: Path) -> None:
    """Somebody else wrote it: `tailscope runs note` refuses it."""
    tailscope("runs", "note", "plain", "words")
    file = runs / "plain" / "notes.json"
    file.write_text(file.read_text().replace('"words"', '""'))
    for command in ("note", "show"):
        done = tailscope("runs", command, "plain")
        assert (done.returncode, done.stderr) == (0, "")
        assert "words" not in done.stdout


@pytest.mark.parametrize(
    ("command", "options", "statuses"),
    [
        ("report", ("--out", "all.html"), {0}),
        ("verify", ("--slo", "p50<1s"), {0, 3}),
    ],
)
def test_a_folder_of_runs_stands_for_them(
    tailscope: Run, tmp_path: Path, command: str, options: tuple[str, ...], statuses: set[int]
) -> None:
    made = tmp_path / "pair"
    assert tailscope("simulate", made, "--seed", 1, "--packets", 2000).returncode == 0
    pair = [next(made.glob(f"*-{side}-*")) for side in ("pre", "post")]
    for name in ("one", "two"):
        done = tailscope("analyze", *pair, "--out", tmp_path / "runs" / name)
        assert done.returncode == 0, done.stderr
    done = tailscope(command, "runs", *options, cwd=tmp_path)
    assert done.returncode in statuses, done.stderr
    said = done.stdout
    if command == "report":
        said = (tmp_path / "all.html").read_text()
    assert "one" in said and "two" in said
