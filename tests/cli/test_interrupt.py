"""Ctrl-C: said in one line, nothing half-written is left."""

from __future__ import annotations

import signal
import subprocess
import time
from typing import TYPE_CHECKING

import captures
import pytest
from command import COMMAND

if TYPE_CHECKING:
    from pathlib import Path

BASE = 1_600_000_000 * captures.SECOND


def wait_for(path: Path, process: subprocess.Popen[bytes]) -> None:
    """Until the process has begun to write; a process that ends instead is a failure."""
    for _ in range(3_000):
        if path.exists():
            return
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    pytest.fail(f"{path} never came")


@pytest.mark.parametrize("packets", [0, 20_000], ids=["nothing yet", "in the middle"])
def test_an_interrupted_analysis_leaves_nothing(tmp_path: Path, packets: int) -> None:
    """The capture comes from a pipe that stays open, so the analysis cannot end by itself."""
    stream = captures.stream([BASE + 1_000 * at for at in range(max(packets, 100))])
    (tmp_path / "pre.pcap").write_bytes(captures.pcap(stream))
    out, csv, json = tmp_path / "run", tmp_path / "csv", tmp_path / "figures.json"
    command = ["analyze", tmp_path / "pre.pcap", "-", "--out", out, "--csv", csv, "--json", json]
    with subprocess.Popen(
        [COMMAND, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        behind = [packet._replace(ts=packet.ts + 500) for packet in stream[:packets]]
        process.stdin.write(captures.pcap(behind)[: None if packets else 3])
        process.stdin.flush()
        wait_for(out / "run.json", process)
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            pytest.fail("Ctrl-C was not heard while the pipe was silent")
        _, error = process.communicate()
    assert process.returncode == 130
    assert error.decode().strip() == "error: interrupted"
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / "pre.pcap"]
    assert not out.exists()


def test_an_interrupted_simulation_leaves_nothing(tmp_path: Path) -> None:
    """Captures are written under another name until they are whole."""
    out = tmp_path / "out"
    command = ["simulate", "--seed", "1", "--packets", "1000000000", "--rate", "1M", out]
    with subprocess.Popen(
        [COMMAND, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        wait_for(out, process)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert error.decode().strip() == "error: interrupted"
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
