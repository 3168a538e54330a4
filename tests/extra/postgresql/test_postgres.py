"""Runs in a real PostgreSQL server: its figures are ours; a run is there wholly or not at all."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import time
from contextlib import redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import captures
import numpy as np
import pytest
from bench.postgres import QUERIES
from bench.postgres_server import Server, programs, server
from command import COMMAND
from documentation import undocumented
from errors import code_of, raises
from msgspec import structs
from runs import read_packets
from shelves import edited
from synthetic import info_of, latencies, write_run
from wording import assert_wording

import tailscope as package
from tailscope.cli import main
from tailscope.engine.analysis import Clock, Recording, analyze_recording
from tailscope.exceptions import UsageError
from tailscope.extra.postgresql.target import read_target
from tailscope.store.directory import RunWriter
from tailscope.store.reader import read_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SECRET = "s3cret%2Fword"
WORD = "s3cret/word"
PAIRS = (
    pytest.param("motivation", marks=pytest.mark.long),
    "dpdk-l2fwd/hw",
    pytest.param("snort-filter/hw", marks=pytest.mark.long),
)
"""The queries take half a minute for each."""

VIEWS = {
    "percentiles", "least_percentiles", "histogram", "worst", "transfer_rate",
    "gaps_pre", "gaps_post", "packet_rate_pre", "packet_rate_post",
}  # fmt: skip


class Database:
    """A database of its own for a test."""

    def __init__(self, server: Server, name: str) -> None:
        self.server, self.name = server, name

    def uri(self, user: str | None = None, password: str = "") -> str:
        who = f"{user or self.server.user}{password and ':'}{password}"
        return f"postgresql://{who}@/{self.name}?host={self.server.folder}"

    def rows(self, sql: str) -> list[list[str]]:
        command = [*self.server.psql("-d", self.name, "--csv", "-t", "-c", sql)]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
        return list(csv.reader(io.StringIO(done.stdout)))

    def integers(self, sql: str) -> list[list[int]]:
        return [[int(cell) for cell in row] for row in self.rows(sql)]

    def value(self, sql: str) -> str:
        ((found,),) = self.rows(sql)
        return found


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    if programs() is None:
        assert not os.environ.get("CI"), "run make setup-ci"
        pytest.skip("no PostgreSQL server")
    with server() as running:
        rules = running.data / "pg_hba.conf"
        rules.write_text("local all guarded scram-sha-256\n" + rules.read_text())
        running.control("reload")
        running.sql(f"CREATE ROLE guarded LOGIN PASSWORD '{WORD}'")
        running.sql("CREATE ROLE guest LOGIN")
        yield running


@pytest.fixture
def database(postgres: Server, request: pytest.FixtureRequest) -> Iterator[Database]:
    name = f"test_{time.monotonic_ns()}"
    postgres.sql(f"CREATE DATABASE {name} TEMPLATE template0")
    yield Database(postgres, name)
    postgres.sql(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def noms(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The runs of the papers' pairs, as they are needed."""
    folder = tmp_path_factory.mktemp("noms")

    def run(name: str) -> Path:
        out = folder / name.replace("/", "-")
        if not out.exists():
            (pre,), (post,) = (
                (data / "noms2020" / name).glob(f"*-{side}-*.pcap.zst") for side in ("pre", "post")
            )
            analyzed(pre, post, out, "--trim", "1s")
        return out

    return run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A small run, with everything in it that makes matching hard."""
    settings = {"packets": 20_000, "rate_pps": 20_000, "seed": 7, "loss": 0.01}
    settings |= {"duplication": 0.01, "reordering": 0.01, "foreign": 0.01}
    import tailscope._engine as _engine

    truth = _engine.simulate(str(tmp_path / "captures"), **settings, clock_offset_ns=-3_100)
    return analyzed(
        truth["pre"], truth["post"], tmp_path / "run", "--trim", "50ms", "--window", "100ms",
        "--worst", "300", "--bucket-size", "1us", "--clocks", "same",
    )  # fmt: skip


def analyzed(pre: object, post: object, out: Path, *options: str) -> Path:
    assert main(["analyze", str(pre), str(post), "--out", str(out), *options]) == 0
    return out


def started(*arguments: object) -> subprocess.Popen[str]:
    command = [COMMAND, "runs", "export", *map(str, arguments)]
    return subprocess.Popen(
        command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
    )


def export(*arguments: object, expected: int = 0, **environment: str) -> tuple[str, str]:
    """Run the command in this process: forty times its start would take longer than all else."""
    output, errors = io.StringIO(), io.StringIO()
    with patch.dict(os.environ, environment), redirect_stdout(output), redirect_stderr(errors):
        status = main(["runs", "export", *map(str, arguments)])
    said = output.getvalue(), errors.getvalue()
    assert status == expected, said
    assert SECRET not in "".join(said)
    assert WORD not in "".join(said)
    return said


def refused(*arguments: object) -> tuple[str | None, str]:
    """Return the code of the error that an export ends with, and what it says."""
    _, errors = export(*arguments, expected=1)
    return code_of(subprocess.CompletedProcess(arguments, 1, "", errors)), errors


def count(database: Database, table: str) -> int:
    """Return the number of rows of one of tailscope's tables."""
    return int(database.value(f"SELECT count(*) FROM tailscope.{table}"))


