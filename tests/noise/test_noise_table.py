"""`noise.parquet`, written and read back; threads by the marks that they carry."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailscope.engine.analysis import Clock
from tailscope.exceptions import RunCorruptError
from tailscope.noise.attribution import blocked_by
from tailscope.noise.recorder import RecordedNoise, Thread, marked_threads, own_threads
from tailscope.noise.table import DISTURBANCES, columns, read_timelines, side_noise
from tailscope.noise.tracer import TRACER_THREAD
from tailscope.store.parquet import write_parquet
from tailscope.testbed.places import MARK

if TYPE_CHECKING:
    from pathlib import Path

CLOCK = Clock(1_000_000_000, 0, 0)


def recording(folder: Path, **arrays: list[int]) -> Path:
    for name, values in arrays.items():
        np.save(folder / f"{name}.npy", np.array(values, np.uint64))
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return recording(
        tmp_path,
        stall_start_tsc=[100, 150, 900],
        stall_duration_tsc=[30, 20, 50],
        stall_lcore=[3, 4, 3],
        disturbed_kind=[4, 0],
        disturbed_start_tsc=[105, 905],
        disturbed_duration_tsc=[10, 5],
    )


def test_a_table_comes_back_as_it_was(folder: Path, tmp_path: Path) -> None:
    side = side_noise("dut", (3, 4), CLOCK, folder, None)
    table = columns([side])
    path = tmp_path / "noise.parquet"
    write_parquet(path, table)
    found = read_timelines(path.read_bytes(), "noise.parquet")
    assert list(found) == ["dut"]
    for before, after in zip(side.timelines, found["dut"], strict=True):
        assert (before.cpu, before.start_ns.tolist()) == (after.cpu, after.start_ns.tolist())
        assert before.end_ns.tolist() == after.end_ns.tolist()
        assert [after.causes[code] for code in after.cause[after.event]] == ["stall"] * len(
            after.event
        )
    rows = pq.read_table(path).to_pylist()
    truth = [(row["cause"], row["start_ns"]) for row in rows if row["kind"] == "injected"]
    assert truth == [(DISTURBANCES[4], 105), (DISTURBANCES[0], 905)]
    assert [row["start_ns"] for row in rows] == sorted(row["start_ns"] for row in rows)
    assert blocked_by(found["dut"], []).start_ns.tolist() == [100, 150, 900]


def test_a_cpu_counts_once(folder: Path) -> None:
    side = side_noise("dut", (3, 3), CLOCK, folder, None)
    assert [timeline.start_ns.tolist() for timeline in side.timelines] == [[100, 900]]


def test_only_a_window_is_looked_at(folder: Path) -> None:
    side = side_noise("dut", (3,), CLOCK, folder, None, within_ns=(110, 1000))
    assert side.timelines[0].start_ns.tolist() == [900]
    assert side.stalls_ns()[0].tolist() == [150, 900]


def test_a_table_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "noise.parquet"
    pq.write_table(pa.table({"source": ["dut"]}), path)
    with pytest.raises(RunCorruptError) as error:
        read_timelines(path.read_bytes(), "noise.parquet")
    assert str(error.value).startswith("noise.parquet: cpu: ")


def noise(threads: list[Thread]) -> RecordedNoise:
    nothing: Any = []
    return RecordedNoise(None, None, nothing, {}, (), threads, {1: "supervisor"})


@pytest.mark.usefixtures("alone")
def test_a_device_has_the_threads_of_its_mark() -> None:
    threads = [
        Thread(10, 10, "x", 10, "tailscope-dp"),
        Thread(20, 3, "x-platform", 20, "l2fwd"),
        Thread(21, 4, "x-platform", 20, "dpdk-worker1"),
    ]
    found = noise(threads)
    assert found.threads_of("x") == [10]
    assert found.threads_of("x-platform") == [20, 21]
    assert found.threads_of("x-platform", [4]) == [21]
    assert found.threads_of("x-platform", [99]) == [20, 21]


def test_a_thread_that_may_run_elsewhere_is_no_worker() -> None:
    both, device = frozenset({0, 1}), frozenset({1})
    found = noise(
        [
            Thread(30, 30, "x", 30, "Suricata-Main", both),
            Thread(31, 31, "x", 30, "W#01", device),
            Thread(32, 32, "x", 30, "FM#01", both),
        ]
    )
    assert found.threads_of("x", cpus=(1,)) == [31]
    assert found.threads_of("x", cpus=(0, 1)) == [30, 31, 32]
    assert found.threads_of("x", [32], (1,)) == [32]


def test_threads_of_tailscope_are_known_by_what_they_are_for() -> None:
    threads = [
        Thread(10, 10, "x", 10, "tailscope-dp"),
        Thread(11, 11, "x", 10, "dpdk-worker1"),
        Thread(20, 3, "x-platform", 20, "tailscope-dp"),
        Thread(21, 4, "x-platform", 20, "dpdk-worker1"),
        Thread(22, 5, "x-platform", 20, "disturb"),
        Thread(30, 30, "x-platform", 30, "sh"),
        Thread(40, 40, "x-2-platform", 40, "tailscope-dp"),
    ]
    own = noise(threads).own_threads("platform", [21])
    # A container, another device and what disturbs on purpose are no work of tailscope's.
    assert own == {1: "supervisor", 10: "generator", 11: "generator", 20: "device monitor"}
    assert 20 not in noise(threads).own_threads("platform", [20, 21])


def test_threads_of_this_process_have_their_purposes() -> None:
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name=TRACER_THREAD)
    thread.start()
    try:
        found = own_threads()
    finally:
        end.set()
        thread.join()
    assert thread.native_id is not None
    assert found[thread.native_id] == "tracer"
    assert found[threading.get_native_id()] == "supervisor"


@pytest.mark.usefixtures("alone")
def test_threads_are_found_by_marks_of_parts_and_by_descent() -> None:
    name = "tailscope-0-0123abcd"
    inner = "import os, time; os.environ.clear(); time.sleep(60)"
    script = (
        "import os, subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {inner!r}], env={{}})\n"
        "print(child.pid, flush=True)\n"
        "child.wait()\n"
    )
    environment = {**os.environ, MARK: f"{name}-platform"}
    process = subprocess.Popen(
        [sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    child = int(process.stdout.readline())
    try:
        found = {thread.tid: thread.mark for thread in marked_threads(name)}
        assert found == {process.pid: f"{name}-platform", child: f"{name}-platform"}
        assert not marked_threads("tailscope-0-fedcba98")
    finally:
        os.kill(child, 9)
        process.wait()
        process.stdout.close()
