"""Captures that are small as files and hold very many packets: memory follows the files."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import captures
import numpy as np
import pyarrow
import pytest
from errors import code_of, unwrapped

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

MILLION = 1_000_000
AT_ONCE = MILLION // 10
RECORD = np.dtype([("s", "<u4"), ("ns", "<u4"), ("length", "<u4", 2), ("frame", "u1", 60)])

#: Runs a command; its output, its error and, in the last line, the most memory that it took.
MEASURED = """
import resource, subprocess, sys
status = subprocess.run([sys.executable, "-m", "tailscope", *sys.argv[1:]]).returncode
print(status, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def alike() -> NDArray[np.void]:
    """Packets that are the same, at the same time: they compress best of all."""
    records = np.zeros(AT_ONCE, RECORD)
    records["s"], records["length"] = 1_600_000_000, 60
    records["frame"] = np.frombuffer(captures.udp(0), np.uint8)
    return records


def write_bomb(path: Path, packets: int, later_ns: int) -> Path:
    records = alike()
    records["ns"] = later_ns
    with pyarrow.CompressedOutputStream(str(path), "zstd") as file:
        file.write(captures.pcap([]))
        for _ in range(packets // AT_ONCE):
            file.write(records.tobytes())
    return path


def analyzed(*arguments: object) -> tuple[int, subprocess.CompletedProcess[str]]:
    """The most memory in KiB, and the command that took it."""
    command = [sys.executable, "-c", MEASURED, "analyze", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    status, peak_kib = done.stdout.splitlines()[-1].split()
    done.returncode = int(status)
    return int(peak_kib), done


@pytest.mark.parametrize("many", ["pre", pytest.param("post", marks=pytest.mark.long)])
def test_memory_follows_the_size_of_a_file(tmp_path: Path, many: str) -> None:
    """Not the packets in it: three times as many of them take no more."""
    peaks = []
    for packets in (2 * MILLION, 6 * MILLION):
        of_side = {side: packets if many == side else AT_ONCE for side in ("pre", "post")}
        pair = [
            write_bomb(tmp_path / f"{side}-{packets}.pcap.zst", of_side[side], later_ns)
            for side, later_ns in (("pre", 0), ("post", 2_000))
        ]
        assert sum(path.stat().st_size for path in pair) < 200_000
        peak_kib, _ = analyzed(*pair)
        peaks.append(peak_kib)
    assert peaks[1] < 1.25 * peaks[0], peaks


def test_a_bomb_is_named(tmp_path: Path) -> None:
    """With its packet, the window, and what to do."""
    pre = write_bomb(tmp_path / "pre.pcap.zst", 2 * MILLION, 0)
    post = write_bomb(tmp_path / "post.pcap.zst", AT_ONCE, 2_000)
    size = pre.stat().st_size + post.stat().st_size
    _, done = analyzed(pre, post)
    assert (done.returncode, code_of(done)) == (1, "too-many-in-flight")
    room = (1 << 20) + 2 * size
    # That they share a key takes the place of two.
    error, hint = unwrapped(done.stderr).splitlines()
    assert error.startswith(f"error: {pre}: packet {room - 1}: ")
    assert {"5", str(room), str(size)} <= {*re.findall(r"\d+", error.removeprefix(f"error: {pre}"))}
    assert "--window" in hint and "decompress" in hint


@pytest.mark.long
def test_the_same_packets_may_be_decompressed_first(tmp_path: Path) -> None:
    """What is as large as it looks is analysed: all packets are in flight at once."""
    pair = []
    for side, later_ns in (("pre", 0), ("post", 2_000)):
        path = write_bomb(tmp_path / f"{side}.pcap.zst", 2 * MILLION, later_ns)
        pair.append(tmp_path / f"{side}.pcap")
        pair[-1].write_bytes(captures.unzstd(path))
        path.unlink()
    _, done = analyzed(*pair)
    assert (done.returncode, done.stderr) == (0, "")