def pairs(found: Any) -> list[list[int]]:
    return [list(map(int, row)) for row in zip(*found, strict=True)]


def assert_percentiles(database: Database, path: Path, where: str = "true") -> None:
    found = database.rows(
        f"SELECT quantile, latency_ns, beyond FROM tailscope.percentiles WHERE {where} ORDER BY 1"
    )
    ours = [[found.q, found.value_ns, found.beyond] for found in read_run(path).percentiles]
    assert [[float(q), int(ns), int(beyond)] for q, ns, beyond in found] == ours


def assert_all_views(database: Database, path: Path) -> None:
    run = read_run(path)
    assert_percentiles(database, path)
    of = database.integers
    histogram = "TABLE tailscope.histogram ORDER BY bucket_ns"
    assert of(histogram) == [[1, *row] for row in pairs(run.latency)]
    worst = "SELECT latency_ns, pre_ns, post_ns FROM tailscope.worst ORDER BY place"
    assert of(worst) == pairs(run.worst[:3])
    for side in ("pre", "post"):
        gaps = f"SELECT bucket_ns, packets FROM tailscope.gaps_{side} ORDER BY 1"
        assert of(gaps) == pairs(run.gaps[side])
        rate = f"SELECT start_ns, packets FROM tailscope.packet_rate_{side} ORDER BY 1"
        assert of(rate) == pairs(run.rate[side])
    ((_, pre, post, ratio, pre_mean, post_mean),) = database.rows("TABLE tailscope.transfer_rate")
    assert [int(pre), int(post)] == [int(run.rate[side].counts.sum()) for side in ("pre", "post")]
    assert float(ratio) == run.summary["transfer_rate"]
    assert float(pre_mean) == run.summary["pre_second_mean_pps"]
    assert float(post_mean) == run.summary["post_second_mean_pps"]


def assert_matches(database: Database, path: Path) -> None:
    packets = read_packets(path)
    found = database.integers("SELECT pre_ns, latency_ns FROM tailscope.match ORDER BY 1, 2")
    assert found == sorted(pairs((packets.pre_ns, packets.latency_ns)))


@pytest.mark.parametrize("name", PAIRS)
def test_sql_finds_our_figures(noms: Callable[[str], Path], database: Database, name: str) -> None:
    path = noms(name)
    output, _ = export(path, "--to", database.uri())
    assert "600,000 packets" in output
    assert_all_views(database, path)


