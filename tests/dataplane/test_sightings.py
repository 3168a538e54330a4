"""Forwarders note when they saw some of the packets, between sending and coming back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from processes import over_memif

from tailscope.testbed.messages import FORWARDERS

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("dataplane")

RATE = ("--rate=20k", "--warm-up=0ns", "--duration=300ms")
OPTIONS = {
    "l2fwd": [],
    "l3fwd": [],
    "delay": ["--law=fixed:5us"],
    "work": ["--law=fixed:1us"],
    "buffered": ["--tx-drain-us=100"],
}


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[] if kind in ("l2fwd", "work") else [pytest.mark.long])
        for kind in OPTIONS
    ],
)
def test_packets_are_seen_between_both_ends(kind: str, tmp_path: Path) -> None:
    """Each sighting lies between sending and return, as a machine has one counter."""
    program = FORWARDERS["l2fwd" if kind == "buffered" else kind]
    folders = {role: tmp_path / role for role in ("generator", "dut")}
    for folder in folders.values():
        folder.mkdir()
    with over_memif() as pair:
        device = pair.dut(program, [*OPTIONS[kind], f"--record={folders['dut']}"])
        with device, pair.generator([*RATE, f"--record={folders['generator']}"]) as generator:
            result = generator.finish()
            device.stop()
            ended = device.finish()
    assert result is not None and ended is not None and not ended.partial

    def column(role: str, name: str) -> np.ndarray:
        return np.load(folders[role] / f"{name}.npy").astype(np.int64)

    seq, seen = column("dut", "sighted_seq"), column("dut", "sighted_tsc")
    assert len(seq) > 5 and (np.diff(seen) > 0).all() and len(np.unique(seq)) == len(seq)
    # At most one is recorded every 4 ms.
    assert np.diff(seen).min() >= 4e-3 * ended.clock.tsc_hz
    departed = column("generator", "departure_tsc")
    came_back = dict(
        zip(
            column("generator", "arrival_seq").tolist(),
            column("generator", "arrival_tsc").tolist(),
            strict=True,
        )
    )
    assert (departed[seq] <= seen).all()
    # A full ring may lose some on their way back.
    returned = [
        (came_back[number], at)
        for number, at in zip(seq.tolist(), seen, strict=True)
        if number in came_back
    ]
    assert len(returned) > len(seq) / 2
    assert all(at <= came for came, at in returned)


def test_the_counter_is_read_beside_unix_time_all_along(tmp_path: Path) -> None:
    with over_memif() as pair:
        device = pair.dut(FORWARDERS["l2fwd"], [f"--record={tmp_path}"])
        with device, pair.generator(["--rate=1k", "--warm-up=0ns", "--duration=1500ms"]) as load:
            assert load.finish() is not None
            device.stop()
            ended = device.finish()
    assert ended is not None
    tsc, unix_ns, width = (
        np.load(tmp_path / f"pair_{name}.npy").astype(np.int64)
        for name in ("tsc", "unix_ns", "width_tsc")
    )
    # It is read at the beginning, once a second, and at the end.
    assert len(tsc) >= 3 and (np.diff(tsc) > 0).all() and (np.diff(unix_ns) > 0).all()
    assert (width > 0).all() and int(tsc[0]) == ended.clock.tsc
    lasted_s = float(tsc[-1] - tsc[0]) / ended.clock.tsc_hz
    assert (unix_ns[-1] - unix_ns[0]) / 1e9 == pytest.approx(lasted_s, rel=5e-3)
