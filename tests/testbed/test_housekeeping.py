"""During a measurement, nothing of ours but the polling programs may run on their CPUs."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from measurements import started

from tailscope.testbed.cores import confined
from tailscope.testbed.tasks import comm_of, threads_of

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

    from measurements import Place

CPUS = sorted(os.sched_getaffinity(0))
needs_choice = pytest.mark.skipif(len(CPUS) < 2, reason="nothing is left but the CPU that polls")


@pytest.fixture
def waiting() -> Iterator[threading.Thread]:
    """Start a thread before the block, as libraries do."""
    end = threading.Event()
    thread = threading.Thread(target=end.wait, daemon=True)
    thread.start()
    yield thread
    end.set()
    thread.join()


@needs_choice
def test_threads_that_were_there_move_too_and_come_back(waiting: threading.Thread) -> None:
    assert waiting.native_id is not None
    before = {tid: os.sched_getaffinity(tid) for tid in threads_of(os.getpid())}
    new_affinities: list[set[int]] = []
    with confined(CPUS[:1]):
        assert os.sched_getaffinity(waiting.native_id) == {CPUS[0]}
        assert all(os.sched_getaffinity(tid) == {CPUS[0]} for tid in threads_of(os.getpid()))
        end = threading.Event()
        new = threading.Thread(target=end.wait, daemon=True)
        new.start()
        assert new.native_id is not None
        new_affinities.append(os.sched_getaffinity(new.native_id))
    assert os.sched_getaffinity(new.native_id) == set(CPUS)
    end.set()
    new.join()
    assert new_affinities == [{CPUS[0]}]
    now = {tid: os.sched_getaffinity(tid) for tid in threads_of(os.getpid()) if tid in before}
    assert now == {tid: before[tid] for tid in now}


@needs_choice
@pytest.mark.usefixtures("dataplane")
def test_a_run_keeps_everything_else_off_the_cpus_that_poll(place: Place, tmp_path: Path) -> None:
    polled = CPUS[-1]
    options = ["--dut", "loop", "--wire", "memif", "--rate", "5k", "--cpus", str(polled)]
    recording = ["--counter-interval", "100ms", "--power", "command:echo 1"]
    recording += ["--power-phase", "100ms", "--warm-up", "100ms", "--duration", "2s"]
    out = tmp_path / "out"
    process = started(place, "run", *options, *recording, "--out", str(out), processes=1)
    cpus_by_thread = {
        (tid, comm_of(tid)): cpus
        for pid in family(process)
        for tid in threads_of(pid)
        if (cpus := allowed(tid))
    }
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert [name for (_, name), cpus in cpus_by_thread.items() if polled in cpus] == [
        "tailscope-dp"
    ], cpus_by_thread
    # These are the supervisor, with threads that read counters and power, and the generator.
    assert len(cpus_by_thread) > 4, cpus_by_thread
    sent_ns = pq.read_table(out / "latency.parquet")["pre_ns"].to_numpy()
    ours = [
        row
        for row in pq.read_table(out / "noise.parquet").to_pylist()
        if row["cause"].startswith("tailscope's ") and row["cpu"] == polled
        # Before packets are sent, the generator prepares itself there.
        if sent_ns[0] <= row["start_ns"] <= sent_ns[-1]
    ]
    assert not ours


def allowed(tid: int) -> set[int]:
    """Return the CPUs of a thread; none if it has ended."""
    try:
        return os.sched_getaffinity(tid)
    except OSError:
        return set()


def family(process: subprocess.Popen[str]) -> list[int]:
    """Return a process and its descendants."""
    pids = [process.pid]
    for pid in pids:
        for path in Path(f"/proc/{pid}/task").glob("*/children"):
            try:
                pids += map(int, path.read_text().split())
            except OSError:
                continue
    return pids
