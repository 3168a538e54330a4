"""A scheduler of the user's: found, refused, lost; tasks in order, whatever becomes of them."""

from __future__ import annotations

import json
import math
import os
import shutil
import socket
import ssl
import subprocess
import sys
import time
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import captures
import numpy as np
import psutil
import pytest
import synthetic
from command import run
from distributed.security import Security
from errors import code_of, raises

import tailscope
from tailscope.exceptions import (
    ClusterError,
    NotSharedError,
    RunExistsError,
    UsageError,
    WorkerLostError,
)
from tailscope.experiment.run.pair import PairPlan, analyze_pair
from tailscope.extra.cluster.cluster import differing_versions, open_cluster, share_of
from tailscope.extra.cluster.shared import Shared, aside, shared_folders
from tailscope.extra.cluster.tasks import Task, map_tasks, run_tasks, stop_if_unwanted
from tailscope.report.of_run import page_of
from tailscope.store.atomic import SUFFIX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tailscope.cli.progress import TasksDone

DASK = Path(sys.executable).with_name("dask")
LIMIT_S = 60


class Scheduler:
    """`dask scheduler` and `dask worker` as a user starts them, in a folder."""

    def __init__(self, folder: Path, protocol: str, environment: dict[str, str]) -> None:
        self._folder, self._environment = folder, environment
        self._processes: list[subprocess.Popen[bytes]] = []
        file = folder / "scheduler.json"
        self.process = self._start(
            "scheduler", "--host", "127.0.0.1", "--port", 0, "--scheduler-file", file,
            "--dashboard-address", "127.0.0.1:0", "--protocol", protocol,
        )  # fmt: skip
        self.address = ""
        while not self.address:
            time.sleep(0.05)
            assert self.process.poll() is None
            if file.exists() and (text := file.read_text()).endswith("}"):
                self.address = json.loads(text)["address"]

    def add_worker(self, **environment: str) -> subprocess.Popen[bytes]:
        options = ("--nthreads", 2, "--no-dashboard", "--host", "127.0.0.1")
        return self._start("worker", self.address, *options, **environment)

    def _start(self, *arguments: object, **environment: str) -> subprocess.Popen[bytes]:
        log = self._folder / f"{len(self._processes)}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [DASK, *map(str, arguments)],
                stdout=file,
                stderr=file,
                cwd=self._folder,
                env={**os.environ, **self._environment, **environment},
            )
        self._processes.append(process)
        return process

    def stop(self) -> None:
        alive = [each for each in self._processes if each.poll() is None]
        for process in reversed(alive):
            children = psutil.Process(process.pid).children(recursive=True)
            for each in (*children, process):
                each.kill()
            process.wait()


@contextmanager
def scheduler(folder: Path, protocol: str = "tcp", **environment: str) -> Iterator[Scheduler]:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    started = Scheduler(folder, protocol, environment)
    try:
        yield started
    finally:
        started.stop()


@pytest.fixture
def plan(tmp_path: Path) -> PairPlan:
    pre, post = captures.pair(tmp_path / "in", list(range(1_000, 2_000)))
    return PairPlan(
        pre=str(pre), post=str(post), match_on="auto", trim_ns=0, window_ns=5 * captures.SECOND,
        bucket_ns=100, worst=10, csv_folder=tmp_path / "csv", out=tmp_path / "runs" / "x",
    )  # fmt: skip


def work_on(folder: Path) -> None:
    """A task that does not end by itself."""
    look = stop_if_unwanted()
    (folder / "begun").touch()
    try:
        while True:
            look()
            time.sleep(0.01)
    finally:
        (folder / "stopped").touch()


def until_exists(path: Path) -> None:
    end = time.monotonic() + LIMIT_S
    while not path.exists():
        assert time.monotonic() < end, path
        time.sleep(0.05)


def sharing(plan: PairPlan) -> AbstractContextManager[Shared]:
    """What a command shares for a pair."""
    assert plan.out is not None
    assert plan.csv_folder is not None
    return shared_folders(plan.out.parent, plan.csv_folder)


def left_aside(folder: Path) -> list[Path]:
    return list(folder.rglob(".*"))


