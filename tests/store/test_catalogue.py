"""The catalogue: always what the run directories say, whoever else looks at it, or breaks it."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from command import COMMAND
from documentation import undocumented
from errors import raises
from shelves import edited, linked, shelf

from tailscope.exceptions import RunError
from tailscope.store.atomic import SUFFIX
from tailscope.store.catalogue import catalogue_of, catalogue_of_records
from tailscope.store.columns import PACKETS, RUN, SUMMARY, TABLES
from tailscope.store.folders import find_runs
from tailscope.store.notes import add_note, change_tags
from tailscope.store.record import STATES, CatalogueRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MANY = 300
_REFRESH = """
import sys
from pathlib import Path
from tailscope.store.catalogue import catalogue_of
mark = Path(sys.argv[2]) / "run.json"
while True:
    mark.touch()
    with catalogue_of([Path(sys.argv[1])]) as catalogue:
        print(len(catalogue.rows("SELECT * FROM run")), flush=True)
"""


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shelf(tmp_path_factory.mktemp("original"))


@pytest.fixture
def runs(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "runs"))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tailscope" / "catalogue"


def states(*folders: Path) -> dict[str, str]:
    with catalogue_of(folders) as catalogue:
        return {row["run"]: row["state"] for row in catalogue.rows("SELECT * FROM run")}


def problem(folder: Path, run: str) -> str | None:
    with catalogue_of([folder]) as catalogue:
        (row,) = catalogue.rows("SELECT * FROM run WHERE run = ?", run)
        found: str | None = row["problem"]
        return found


def all_rows(folder: Path) -> dict[str, list[Any]]:
    with catalogue_of([folder]) as catalogue:
        return {
            table: catalogue.rows(f"SELECT * FROM {table} ORDER BY {', '.join(TABLES[table])}")
            for table in TABLES
        }


def kept(cache: Path) -> Path:
    (file,) = cache.glob("*.catalogue")
    return file


def test_it_says_what_the_runs_say(runs: Path) -> None:
    with catalogue_of([runs]) as catalogue:
        rows = {
            row["run"]: row for row in catalogue.rows("SELECT * FROM run JOIN summary USING (run)")
        }
        files = catalogue.rows("SELECT * FROM file WHERE run = 'plain'")
    assert set(rows) == {"plain", "fast", "half", "guest", "matrix/rate=1M"}
    for name, row in rows.items():
        summary = json.loads((runs / name / "summary.json").read_text())
        info = json.loads((runs / name / "run.json").read_text())
        for figure in SUMMARY:
            if figure != "run":
                assert row[figure] == summary.get(figure), figure
        assert row["rate_pps"] == info["plan"]["rate_pps"]
        assert row["path"] == str(runs / name)
    assert {name: row["state"] for name, row in rows.items() if row["state"] != "complete"} == {
        "half": "partial"
    }
    assert [name for name, row in rows.items() if row["emulated"]] == ["guest"]
    assert rows["matrix/rate=1M"]["campaign"] == "matrix"
    assert rows["half"]["problem"] == "the device died"
    mark = json.loads((runs / "plain" / "run.json").read_text())
    assert {file["file"]: file["sha256"] for file in files} == {
        name: file["sha256"] for name, file in mark["files"].items()
    }


def test_values_have_the_types_of_their_columns(runs: Path) -> None:
    add_note(runs / "plain", "words")
    named = {
        **{"VARCHAR": str, "BIGINT": int, "DOUBLE": float},
        **{"BOOLEAN": bool, "TIMESTAMP": datetime},
    }
    values = dict.fromkeys(named, 0)
    for _ in range(2):
        for table, rows in all_rows(runs).items():
            for row in rows:
                for name, kind in TABLES[table].items():
                    assert row[name] is None or type(row[name]) is named[kind], (table, name)
                    values[kind] += row[name] is not None
    assert all(values.values())


def test_numbers_of_others_may_be_of_any_size() -> None:
    """What no column holds is no number."""
    record = CatalogueRow(dict.fromkeys(RUN), dict.fromkeys(SUMMARY))
    record.run |= {"run": "far", "seed": 2**63 - 1, "cpu_count": 2**63, "rate_pps": 10**400}
    record.summary |= {"run": "far", "loss_ratio": math.inf, "reordered_ratio": math.nan}
    with catalogue_of_records([record]) as catalogue:
        [row] = catalogue.rows("SELECT * FROM run JOIN summary USING (run)")
    assert (row["seed"], row["cpu_count"], row["rate_pps"]) == (2**63 - 1, None, None)
    assert (row["loss_ratio"], row["reordered_ratio"]) == (math.inf, None)


def test_no_number_of_a_summary_is_left_out(runs: Path) -> None:
    """But for what is no figure of the run, or is in its plan."""
    summary = json.loads((runs / "plain" / "summary.json").read_text())
    others = {name for name, value in summary.items() if not isinstance(value, str | list)}
    assert others - set(SUMMARY) - set(RUN) <= {
        *("format", "ci_level", "floor_ns"),
        *(
            f"{side}_{name}"
            for side in ("pre", "post")
            for name in ("format", "resolution", "stamps")
        ),
        *("pre_cut_offset_bytes", "post_cut_offset_bytes"),
    }


def test_every_column_is_documented() -> None:
    names = {name for columns in (*TABLES.values(), *PACKETS.values()) for name in columns}
    pages = ("catalogue.md", "analyze.md", "run.md", "energy.md")
    assert undocumented(names, *pages) == []
    assert undocumented([*TABLES, *PACKETS, *STATES], "catalogue.md") == []
    assert set(RUN).intersection(SUMMARY) <= {"run"}


def test_changes_are_seen(runs: Path) -> None:
    first = states(runs)
    shutil.rmtree(runs / "fast")
    edited(runs / "guest", complete=False)
    change_tags(runs / "plain", add=["paper"])
    (runs / "new").mkdir()
    (runs / "new" / "run.json").write_text('{"format": 3, "complete": false}')
    assert states(runs) == {
        **{name: state for name, state in first.items() if name != "fast"},
        "guest": "incomplete",
        "new": "incomplete",
    }
    seen = all_rows(runs)
    assert seen["tag"] == [{"run": "plain", "tag": "paper"}]
    add_note(runs / "plain", "second thoughts")
    assert [row["text"] for row in all_rows(runs)["note"]] == ["second thoughts"]


def test_it_equals_one_that_is_built_anew(runs: Path, cache: Path) -> None:
    states(runs)
    change_tags(runs / "plain", add=["paper"])
    shutil.rmtree(runs / "half")
    refreshed = all_rows(runs)
    shutil.rmtree(cache)
    assert all_rows(runs) == refreshed


@pytest.mark.parametrize(
    ("content", "state", "said"),
    [
        ('{"format": 3, "complete": false}', "incomplete", "never finished"),
        ("", "damaged", "run.json: "),
        ("[]", "damaged", "run.json: expected an object, got a list"),
        ('{"complete": true, "format": 9}', "foreign", "format: expected 3, got 9"),
        ('{"complete": true}', "foreign", "format: expected 3, got 1"),
        ('{"complete": true, "format": 2}', "foreign", "format: expected 3, got 2"),
        ('{"complete": true, "format": 3}', "damaged", "run.json: lines_sha256: expected it"),
        ("{}", "damaged", "run.json: complete: missing"),
        ('{"complete": "yes"}', "damaged", "run.json: complete: expected true or false, got text"),
        ("[" * 100_000, "damaged", "run.json: expected JSON: it is nested too deeply"),
        ('{"a": ' + "[" * 100_000, "damaged", "run.json: expected JSON"),
    ],
)
def test_what_is_wrong_is_said(runs: Path, content: str, state: str, said: str) -> None:
    (runs / "plain" / "run.json").write_text(content)
    assert states(runs)["plain"] == state
    assert said in str(problem(runs, "plain"))


def test_files_that_are_not_as_written_are_named(runs: Path) -> None:
    (runs / "plain" / "latency.parquet").unlink()
    (runs / "fast" / "summary.json").write_text("{")
    os.truncate(runs / "half" / "worst.parquet", 7)
    assert problem(runs, "plain") == "latency.parquet: missing"
    assert "summary.json: expected" in str(problem(runs, "fast"))
    assert "worst.parquet: expected" in str(problem(runs, "half"))
    assert {states(runs)[name] for name in ("plain", "fast", "half")} == {"damaged"}


@pytest.mark.parametrize("value", ["10**400", "2**63", "'12'", "True", "[1]"])
def test_a_value_that_no_column_holds_is_damage(runs: Path, value: str) -> None:
    plan = json.loads((runs / "plain" / "run.json").read_text())["plan"]
    edited(runs / "plain", plan={**plan, "rate_pps": eval(value)})
    assert states(runs)["plain"] == "damaged"
    assert "run.json: plan.rate_pps: " in str(problem(runs, "plain"))


@pytest.mark.parametrize("content", ["{", "[]", '{"format": 2}', '{"format": 1, "tags": [1]}'])
def test_damaged_notes_are_no_damage_of_the_run(runs: Path, content: str) -> None:
    (runs / "plain" / "notes.json").write_text(content)
    assert states(runs)["plain"] == "complete"
    assert "notes.json" in str(problem(runs, "plain"))


def test_runs_of_several_folders_have_names_of_their_own(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs, tmp_path / "others")
    names = set(states(runs, tmp_path / "others", runs / "matrix"))
    assert len(names) == 10
    assert {"runs/plain", "others/plain"} <= names
    assert set(states(runs / "plain")) == {"plain"}
    with raises(RunError, "no-such-folder") as refused:
        states(tmp_path / "nowhere")
    assert str(tmp_path / "nowhere") in str(refused.value)


def test_links_and_hidden_folders_are_left_alone(runs: Path) -> None:
    (runs / "loop").symlink_to(runs, target_is_directory=True)
    shutil.copytree(runs / "plain", runs / ".trash")
    assert set(states(runs)) == {"plain", "fast", "half", "guest", "matrix/rate=1M"}


def test_nothing_is_written_among_the_runs(runs: Path, cache: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in runs.rglob("*")}
    states(runs)
    assert {path: path.stat().st_mtime_ns for path in runs.rglob("*")} == before
    assert cache.stat().st_mode & 0o777 == 0o700


def test_without_a_place_to_keep_it_all_is_the_same(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_cache = all_rows(runs)
    (tmp_path / "no folder").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "no folder"))
    assert all_rows(runs) == with_cache
    assert (tmp_path / "no folder").read_text() == ""


def _flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    for at in range(0, len(content), 997):
        content[at] ^= 0xFF
    file.write_bytes(content)


def _other_run(file: Path) -> None:
    """Still a sound database, which tells of a run that is not there."""
    content = file.read_bytes()
    assert content.count(b"plain") > 1
    file.write_bytes(content.replace(b"plain", b"plane"))


@pytest.mark.parametrize(
    "harm",
    [
        lambda file: file.write_bytes(b""),
        lambda file: file.write_bytes(b"no database" * 1000),
        lambda file: os.truncate(file, file.stat().st_size // 2),
        _flip,
        _other_run,
    ],
    ids=["empty", "text", "short", "flipped", "other run"],
)
def test_a_damaged_copy_is_made_anew(runs: Path, cache: Path, harm: Callable[[Path], None]) -> None:
    before = all_rows(runs)
    harm(kept(cache))
    broken = kept(cache).read_bytes()
    assert all_rows(runs) == before
    assert kept(cache).read_bytes() != broken
    assert all_rows(runs) == before


def test_only_what_changed_is_read_again(original: Path, tmp_path: Path) -> None:
    for number in range(_MANY):
        linked(original / "plain", tmp_path / "many" / f"run {number}")
    lasted = []
    for _ in range(4):
        start = time.monotonic()
        assert len(states(tmp_path / "many")) == _MANY
        lasted.append(time.monotonic() - start)
    assert min(lasted[1:]) < lasted[0] / 4


def refreshing(runs: Path, run: str) -> subprocess.Popen[str]:
    """A process that finds a run changed, and writes the copy anew, again and again."""
    command = [sys.executable, "-c", _REFRESH, runs, runs / run]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_several_processes_at_once_do_no_harm(runs: Path) -> None:
    others = [refreshing(runs, run) for run in ("plain", "fast")]
    query = [COMMAND, "runs", "list", runs, "--json", "-"]
    try:
        asking = [
            subprocess.Popen(query, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for _ in range(3)
        ]
        for each in asking:
            said, error = each.communicate(timeout=60)
            assert (each.returncode, error) == (0, "")
            assert len(json.loads(said)["runs"]) == 5
        for other in others:
            assert other.stdout is not None and other.stdout.readline() == "5\n"
    finally:
        for other in others:
            other.kill()
            said, error = other.communicate()
            assert error == ""
            assert set(said.splitlines()) <= {"5"}
    assert len(states(runs)) == 5


def test_a_process_killed_in_the_middle_does_no_harm(runs: Path, cache: Path) -> None:
    chance = random.Random(5)
    before = all_rows(runs)
    for _ in range(4):
        with refreshing(runs, "plain") as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "5\n"
            time.sleep(chance.uniform(0, 0.15))
            process.send_signal(signal.SIGKILL)
        assert all_rows(runs) == before
    (cache / f".x.catalogue.0123{SUFFIX}").write_bytes(b"left by one that was killed")
    (runs / "plain" / "run.json").touch()
    assert all_rows(runs) == before
    assert [path.suffix for path in cache.iterdir()] == [".catalogue"]


def test_what_cannot_be_looked_into_is_said(runs: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may look into every folder")
    (runs / "matrix").chmod(0)
    try:
        assert "matrix: Permission denied" in find_runs([runs]).unread[0]
    finally:
        (runs / "matrix").chmod(0o700)


@pytest.fixture
def hostile(runs: Path) -> Iterator[Path]:
    for name in (
        "new\nline",
        "\x1b[31mred",
        'it\'s "quoted"; --',
        "<script>",
        "a*b[c]?",
        "b\udcff",
    ):
        shutil.copytree(runs / "plain", runs / name)
    yield runs


def test_any_name_of_a_folder_will_do(hostile: Path) -> None:
    assert set(states(hostile)) >= {"new\nline", "\x1b[31mred", 'it\'s "quoted"; --', "a*b[c]?"}
    assert "b\\udcff" in states(hostile)


def test_damage_is_seen_by_who_has_read_it_before(runs: Path) -> None:
    assert states(runs)["plain"] == "complete"
    os.truncate(runs / "plain" / "worst.parquet", 100)
    assert states(runs)["plain"] == "damaged"
