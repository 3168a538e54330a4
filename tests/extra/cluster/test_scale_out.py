"""Pairs on workers: the same files as of one process, whatever happens to the workers."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import campaigns
import captures
import numpy as np
import psutil
import pyarrow
import pytest
from command import COMMAND, run
from errors import code_of

from tailscope.engine.slices import split
from tailscope.experiment.run.pair import Figures, PairPlan, analyze_pair
from tailscope.extra.cluster import pairs
from tailscope.extra.cluster.shared import shared_folders
from tailscope.extra.cluster.tasks import Task, run_tasks
from tailscope.report.of_run import page_of
from tailscope.store.atomic import SUFFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


PAIRS = 5
PACKETS = 2_000
MIB = 1 << 20
LIMIT_S = 60

Files = dict[str, bytes | dict[str, Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Simulated pairs."""
    path = tmp_path_factory.mktemp("pairs")
    for seed in range(PAIRS):
        options = ("--seed", seed, "--packets", PACKETS, "--loss", "0.001")
        assert run("simulate", path / f"p{seed}", *options).returncode == 0
        (path / f"p{seed}" / "truth.json").unlink()
    return path


@pytest.fixture(scope="module")
def expected(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Files, Any]:
    """What one process prints, writes and returns."""
    path = tmp_path_factory.mktemp("expected")
    done = run("analyze", folder, *outputs(path))
    assert done.returncode == 0, done.stderr
    return done.stdout, files(path), json.loads((path / "all.json").read_text())


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Temporary folders of the test's own, in which nothing is left behind."""
    places = {name: tmp_path / name for name in ("XDG_RUNTIME_DIR", "TMPDIR")}
    for place in places.values():
        place.mkdir(mode=0o700)
    yield {**os.environ, **{name: str(place) for name, place in places.items()}}
    assert [path for place in places.values() for path in place.iterdir()] == []


def outputs(path: Path) -> tuple[object, ...]:
    return "--out", path / "runs", "--csv", path / "csv", "--json", path / "all.json"


def files(path: Path) -> Files:
    """All files of results; `run.json` without the time when it was written, and its checksum."""
    found: Files = {}
    for file in sorted((*path.glob("runs/**/*"), *path.glob("csv/**/*"))):
        if file.name == "run.json":
            mark = json.loads(file.read_text())
            assert mark.pop("written_unix_ns") > 0
            assert mark.pop("lines_sha256")
            found[str(file.relative_to(path))] = mark
        elif file.is_file():
            found[str(file.relative_to(path))] = file.read_bytes()
    return found


