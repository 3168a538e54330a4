"""Questions in SQL: about runs and packets, answered in every form, and none that does harm."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from command import COMMAND
from errors import code_of, raises
from shelves import copied, shelf
from wording import assert_wording

from tailscope.exceptions import UsageError
from tailscope.extra.sql.query import database_of
from tailscope.store.columns import PACKETS, TABLES

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shelf(tmp_path_factory.mktemp("original"))


@pytest.fixture
def runs(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(original, tmp_path / "runs"))


def rows(tailscope: Run, query: str, *folders: object) -> list[list[Any]]:
    done = tailscope("runs", "sql", query, *folders, "--json", "-")
    assert (done.returncode, done.stderr) == (0, "")
    found: list[list[Any]] = json.loads(done.stdout)["rows"]
    return found


def refused(tailscope: Run, query: str) -> str:
    """What is said of a query that is not answered: one line, and a hint."""
    done = tailscope("runs", "sql", query)
    assert (done.returncode, done.stdout) == (1, "")
    error, hint = done.stderr.splitlines()
    assert code_of(done) == "sql"
    assert hint.startswith("hint: ")
    return str(error)


def test_packets_are_those_of_the_files(tailscope: Run, runs: Path) -> None:
    query = "SELECT run, count(*), max(latency_ns), sum(seq) FROM latency GROUP BY run ORDER BY run"
    found = rows(tailscope, query)
    assert [row[0] for row in found] == ["fast", "guest", "half", "matrix/rate=1M", "plain"]
    table = pq.read_table(runs / "plain" / "latency.parquet")
    latency, seq = (table[name].to_numpy() for name in ("latency_ns", "seq"))
    assert found[4][1:] == [len(latency), int(latency.max()), int(seq.sum())]


def test_tables_are_joined(tailscope: Run, runs: Path) -> None:
    query = (
        "SELECT run, dut, rate_pps, lost, max(latency.latency_ns) = any_value(latency_ns_max)"
        " FROM run JOIN summary USING (run) JOIN latency USING (run)"
        " WHERE rate_pps >= 100000 GROUP BY ALL ORDER BY rate_pps"
    )
    assert rows(tailscope, query) == [
        ["fast", "suricata", 100_000, 0, True],
        ["matrix/rate=1M", "l2fwd", 1_000_000, 0, True],
    ]


def test_every_table_has_its_columns(tailscope: Run, runs: Path) -> None:
    """Also those that no run here has a file for."""
    listed = {row[0] for row in rows(tailscope, "SHOW TABLES")}
    assert listed == {*TABLES, *PACKETS}
    with database_of([runs]) as database:
        for table, columns in {**TABLES, **PACKETS}.items():
            described = database.ask(f"DESCRIBE {table}").rows
            assert {row[0]: row[1] for row in described} == dict(columns), table


def test_only_the_files_that_are_asked_for_are_opened(tailscope: Run, runs: Path) -> None:
    """Not even another one that is damaged."""
    broken = runs / "plain" / "latency.parquet"
    broken.write_bytes(b"?" * broken.stat().st_size)
    assert rows(tailscope, "SELECT count(*) FROM latency WHERE run = 'fast'") == [[20_000]]
    assert "plain/latency.parquet" in refused(tailscope, "SELECT count(*) FROM latency")


def test_files_that_are_not_as_written_are_left_out(tailscope: Run, runs: Path) -> None:
    (runs / "plain" / "latency.parquet").unlink()
    os.truncate(runs / "fast" / "latency.parquet", 100)
    (runs / "half" / "latency.parquet").rename(runs / "elsewhere")
    (runs / "half" / "latency.parquet").symlink_to(runs / "elsewhere")
    done = tailscope("runs", "sql", "SELECT DISTINCT run FROM latency ORDER BY run", "--csv", "-")
    assert done.stdout.splitlines() == ["run", "guest", "matrix/rate=1M"]
    assert [line.split("/")[-2] for line in done.stderr.splitlines()] == ["fast", "half", "plain"]
    assert done.stderr.startswith("warning: left out: ")


def test_answers_come_in_three_forms(tailscope: Run, runs: Path) -> None:
    query = (
        "SELECT run, dut, NULL AS nothing, 1.5::DOUBLE AS half, [1, 2] AS two FROM run ORDER BY run"
    )
    lines = tailscope("runs", "sql", query).stdout.splitlines()
    assert lines[0].split() == ["run", "dut", "nothing", "half", "two"]
    assert lines[2].split() == ["fast", "suricata", "-", "1.5", "[1,", "2]"]
    assert tailscope("runs", "sql", query, "--csv", "a.csv").returncode == 0
    with Path("a.csv").open(newline="") as file:
        table = list(csv.reader(file))
    assert table[1] == ["fast", "suricata", "", "1.5", "[1, 2]"]
    tailscope("runs", "sql", query, "--json", "a.json")
    content = json.loads(Path("a.json").read_text())
    assert content["columns"] == ["run", "dut", "nothing", "half", "two"]
    assert content["rows"][0] == ["fast", "suricata", None, 1.5, [1, 2]]
    odd = "SELECT 'nan'::DOUBLE, DATE '2025-01-02', 12.50::DECIMAL(4, 2), {'a': 1}, 1::HUGEINT"
    assert rows(tailscope, odd) == [[None, "2025-01-02", "12.50", {"a": 1}, 1]]


def test_a_terminal_is_not_flooded(tailscope: Run, runs: Path) -> None:
    lines = tailscope("runs", "sql", "SELECT seq FROM latency").stdout.splitlines()
    assert_wording("sql/first-rows", lines[-1])
    assert len(lines) == 1000 + 4
    all_rows = tailscope("runs", "sql", "SELECT seq FROM latency", "--csv", "-").stdout
    assert all_rows.count("\n") == 100_001


@pytest.mark.parametrize(
    "query",
    [
        "COPY run TO 'runs/out.csv'",
        "COPY (SELECT 1) TO 'runs/plain/latency.parquet' (USE_TMP_FILE false)",
        "WITH x AS (COPY (SELECT 1) TO 'TARGET' (USE_TMP_FILE false)) FROM x",
        "SELECT * FROM (WITH x AS (COPY (SELECT 1) TO 'TARGET' (USE_TMP_FILE false)) FROM x)",
        "WITH x AS (DELETE FROM run RETURNING *) FROM x",
        "FROM query('COPY run TO ''TARGET''')",
        "SELECT 1; COPY run TO 'TARGET'",
        "EXPORT DATABASE 'runs/out'",
        "ATTACH 'runs/other.duckdb'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "PRAGMA enable_profiling",
        "CALL enable_logging()",
        "CREATE TABLE x AS FROM run",
        "DROP TABLE run",
        "FROM read_csv('/etc/passwd')",
        "FROM read_text('/etc/passwd')",
        "FROM read_blob('runs/plain/run.json')",
        "FROM '/etc/passwd'",
        "FROM glob('/etc/*')",
        "FROM read_csv('runs/../secret')",
        "FROM sniff_csv('/etc/passwd')",
        "FROM read_csv('http' || '://localhost:1/x.csv')",
        "FROM database",
        "FROM sqlite_scan('x', 'y')",
        "SELECT getenv('HOME')",
        "SELEC 1",
        "SELECT nothing FROM run",
        "FROM nowhere",
        "SELECT 1 +",
        "SELECT 'a'::INTEGER",
        "SELECT error('\x1b[31m')",
        "",
        "\udcff",
    ],
)
def test_no_query_does_harm_or_sees_more(runs: Path, query: str) -> None:
    target = runs / "plain" / "latency.parquet"
    (runs.parent / "secret").write_text("a,b\n1,2\n")
    before = {path: path.read_bytes() for path in runs.rglob("*") if path.is_file()}
    with database_of([runs]) as database, raises(UsageError, "sql") as caught:
        list(database.ask(query.replace("TARGET", str(target))).rows)
    assert "\n" not in str(caught.value)
    assert "root:" not in str(caught.value)
    assert {path: path.read_bytes() for path in runs.rglob("*") if path.is_file()} == before
    assert sorted(path.name for path in runs.parent.iterdir()) == ["cache", "runs", "secret"]


def test_an_answer_is_written_once(tailscope: Run, runs: Path) -> None:
    done = tailscope("runs", "sql", "FROM run", "--json", "found.json", "--csv", "found.csv")
    assert (done.returncode, done.stdout) == (1, "")
    assert code_of(done) == "options-exclusive"
    assert not list(runs.parent.glob("found.*"))


def test_a_refusal_is_one_line_and_a_hint(tailscope: Run, runs: Path) -> None:
    assert "single SELECT" in refused(tailscope, "COPY run TO 'runs/x.csv'")
    assert "Cannot access file" in refused(tailscope, "FROM read_csv('/etc/passwd')")
    assert not (runs / "x.csv").exists()


def test_the_message_of_the_database_helps(tailscope: Run, runs: Path) -> None:
    assert '"latency_ns_p99"' in refused(tailscope, "SELECT latency_ns_p98 FROM summary")
    assert "single SELECT" in refused(tailscope, "DROP TABLE run")


def test_any_name_of_a_run_will_do(tailscope: Run, runs: Path) -> None:
    names = sorted(("new\nline", 'it\'s "quoted"', "a*[b]?{c}", "<script>", "\x1b[1m"))
    for name in names:
        copied(runs / "plain", runs / name, dut=name)
    query = (
        "SELECT run, dut, count(*) FROM run JOIN latency USING (run) WHERE run = dut"
        " GROUP BY ALL ORDER BY run"
    )
    assert rows(tailscope, query) == [[name, name, 20_000] for name in names]
    assert "\x1b" not in tailscope("runs", "sql", "SELECT DISTINCT run FROM worst").stdout


def test_what_does_not_fit_is_gone_afterwards(tailscope: Run, runs: Path) -> None:
    assert rows(tailscope, "SELECT count(*) FROM (SELECT seq FROM latency ORDER BY latency_ns)")
    assert sorted(path.name for path in runs.parent.iterdir()) == ["cache", "runs"]


def test_what_exceeds_its_memory_is_refused(tailscope: Run, runs: Path) -> None:
    done = tailscope("runs", "sql", "SELECT length(list(range)) FROM range(100_000_000)", runs)
    assert (done.returncode, code_of(done)) == (1, "sql")
    assert "512.0 MiB" in done.stderr


ALL = "latency a, latency b, latency c"
AT_ONCE = f"SELECT sum(a.seq * b.seq * c.seq) FROM {ALL}"
AFTER_ROWS = (
    "SELECT range FROM range(20_000)"
    f" UNION ALL SELECT a.seq FROM {ALL} WHERE a.seq * b.seq * c.seq % 1000003 = 1000004"
)


@pytest.mark.parametrize(
    ("number", "query"),
    [(signal.SIGINT, AT_ONCE), (signal.SIGTERM, AT_ONCE), (signal.SIGINT, AFTER_ROWS)],
    ids=["sum", "sum, SIGTERM", "after rows"],
)
def test_a_long_query_can_be_ended(runs: Path, number: signal.Signals, query: str) -> None:
    with subprocess.Popen(
        [COMMAND, "runs", "sql", query, "--json", "-"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        try:
            while not list(runs.parent.glob("tailscope-*")):
                assert process.poll() is None
                time.sleep(0.05)
            time.sleep(1)
            process.send_signal(number)
            out, error = process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 130
    assert (bool(out), error.decode()) == (query == AFTER_ROWS, "error: interrupted\n")
    assert sorted(path.name for path in runs.parent.iterdir()) == ["cache", "runs"]