def test_sql_of_the_papers_finds_our_figures(
    noms: Callable[[str], Path], data: Path, database: Database
) -> None:
    """Their join and their tables, as the benchmark has them."""
    path = noms("snort-filter/hw")
    export(path, "--to", database.uri(), "--schema", "tables of the papers")
    summary = read_run(path).summary
    name = database.value('SELECT DISTINCT name FROM "tables of the papers".capture')
    of = {
        query: database.rows(
            'SET search_path TO "tables of the papers";'
            + QUERIES[query].replace("'pair'", f"'{name}'")
        )
        for query in ("quantiles", "worst")
    }
    names = ("p50", "p90", "p99", "p999", "p9999", "p99999")
    assert [int(row[0]) for row in of["quantiles"]] == [summary[f"latency_ns_{q}"] for q in names]
    (pre,), (post,) = (
        (data / "noms2020/snort-filter/hw").glob(f"*-{s}-*.zst") for s in ("pre", "post")
    )
    analysis = package.analyze(pre, post, trim="1s", series=False)
    assert [row[3] for row in of["worst"]] == analysis.worst_keys(pre)


def test_matching_is_as_ours_where_it_is_hard(run: Path, database: Database) -> None:
    summary = read_run(run).summary
    for figure in ("lost", "duplicated", "post_negative", "pre_trimmed", "post_unknown"):
        assert summary[figure], figure
    export(run, "--to", database.uri())
    assert_matches(database, run)
    assert_all_views(database, run)


def test_packets_without_a_key_match_nothing(tmp_path: Path, database: Database) -> None:
    pre, post = captures.pair(tmp_path, [500 + at for at in range(100)])
    with pre.open("ab") as file:
        late = captures.Packet(1_600_000_009 * captures.SECOND, 20, bytes(20))
        file.write(captures.pcap([late])[24:])
    run = analyzed(pre, post, tmp_path / "run", "--match-on", "bytes:12+48")
    assert read_run(run).summary["pre_unkeyed"] == 1
    export(run, "--to", database.uri())
    keys = "SELECT count(*) FILTER (WHERE hdr IS NULL), max(length(hdr)) FROM tailscope.pkt"
    assert database.integers(keys) == [[1, 48]]
    assert_matches(database, run)


def test_tables_hold_the_run(run: Path, database: Database) -> None:
    export(run, "--to", database.uri())
    info = json.loads((run / "run.json").read_text())
    summary = json.loads((run / "summary.json").read_text())
    warnings = summary.pop("warnings")
    del summary["format"]
    ((stored_info, stored_warnings),) = database.rows("SELECT info, warnings FROM tailscope.run")
    assert json.loads(stored_info) == info
    assert json.loads(stored_warnings) == warnings
    found = {name: (value, text) for name, value, text in database.rows(
        "SELECT figure, value, text FROM tailscope.summary"
    )}  # fmt: skip
    assert found.keys() == summary.keys()
    for name, figure in summary.items():
        value, text = found[name]
        if isinstance(figure, bool | str):
            assert text == (json.dumps(figure) if isinstance(figure, bool) else figure)
        else:
            assert (float(value) if value else None) == figure
    packets = read_packets(run)
    sent = "SELECT seq, pre_ns, latency_ns FROM tailscope.latency ORDER BY seq"
    assert database.integers(sent) == pairs((packets.seq, packets.pre_ns, packets.latency_ns))
    named = database.rows("SELECT name, type FROM tailscope.capture ORDER BY capture_id")
    assert [side for _, side in named] == ["pre", "post"]
    for name, _ in named:
        machine, _, path = name.partition(":")
        assert re.fullmatch(rf"{re.escape(os.uname().nodename)}-[0-9a-f]{{8}}", machine)
        assert path == str(run.resolve())


def outcome_of(run: Path, database: Database) -> tuple[str, int]:
    """Export a run; return what became of it, and its number in the database."""
    output, _ = export(run, "--to", database.uri(), "--json", "-")
    (found,) = json.loads(output)["runs"]
    return found["state"], found["run_id"]