def start(
    folder: Path, out: Path, environment: dict[str, str], *options: object
) -> subprocess.Popen[bytes]:
    """Start an analysis by two processes in a process group of its own."""
    command = ["analyze", folder, "--scheduler", "local:2", *outputs(out), *options]
    return subprocess.Popen(
        [COMMAND, *map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        process_group=0,
    )


def until(found: Callable[[], Any], process: subprocess.Popen[bytes]) -> Any:
    """What is found at last, while a process lives."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        if result := found():
            return result
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    return pytest.fail("it never came")


def workers_of(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    children = psutil.Process(process.pid).children(recursive=True)
    return [child for child in children if "spawn_main" in " ".join(child.cmdline())]


def at_work(out: Path) -> Callable[[], bool]:
    """Whether a worker has begun to write a run."""

    def has_begun() -> bool:
        # It may be done, and gone, while one looks.
        with suppress(FileNotFoundError):
            return any((out / "runs").glob(f".*{SUFFIX}/*/*/run.json"))
        return False

    return has_begun


def finish(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    output, error = process.communicate(timeout=LIMIT_S)
    return process.returncode, output.decode(), error.decode()


def gone(processes: list[psutil.Process]) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=10)
    return not alive


def test_two_processes_write_what_one_writes(
    folder: Path, tmp_path: Path, environment: dict[str, str], expected: tuple[str, Files, Any]
) -> None:
    """Byte for byte, in every file; the lines and the list in the same order."""
    status, output, error = finish(start(folder, tmp_path / "out", environment))
    assert (status, error) == (0, "")
    assert output == expected[0]
    assert files(tmp_path / "out") == expected[1]
    assert json.loads((tmp_path / "out" / "all.json").read_text()) == expected[2]


@pytest.mark.long
def test_a_killed_worker_costs_nothing_but_time(
    folder: Path, tmp_path: Path, environment: dict[str, str], expected: tuple[str, Files, Any]
) -> None:
    process = start(folder, tmp_path / "out", environment)
    until(at_work(tmp_path / "out"), process)
    workers_of(process)[0].kill()
    status, output, error = finish(process)
    assert (status, error) == (0, "")
    assert output == expected[0]
    assert files(tmp_path / "out") == expected[1]


@pytest.mark.long
def test_an_interrupt_leaves_nothing(
    folder: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    """As the terminal sends it: to all processes of the group."""
    process = start(folder, tmp_path / "out", environment)
    until(at_work(tmp_path / "out"), process)
    processes = workers_of(process)
    assert len(processes) == 2
    os.killpg(process.pid, signal.SIGINT)
    status, _, error = finish(process)
    assert (status, error.strip()) == (130, "error: interrupted")
    assert gone(processes)
    for mark in (tmp_path / "out").rglob("run.json"):
        assert json.loads(mark.read_text())["complete"]
    assert not list((tmp_path / "out").rglob(".*"))


def test_workers_die_with_the_command(folder: Path, tmp_path: Path) -> None:
    """Even where it cannot end them; its folder is then for `tailscope runs clean`."""
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "TMPDIR": str(tmp_path)}
    process = start(folder, tmp_path / "out", environment)
    until(at_work(tmp_path / "out"), process)
    processes = workers_of(process)
    process.kill()
    process.communicate()
    assert gone(processes)
    (left,) = tmp_path.glob("tailscope-*")
    assert left.stat().st_mode & 0o777 == 0o700
    assert run("runs", "clean", env=environment).returncode == 0
    assert not left.exists()


@pytest.mark.long
def test_pairs_that_cannot_be_analysed_are_reported_and_skipped(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """In the words of one process: a damaged one, and one that is not whole. And one that ends its
    workers: four million packets in flight, where each process may have 300 MiB.
    """
    given, out = tmp_path / "in", tmp_path / "out"
    for name in ("p0", "p2"):
        captures.pair(given / name, [1_000, 2_000])
    captures.pair(given / "p1", [1_000])[1].write_bytes(b"no capture")
    captures.pair(given / "p3", [1_000])[1].unlink()
    alone = run("analyze", given, *outputs(tmp_path / "alone"))
    assert (alone.returncode, len(alone.stderr.splitlines())) == (1, 2)
    write_many_in_flight(given, 4_000_000)
    process = start(given, out, environment)
    limit = (600 * MIB, 600 * MIB)
    resource.prlimit(process.pid, resource.RLIMIT_RSS, limit)
    status, output, error = finish(process)
    assert (status, output) == (1, alone.stdout)
    # Said where the pair has just ended the last process, and the next one is not there yet.
    error = error.replace("the scheduler has no workers: waiting for the first\n", "")
    assert error.startswith(alone.stderr + "error: x-pre-1.pcap.zst: ")
    assert "[worker-lost]" in error
    assert files(out) == files(tmp_path / "alone")
    everything = json.loads((out / "all.json").read_text())
    assert everything[:-1] == json.loads((tmp_path / "alone" / "all.json").read_text())
    assert sorted(everything[-1]) == ["error", "pair"]


def write_many_in_flight(folder: Path, packets: int) -> None:
    """A pair whose packets are sent within a second, and all are lost but one."""
    fields = [("s", "<u4"), ("ns", "<u4"), ("length", "<u4", 2), ("frame", "u1", 60)]
    records = np.zeros(packets, np.dtype(fields))
    records["s"], records["ns"] = 1_600_000_000, np.arange(packets) * 100
    records["length"] = 60
    records["frame"] = np.frombuffer(captures.udp(0), np.uint8)
    numbers = np.arange(packets, dtype="<u4").view("u1").reshape(packets, 4)
    records["frame"][:, 42:46] = numbers
    post = captures.stream([1_600_000_001 * captures.SECOND])
    contents = {"pre": captures.pcap([]) + records.tobytes(), "post": captures.pcap(post)}
    for side, content in contents.items():
        path = str(folder / f"x-{side}-1.pcap.zst")
        with pyarrow.CompressedOutputStream(path, "zstd") as file:
            file.write(content)


def test_a_large_pair_is_divided_and_its_files_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large is what is more than the share of a process; here it need not be large as well.

    Slices do not tell flows apart, so a pair of which a run directory is written stays whole.
    """
    options = ("--seed", 1, "--packets", 20_000, "--rate", "10k", "--loss", "0.001")
    assert run("simulate", tmp_path / "in", *options).returncode == 0
    (pre,), (post,) = ((tmp_path / "in").glob(f"*-{side}-*") for side in ("pre", "post"))
    plan = PairPlan(
        pre=str(pre), post=str(post), match_on="auto", trim_ns=100_000_000, window_ns=10_000_000,
        bucket_ns=100, worst=50, csv_folder=tmp_path / "alone/csv", out=None,
    )  # fmt: skip
    alone = analyze_pair(plan, page_of)
    monkeypatch.setattr(pairs, "SLICE_BYTES", pre.stat().st_size // 2)
    given: list[Task] = []

    def noted(client: Any, tasks: list[Task], **options: Any) -> Any:
        given.extend(tasks)
        return run_tasks(client, tasks, **options)

    monkeypatch.setattr(pairs, "run_tasks", noted)
    divided = replace(plan, csv_folder=tmp_path / "out/csv")
    whole = replace(divided, csv_folder=None, out=tmp_path / "runs/x")
    folders = [tmp_path / "out/csv", tmp_path / "runs"]
    found, found_whole = pairs.analyze_pairs("local:4", [divided, whole], folders)
    assert isinstance(found, Figures)
    assert isinstance(found_whole, Figures)
    assert found.record() == found_whole.record() == alone.record()
    assert files(tmp_path / "out") == files(tmp_path / "alone")
    assert not list((tmp_path / "out").rglob(".*"))
    task, whole_task = given
    assert (len(task.needs), len(whole_task.needs)) == (2, 0)
    assert len(split(pre, post, at_most=2, trim=plan.trim_ns, window=plan.window_ns).slices) == 2


def test_matches_of_slices_wait_where_the_command_cleans(tmp_path: Path) -> None:
    """With --csv and no --out they lie in its folder, and not beside it."""
    plan = PairPlan(
        pre="pre", post="post", match_on="auto", trim_ns=0, window_ns=1, bucket_ns=100, worst=1,
        csv_folder=tmp_path / "csv", out=None,
    )  # fmt: skip
    with pytest.raises(KeyboardInterrupt), shared_folders(tmp_path / "csv") as shared:
        work = pairs._Work(plan, (1, 1), shared, 0)
        work.rows.mkdir(parents=True)
        (work.rows / "0.parquet").touch()
        assert [path.name for path in tmp_path.iterdir()] == ["csv"]
        raise KeyboardInterrupt
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith(".")]


@pytest.mark.long
def test_workers_draw_what_one_process_draws(tmp_path: Path) -> None:
    path = tmp_path / "campaign"
    cells = campaigns.write(path, {"rate": ["10k", "20k"], "dut": ["l2fwd", "l3fwd"]})
    assert run("report", path).returncode == 0
    alone = (path / "report.html").read_bytes()
    damaged = path / cells[1]["runs"][0]
    (damaged / "summary.json").write_text("{}")
    for page in path.glob("*/report.html"):
        page.unlink()
    done = run("report", path, "--pages", "--scheduler", "local:2")
    assert done.returncode == 0, done.stderr
    assert f"{damaged.name}: left out: {damaged.name}/summary.json" in done.stderr
    assert (path / "report.html").read_bytes() != alone
    for cell in cells:
        drawn = path / cell["runs"][0] / "report.html"
        assert drawn.is_file() == (drawn.parent != damaged)
    refused = run("report", path / cells[0]["runs"][0], "--scheduler", "local")
    assert (refused.returncode, code_of(refused)) == (1, "requires-campaign")
    gone = run("report", path, "--scheduler", "tcp://127.0.0.1:9")
    assert (gone.returncode, code_of(gone)) == (1, "no-scheduler")