def test_the_users_own_scheduler_is_used(tmp_path: Path) -> None:
    """Names are given as they are seen from here; the worker, which comes late, works elsewhere."""
    for name in ("a", "b"):
        captures.pair(tmp_path / "in" / name, list(range(1_000, 2_000)))
    expected = run("analyze", "in", "--out", "alone", cwd=tmp_path)
    importable = os.pathsep.join(map(os.path.abspath, sys.path))
    with scheduler(tmp_path / "dask", PYTHONPATH=importable) as dask:
        command = ("analyze", "in", "--out", "out", "--scheduler", dask.address)
        dask.add_worker()
        done = run(*command, cwd=tmp_path)
        again = run(*command, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, expected.stdout), done.stderr
        for name in ("summary.json", "latency.parquet", "report.html"):
            pair = [tmp_path / out / "a" / "x-pre-1" / name for out in ("alone", "out")]
            assert pair[0].read_bytes() == pair[1].read_bytes()
        assert (again.returncode, again.stdout) == (1, "")
        assert again.stderr.count("already holds a complete run") == 2
        assert not left_aside(tmp_path / "out")
        with open_cluster(dask.address) as client:

            def interrupt(_done: TasksDone) -> None:
                if (tmp_path / "begun").exists():
                    raise KeyboardInterrupt

            with pytest.raises(KeyboardInterrupt):
                list(map_tasks(client, work_on, [tmp_path], progress=interrupt))
            until_exists(tmp_path / "stopped")
            outcomes = map_tasks(client, time.sleep, [0, LIMIT_S])
            assert next(outcomes).error is None
            dask.process.kill()
            with raises(ClusterError, "scheduler-lost"):
                next(outcomes)


@pytest.mark.long
def test_the_page_of_a_campaign_stays_where_workers_do_not_see_its_runs(tmp_path: Path) -> None:
    """The worker works elsewhere: for it the same path leads to another folder."""
    synthetic.write_run(tmp_path / "campaign" / "a", np.arange(1_000, 2_000))
    cells = [{"values": {"rate": "10k"}, "runs": ["a", "gone"]}]
    synthetic.write_campaign(tmp_path / "campaign", cells)
    page = tmp_path / "campaign" / "report.html"
    earlier = '<meta name="generator" content="tailscope">an earlier page'
    page.write_text(earlier)
    importable = os.pathsep.join(map(os.path.abspath, sys.path))
    with scheduler(tmp_path / "dask", PYTHONPATH=importable) as dask:
        dask.add_worker()
        command = ("report", "/proc/self/cwd/campaign", "--scheduler", dask.address)
        unseen = run(*command, cwd=tmp_path)
        assert (unseen.returncode, page.read_text()) == (1, earlier), unseen.stderr
        assert "campaign/a/run.json: " in unseen.stderr and code_of(unseen) == "file-differs"
        shutil.copytree(tmp_path / "campaign", tmp_path / "dask" / "campaign")
        elsewhere = run(*command, "--pages", cwd=tmp_path)
        assert (elsewhere.returncode, page.read_text()) == (1, earlier), elsewhere.stderr
        assert code_of(elsewhere) == "not-shared"
        assert not left_aside(tmp_path / "campaign")
        copied = run(*command, cwd=tmp_path)
        assert copied.returncode == 0, copied.stderr
        assert "gone: " in copied.stderr
        assert page.read_text() != earlier


