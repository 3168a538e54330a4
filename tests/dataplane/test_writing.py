"""Progress of a program of the data plane while it writes its recording."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

import pytest
from processes import over_memif

from tailscope.store.records.messages import GeneratorProgress
from tailscope.testbed.messages import FORWARDERS

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("dataplane")

PIECE_BYTES, PAUSE_S = 1 << 16, 0.1
"""Speed of the slow disk, which is a pipe: a piece is read after each pause."""


def read_slowly(path: Path) -> None:
    with path.open("rb") as pipe:
        while pipe.read(PIECE_BYTES):
            time.sleep(PAUSE_S)


def test_a_slow_disk_is_told_of_while_it_is_written_to(tmp_path: Path) -> None:
    # Every packet has its time in one of these, however busy the machine is.
    for name in ("intended_tsc", "unsent_tsc"):
        os.mkfifo(tmp_path / f"{name}.npy")
        pipe = tmp_path / f"{name}.npy"
        threading.Thread(target=read_slowly, args=[pipe], daemon=True).start()
    traffic = ["--rate=1M", "--warm-up=0s", "--duration=300ms", f"--record={tmp_path}"]
    events = []
    with over_memif() as pair, pair.dut(FORWARDERS["l2fwd"], []) as dut:
        dut.wait_ready()
        with pair.generator(traffic) as generator:
            while (event := generator.next_event(60)) is not None:
                events.append(event)
            result = generator.result
    assert result is not None
    progress = [event for event in events if isinstance(event, GeneratorProgress)]
    writing = [event for event in progress if event.state == "writing"]
    first, *later = writing
    assert first.written == 0
    assert later and all(0 < event.written <= event.recorded for event in later)
    assert first.sent == result.gen.sent
    assert all(event.written == 0 for event in progress if event.state != "writing")