def test_the_same_run_again_changes_nothing(run: Path, database: Database, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in run.iterdir()}
    export(run, "--to", database.uri())
    times = "SELECT exported FROM tailscope.run"
    exported = database.rows(times)
    shutil.copytree(run, tmp_path / "copy")
    for same in (run, tmp_path / "copy"):
        assert outcome_of(same, database) == ("already there", 1)
    assert database.rows(times) == exported
    assert {path: path.read_bytes() for path in run.iterdir()} == before


def test_a_run_that_changed_takes_the_place_of_the_old(tmp_path: Path, database: Database) -> None:
    pair = captures.pair(tmp_path, [500] * 100)
    run = analyzed(*pair, tmp_path / "run")
    export(run, "--to", database.uri())
    shutil.rmtree(run)
    analyzed(*pair, run, "--trim", "5ms")
    assert outcome_of(run, database) == ("replaced", 2)
    assert count(database, "latency") == read_run(run).summary["count"]
    rows = {"pkt": 200, "capture": 2, "run": 1}
    assert {table: count(database, table) for table in rows} == rows


def test_captures_that_are_gone_are_said_to_be(tmp_path: Path, database: Database) -> None:
    pre, post = captures.pair(tmp_path, [500 + at for at in range(100)])
    run = analyzed(pre, post, tmp_path / "run")
    post.rename(tmp_path / "elsewhere")
    output, _ = export(run, "--to", database.uri())
    assert "pkt " in output and "post capture" in output
    assert count(database, "pkt") == 0
    assert_percentiles(database, run)
    (tmp_path / "elsewhere").rename(post)
    state, _ = outcome_of(run, database)
    assert state == "replaced"
    assert_matches(database, run)


def recorded(path: Path) -> Path:
    """A run that the generator recorded: every tenth packet is tainted, and takes longer."""
    sent = np.arange(1, 2_001, dtype=np.uint64) * 10_000
    late = np.arange(len(sent)) % 10 == 0
    back = sent + np.where(late, 5_000, 700).astype(np.uint64)
    stalls = sent[late] + np.uint64(1)
    seq, none = np.arange(len(sent), dtype=np.uint64), np.zeros(0, np.uint64)
    clock = Clock(tsc_hz=1_000_000_000, tsc=0, unix_ns=1_700_000_000_000_000_000)
    long = np.full(len(stalls), 100, np.uint64)
    with RunWriter(path, draw=lambda _: "") as writer:
        analysis = analyze_recording(
            Recording(clock, sent, sent, seq, back, none, stalls, long), worst=50, sink=writer.sink
        )
        plan = structs.replace(info_of().measured, bucket_ns=100, worst=50)
        info = structs.replace(info_of(), plan=plan)
        writer.finish(analysis, info=info, bucket_ns=100)
    return path


def test_what_the_generator_recorded_has_no_packets(tmp_path: Path, database: Database) -> None:
    run = recorded(tmp_path / "run")
    summary = read_run(run).summary
    assert summary["tainted"]
    output, _ = export(run, "--to", database.uri())
    assert_wording("postgresql/recorded-by-the-generator", output.splitlines()[-1].strip())
    assert_percentiles(database, run)
    least = "SELECT latency_ns FROM tailscope.least_percentiles WHERE quantile = 0.99"
    assert int(database.value(least)) == summary["least_latency_ns_p99"]
    assert summary["least_latency_ns_p99"] != summary["latency_ns_p99"]
    worst = "SELECT latency_ns, pre_ns, post_ns FROM tailscope.worst ORDER BY place"
    assert database.integers(worst) == pairs(read_run(run).worst[:3])
    assert database.rows("TABLE tailscope.transfer_rate") == []
    packets = read_packets(run)
    sent = "SELECT count(*) FROM tailscope.latency WHERE tainted AND intended_ns = pre_ns"
    assert int(database.value(sent)) == packets.tainted.sum()


def test_a_capture_that_changed_is_not_sent(tmp_path: Path, database: Database) -> None:
    pre, post = captures.pair(tmp_path, [500] * 100)
    run = analyzed(pre, post, tmp_path / "run")
    with post.open("ab") as file:
        file.write(b"more")
    output, _ = export(run, "--to", database.uri())
    assert "size_bytes: expected" in output
    assert count(database, "pkt") == 0