@pytest.mark.long
def test_certificates_are_those_of_dasks_configuration(tmp_path: Path) -> None:
    """A command without them is told; docs/extra/cluster/scale.md has the names."""
    captures.pair(tmp_path / "in", list(range(1_000, 2_000)))
    (tmp_path / "dask").mkdir(mode=0o700)
    made = Security.temporary()
    tls = {"DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "true"}
    names = {"CA_FILE": made.tls_ca_file}
    for role in ("SCHEDULER", "WORKER", "CLIENT"):
        names |= {f"{role}__CERT": made.tls_client_cert, f"{role}__KEY": made.tls_client_key}
    for name, content in names.items():
        path = tmp_path / "dask" / name
        path.touch(mode=0o600)
        path.write_text(content)
        tls[f"DASK_DISTRIBUTED__COMM__TLS__{name}"] = str(path)
    with scheduler(tmp_path / "dask", "tls", **tls) as dask:
        assert dask.address.startswith("tls://")
        dask.add_worker()
        command = ("analyze", tmp_path / "in", "--scheduler", dask.address)
        done = run(*command, env={**os.environ, **tls})
        assert (done.returncode, done.stdout[:21]) == (0, "x-pre-1.pcap: Median "), done
        without = run(*command)
    assert without.returncode == 1
    assert "ssl_context" in without.stderr.splitlines()[0] and code_of(without) == "no-scheduler"


def test_a_private_scheduler_is_for_its_own_command() -> None:
    """It is on loopback, and ends the connection of whoever shows no certificate of its own."""
    stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE
    with open_cluster("local:1") as client:
        address = client.scheduler.address
        ours = psutil.Process()
        ports = {
            port.laddr
            for process in (ours, *ours.children(recursive=True))
            for port in process.net_connections("inet")
            if port.status == psutil.CONN_LISTEN
        }
        assert {port.ip for port in ports} == {"127.0.0.1"}
        assert address in {f"tls://{port.ip}:{port.port}" for port in ports}
        host, _, port = address.removeprefix("tls://").rpartition(":")
        plain = socket.create_connection((host, int(port)), timeout=LIMIT_S)
        with pytest.raises(ssl.SSLError), stranger.wrap_socket(plain) as connected:
            connected.recv(1)
        assert client.submit(math.sqrt, 4).result() == 2


def test_a_worker_of_another_version_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other" / "tailscope-9.9.9.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: tailscope\nVersion: 9.9.9\n")
    captures.pair(tmp_path / "in", [1_000])
    with scheduler(tmp_path / "dask") as dask:
        dask.add_worker(PYTHONPATH=str(other.parent))
        with open_cluster(dask.address) as client:
            client.wait_for_workers(1, timeout=LIMIT_S)
        done = run("analyze", tmp_path / "in", "--scheduler", dask.address)
    assert done.returncode == 1
    assert code_of(done) == "versions-differ"
    assert f"{tailscope.__version__}, got 9.9.9" in done.stderr
    assert " tcp://127.0.0.1:" in done.stderr


def test_versions_are_compared() -> None:
    ours = {"tailscope": "1", "dask": "2", "distributed": "2"}
    assert differing_versions(ours, {**ours, "numpy": "3"}) == ""
    assert differing_versions(ours, {"dask": "3"}) == (
        "tailscope: expected 1, got none, dask: expected 2, got 3,"
        " distributed: expected 2, got none"
    )


@pytest.mark.parametrize("text", ["", "local:0", "local:x", "tcp://nowhere", "ftp://a:1", "a:1"])
def test_what_is_no_scheduler_is_refused(text: str) -> None:
    with raises(UsageError, "scheduler-address"):
        open_cluster(text).__enter__()


def test_a_scheduler_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    captures.pair(tmp_path, [1_000])
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = server.getsockname()[1]
    where = ("--scheduler", f"tcp://127.0.0.1:{free}", "--out", tmp_path / "out")
    done = run("analyze", tmp_path, *where, timeout=LIMIT_S)
    assert (done.returncode, done.stdout) == (1, "")
    assert not (tmp_path / "out").exists()
    error, hint = done.stderr.splitlines()
    assert code_of(done) == "no-scheduler" and f"tcp://127.0.0.1:{free}" in error
    assert "dask scheduler" in hint


def test_workers_have_the_allocator_of_this_process() -> None:
    expected = os.environ.get("MALLOC_TRIM_THRESHOLD_")
    with open_cluster("local:1") as client:
        assert list(client.run(os.environ.get, "MALLOC_TRIM_THRESHOLD_").values()) == [expected]


def test_workers_have_cpus_of_their_own() -> None:
    """Tasks too, and those of a worker that took the place of another."""
    cpus = os.sched_getaffinity(0)
    with open_cluster("local:2") as client:
        expected = [share_of(cpus, worker, 2) for worker in range(2)]
        for _ in range(2):
            began = list(client.run(os.sched_getaffinity, 0).values())
            found = [
                client.submit(os.sched_getaffinity, 0, workers=[each], pure=False).result()
                for each in client.nthreads()
            ]
            assert sorted(began, key=sorted) == sorted(found, key=sorted) == expected
            client.restart()
    assert os.sched_getaffinity(0) == cpus


def test_two_captures_are_no_folder(tmp_path: Path) -> None:
    done = run("analyze", *captures.pair(tmp_path, [1_000]), "--scheduler", "local")
    assert done.returncode == 1
    assert code_of(done) == "scheduler-without-pairs"


def test_tasks_have_outcomes_in_their_order() -> None:
    """A result, an error, a needed result; and one that ends its workers, found out alone."""
    seen: list[TasksDone] = []
    with open_cluster("local:2") as client:
        found = list(map_tasks(client, math.sqrt, [4, -1, 9], progress=seen.append))
        assert [outcome.result for outcome in found] == [2, None, 3]
        assert [type(outcome.error) for outcome in found] == [type(None), ValueError, type(None)]
        four = Task(math.sqrt, 16)
        tasks = [
            Task(time.sleep, 1),
            Task(os._exit, 1),
            Task(math.pow, 2.0, needs=(four,)),
            Task(math.atan2, 0.0, needs=(Task(os.strerror, "x"),)),
            Task(time.sleep, 2),
        ]
        found = list(run_tasks(client, tasks, progress=seen.append))
    assert [outcome.result for outcome in found] == [None, None, 16.0, None, None]
    errors = [type(outcome.error) for outcome in found]
    assert errors == [type(None), WorkerLostError, type(None), TypeError, type(None)]
    assert seen[-1].of_tasks == 5
    assert 0 < seen[-1].tasks <= 5
    assert 0 < seen[-1].size <= seen[-1].of_size == 7
    assert any(done.workers for done in seen)


def test_two_that_write_the_same_run_do_not_meet(plan: PairPlan) -> None:
    """One of them was taken for lost, and still is at work when the other one is ready."""
    assert plan.out is not None
    with sharing(plan) as shared, aside(plan, shared) as first:
        analyze_pair(first, page_of)
        with aside(plan, shared) as second:
            analyze_pair(second, page_of)
            assert not plan.out.exists()
        before = (plan.out / "run.json").read_bytes()
    assert (plan.out / "run.json").read_bytes() == before
    assert not left_aside(plan.out.parents[1])
    csv_folder = plan.csv_folder
    assert csv_folder is not None
    assert len(list(csv_folder.iterdir())) == 10


def test_another_run_is_never_replaced(plan: PairPlan, tmp_path: Path) -> None:
    assert plan.out is not None
    analyze_pair(plan, page_of)
    before = (plan.out / "run.json").read_bytes()
    other = captures.pair(tmp_path / "other", [3_000, 4_000])
    changed = replace(plan, pre=str(other[0]), post=str(other[1]))
    with sharing(plan) as shared, pytest.raises(RunExistsError), aside(changed, shared) as second:
        analyze_pair(second, page_of)
    assert (plan.out / "run.json").read_bytes() == before
    assert not left_aside(plan.out.parents[1])


def test_an_unfinished_run_is_replaced(plan: PairPlan) -> None:
    assert plan.out is not None
    plan.out.mkdir(parents=True)
    (plan.out / "run.json").write_text('{"format": 3, "complete": false}')
    (plan.out / f".latency.parquet.0000{SUFFIX}").write_text("half")
    with sharing(plan) as shared, aside(plan, shared) as planned:
        analyze_pair(planned, page_of)
    assert json.loads((plan.out / "run.json").read_text())["complete"]
    assert not left_aside(plan.out.parents[1])


def test_what_a_killed_worker_left_is_removed_at_the_end(plan: PairPlan, tmp_path: Path) -> None:
    """And nothing of another command that writes there too."""
    runs = tmp_path / "runs"
    with shared_folders(runs) as other:
        with shared_folders(runs) as shared:
            shared.check()
            (shared.places[0] / "0123").mkdir()
            (shared.places[0] / "0123" / "summary.json").write_text("{}")
        other.check()
        with raises(NotSharedError, "not-shared"):
            shared.check()
    assert not left_aside(tmp_path)


def test_a_folder_that_a_worker_does_not_see_is_named(tmp_path: Path) -> None:
    """The worker has a folder of that name, but it is another one."""
    with raises(NotSharedError, "not-shared") as caught:
        Shared((tmp_path / "0123",)).check()
    assert "--out" in str(caught.value.hint)