def test_a_damaged_run_does_not_stop_the_others(tmp_path: Path, database: Database) -> None:
    pair = captures.pair(tmp_path, [500] * 100)
    broken, whole = (analyzed(*pair, tmp_path / name) for name in ("broken", "whole"))
    content = bytearray((broken / "latency.parquet").read_bytes())
    content[len(content) // 2] ^= 1
    (broken / "latency.parquet").write_bytes(content)
    code, errors = refused(broken, whole, "--to", database.uri())
    assert code == "checksum" and "latency.parquet: " in errors
    labels = "SELECT label FROM tailscope.run"
    assert database.rows(labels) == [["whole"]]
    assert count(database, "latency") == 100


def copying(database: Database, process: subprocess.Popen[str]) -> None:
    """Wait until packets are on their way."""
    while not database.rows(
        "SELECT 1 FROM pg_stat_progress_copy WHERE datname = current_database()"
        " AND tuples_processed > 1000"
    ):
        assert process.poll() is None, "ended too soon"


@pytest.mark.parametrize(
    "ending",
    [
        signal.SIGKILL,
        *(pytest.param(each, marks=pytest.mark.long) for each in (signal.SIGINT, signal.SIGTERM)),
    ],
)
def test_what_is_interrupted_leaves_nothing(
    noms: Callable[[str], Path], run: Path, database: Database, ending: signal.Signals
) -> None:
    export(run, "--to", database.uri())
    process = started(noms("motivation"), "--to", database.uri())
    copying(database, process)
    process.send_signal(ending)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == (-9 if ending == signal.SIGKILL else 130), errors
    assert "Traceback" not in errors
    while database.rows("SELECT 1 FROM pg_stat_activity WHERE query LIKE 'COPY%'"):
        time.sleep(0.05)
    numbers = "SELECT run_id FROM tailscope.run"
    assert database.integers(numbers) == [[1]]
    for table in ("latency", "summary", "percentile", "capture"):
        others = f"SELECT count(*) FROM tailscope.{table} WHERE run_id <> 1"
        assert database.value(others) == "0"
    numbers = "SELECT count(DISTINCT capture_id) FROM tailscope.pkt"
    assert database.integers(numbers) == [[2]]


@pytest.mark.long
def test_two_at_once_take_turns(tmp_path: Path, database: Database) -> None:
    pair = captures.pair(tmp_path, [500] * 2_000)
    runs = [analyzed(*pair, tmp_path / f"run{number}") for number in range(3)]
    both = [started(*order, "--to", database.uri()) for order in (runs, runs[::-1])]
    outputs = [process.communicate(timeout=60) for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    said = "".join(output for output, _ in outputs)
    assert (said.count("exported as"), said.count("already there as")) == (3, 3)
    assert (count(database, "run"), count(database, "pkt")) == (3, 12_000)


def test_credentials_come_from_where_libpq_looks(
    run: Path, database: Database, tmp_path: Path
) -> None:
    database.rows(f"GRANT CREATE ON DATABASE {database.name} TO guarded")
    guarded = database.uri("guarded")
    wrong = database.uri("guarded", SECRET + "x")
    for uri, expected in ((guarded, "password-missing"), (wrong, "authentication")):
        code, errors = refused(run, "--to", uri)
        assert code == expected and "PGPASSWORD" in errors
    export(run, "--to", guarded, PGPASSWORD=WORD)
    passfile = tmp_path / "pass"
    passfile.write_text(f"*:*:*:guarded:{WORD}\n")
    passfile.chmod(0o600)
    output, _ = export(run, "--to", guarded, PGPASSFILE=str(passfile))
    assert "already there" in output
    services = tmp_path / "services"
    folder = database.server.folder
    services.write_text(
        f"[lab]\nhost={folder}\ndbname={database.name}\nuser=guarded\npassword={WORD}\n"
    )
    output, _ = export(run, "--to", "service=lab", PGSERVICEFILE=str(services))
    assert "already there" in output
    output, _ = export(run, "--to", database.uri("guarded", SECRET), "--json", "-")
    assert "guarded:***@" in json.loads(output)["to"]
    for path in run.rglob("*"):
        assert WORD.encode() not in path.read_bytes()


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://me:to/p@host/db", "postgresql://me:a b@host/db", "postgresql://me:to?p@host",
        "mysql://me:top@host/db", "password=to p host", "host=x password='top", "top", "",
        "postgresql://me:to@p@host/db", "postgresql://me:to#p@host/db",
    ],
)  # fmt: skip
def test_what_is_no_address_is_not_repeated(text: str) -> None:
    with raises(UsageError, "database-address") as raised:
        read_target(text, "--to")
    assert "to" not in str(raised.value).replace("--to", "").replace("postgresql", "")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://me:top@h:1/db", "postgresql://me:***@h:1/db"),
        ("postgres://h/db?password=top&user=me", "postgres://h/db?password=***&user=me"),
        ("host=h password='to p' user=me", "host=h password=*** user=me"),
        ("service=lab", "service=lab"),
        ("postgresql:///?host=/run/x", "postgresql:///?host=/run/x"),
        ("postgresql://[::1]:5432,other:1/db", "postgresql://[::1]:5432,other:1/db"),
    ],
)
def test_passwords_are_hidden(text: str, shown: str) -> None:
    target = read_target(text, "--to")
    assert target.shown == shown
    assert set(target.hide(" ".join(target.secrets))) <= set("* '")


@pytest.mark.parametrize(
    ("harm", "code", "says"),
    [
        ("GRANT CONNECT ON DATABASE {name} TO guest", "permission", "permission denied"),
        ("ALTER DATABASE {name} SET default_transaction_read_only = on", "read-only", "read-only"),
        ("CREATE SCHEMA tailscope; CREATE TABLE tailscope.mine (x int)", "schema-foreign", "got 1"),
        (
            "CREATE SCHEMA tailscope; CREATE TABLE tailscope.store_version (version int);"
            "INSERT INTO tailscope.store_version VALUES (9)",
            "schema-version",
            "expected 2, got 9",
        ),
    ],
)
def test_a_database_that_refuses_says_what_to_do(
    run: Path, database: Database, harm: str, code: str, says: str
) -> None:
    database.rows(harm.format(name=database.name))
    user = "guest" if "guest" in harm else None
    got, errors = refused(run, "--to", database.uri(user))
    assert got == code
    assert says in errors
    assert "hint: " in errors


def test_a_server_that_is_not_there(run: Path, tmp_path: Path) -> None:
    code, errors = refused(run, "--to", f"postgresql:///x?host={tmp_path}")
    assert code == "no-server" and str(tmp_path) in errors
    assert "hint: " in errors


def test_a_full_disk_leaves_nothing(
    noms: Callable[[str], Path], database: Database, tmp_path: Path
) -> None:
    if os.geteuid() != 0:
        pytest.skip("a small disk is mounted by root")
    small = database.server.folder / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m,mode=0777", "tmpfs", str(small)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        shutil.chown(small, database.server.user)
        database.rows(f"CREATE TABLESPACE small LOCATION '{small}'")
        database.rows(f"ALTER DATABASE {database.name} SET default_tablespace = small")
        code, errors = refused(noms("motivation"), "--to", database.uri())
        assert code == "disk-full" and "hint: " in errors
        schemas = "SELECT nspname FROM pg_namespace"
        assert ["tailscope"] not in database.rows(schemas)
        database.rows("DROP TABLESPACE small")
    finally:
        subprocess.run(["umount", "--lazy", small], check=True)
        small.rmdir()


def test_what_would_be_sent_is_said_without_a_server(run: Path) -> None:
    to = f"postgresql://me:{SECRET}@nowhere/db"
    output, _ = export(run, "--to", to, "--dry-run")
    summary = read_run(run).summary
    assert f"{summary['count']:,} rows" in output
    assert output.splitlines()[-1].endswith(" postgresql://me:***@nowhere/db, schema tailscope")
    output, _ = export(run, "--to", to, "--dry-run", "--json", "-")
    (found,) = json.loads(output)["runs"]
    packets = summary["pre_packets"] + summary["post_packets"]
    assert found["tables"]["pkt"] == {"rows": packets, "most_bytes": packets * 34}, "probes"


@pytest.mark.parametrize("name", ['we"ird; DROP', "Größe", "select"])
def test_any_name_will_do_for_a_schema(tmp_path: Path, database: Database, name: str) -> None:
    run = analyzed(*captures.pair(tmp_path, [500] * 10), tmp_path / "run")
    export(run, "--to", database.uri(), "--schema", name)
    quoted = name.replace('"', '""')
    matches = f'SELECT count(*) FROM "{quoted}".match'
    assert database.value(matches) == "10"


@pytest.mark.parametrize("name", ["", "pg_mine", "x" * 64, "a\tb"])
def test_what_is_no_name_of_a_schema_is_refused(run: Path, name: str) -> None:
    code, errors = refused(run, "--to", "service=x", "--schema", name)
    assert code == "schema-name" and "--schema: got" in errors


def test_everything_is_documented(run: Path, database: Database) -> None:
    output, _ = export(run, "--to", database.uri(), "--json", "-")
    found = json.loads(output)
    names = {*found, *found["runs"][0], *found["runs"][0]["tables"]["pkt"], "error"}
    relations = {name for (name,) in database.rows(
        "SELECT relname FROM pg_class WHERE relnamespace = 'tailscope'::regnamespace"
        " AND relkind IN ('r', 'v')"
    )}  # fmt: skip
    assert relations >= VIEWS
    columns = {name for (name,) in database.rows(
        "SELECT column_name FROM information_schema.columns WHERE table_schema = 'tailscope'"
    )}  # fmt: skip
    assert undocumented(sorted(names | relations | columns), "extra/postgresql/postgresql.md") == []
    silent = database.rows(
        "SELECT relname FROM pg_class WHERE relnamespace = 'tailscope'::regnamespace"
        " AND relkind IN ('r', 'v') AND obj_description(oid, 'pg_class') IS NULL"
    )
    assert silent == []


def test_trends_of_a_database_are_those_of_its_runs(database: Database, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for hour in range(10):
        values = latencies(hour)[:1_500] * (1 if hour < 5 else 2)
        run = write_run(runs / f"night{hour}", values)
        edited(run, written_unix_ns=1_760_000_000_000_000_000 + hour * 3_600_000_000_000)
    edited(write_run(runs / "half", latencies(9)[:1_500]), partial=["interrupted"])
    export(*sorted(runs.iterdir()), "--to", database.uri())
    found = []
    for source in ([str(runs)], ["--from", database.uri()]):
        file = tmp_path / "found.json"
        limits = ["--metric", "p50", "--metric", "max", "--fail-on", "p50>+10%"]
        assert main(["trend", *source, "rate=10k", *limits, "--json", str(file)]) == 2
        found.append(json.loads(file.read_text()))
    ours, theirs = found
    assert len(ours["series"][0]["changes"]) == 1
    for each, other in zip(ours["series"], theirs["series"], strict=True):
        assert each["experiment"] == other["experiment"]
        for step, exported in zip(each["steps"], other["steps"], strict=True):
            assert exported["runs"][0].endswith(f"/{step.pop('runs')[0]}")
            assert exported.pop("runs")
        for change, exported in zip(each["changes"], other["changes"], strict=True):
            assert exported.pop("first_run").endswith(f"/{change.pop('first_run')}")
        assert each == other
    [left_out] = theirs["left_out"]
    assert left_out.endswith("/half: partial: interrupted")


def test_a_database_without_runs_is_named(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trend", "--from", database.uri()]) == 1
    error, _hint = capsys.readouterr().err.splitlines()
    assert error.endswith("[schema-empty]") and "schema tailscope" in error
