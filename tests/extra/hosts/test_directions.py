"""What the packets of each direction of a path tell."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from msgspec import structs
from test_figures import BACK_NS, ENDS, FORTH_NS, HELD_NS, passages

from tailscope.extra.hosts import PASSAGES, RECORD
from tailscope.extra.hosts.directions import directions_of
from tailscope.extra.hosts.figures import hosts_record
from tailscope.store.parquet import write_parquet
from tailscope.store.records.base import encode

if TYPE_CHECKING:
    from pathlib import Path

    from tailscope.extra.hosts.passages import Passages

PACKETS = 4_000
ALL = [(number, number) for number in range(PACKETS)]


def kept(folder: Path, found: Passages) -> Path:
    ends = structs.replace(ENDS, sent=PACKETS, received=len(found.seq))
    record = hosts_record("far", "192.0.2.1:862", found, ends)
    (folder / RECORD).write_text(encode(record))
    write_parquet(folder / PASSAGES, found.columns())
    return folder


def test_each_direction_has_its_own_latency_whatever_the_other_clock_does(tmp_path: Path) -> None:
    found = passages(ALL, sent=PACKETS)
    # Of 4 s, at 30 millionths.
    drift_ns = (found.departed_ns - found.departed_ns[0]) * 30 // 1_000_000
    found = replace(
        found, received_ns=found.received_ns + drift_ns, answered_ns=found.answered_ns + drift_ns
    )
    ways = directions_of(kept(tmp_path, found))
    assert ways is not None
    assert [*ways] == ["there", "back"]
    middle_ns = (FORTH_NS + BACK_NS) // 2
    for way in ways.values():
        assert len(way["lost_ns"]) == 0
        assert np.abs(way["latency_ns"] - middle_ns).max() < 1_500
    assert np.abs(ways["back"]["pre_ns"] - found.departed_ns - middle_ns - HELD_NS).max() < 1_500


def test_a_clock_drifts_on_where_all_packets_wait(tmp_path: Path) -> None:
    """A queue that never empties in the last three quarters says nothing of the clock."""
    found = passages(ALL, sent=PACKETS)
    drift_ns = (found.departed_ns - found.departed_ns[0]) * 30 // 1_000_000
    waits_ns = np.maximum(0, np.arange(PACKETS) - PACKETS // 4) * 1_000
    here_ns = {"arrived_ns": found.arrived_ns + waits_ns}
    there_ns = {
        name: getattr(found, name) + waits_ns + drift_ns for name in ("received_ns", "answered_ns")
    }
    ways = directions_of(kept(tmp_path, replace(found, **here_ns, **there_ns)))
    assert ways is not None
    middle_ns = (FORTH_NS + BACK_NS) // 2
    assert np.abs(ways["there"]["latency_ns"] - waits_ns - middle_ns).max() < 1_500
    assert np.abs(ways["back"]["latency_ns"] - middle_ns).max() < 1_500


def test_what_is_overtaken_on_one_way_is_not_on_the_other(tmp_path: Path) -> None:
    found = passages(ALL, sent=PACKETS)
    late_ns = np.where(np.arange(PACKETS) % 50 == 25, 4_500_000, 0)
    later = ("received_ns", "answered_ns", "arrived_ns")
    found = replace(found, **{name: getattr(found, name) + late_ns for name in later})
    ways = directions_of(kept(tmp_path, found))
    assert ways is not None
    in_order = {
        name: bool((np.diff(way["pre_ns"] + way["latency_ns"]) > 0).all())
        for name, way in ways.items()
    }
    assert in_order == {"there": False, "back": True}


def test_time_in_the_reflector_is_of_neither_direction(tmp_path: Path) -> None:
    found = passages(ALL, sent=PACKETS)
    stalled_ns = np.where(np.arange(PACKETS) % 200 < 3, 2_000_000, 0)
    found = replace(
        found,
        answered_ns=found.answered_ns + stalled_ns,
        arrived_ns=found.arrived_ns + stalled_ns,
    )
    ways = directions_of(kept(tmp_path, found))
    assert ways is not None
    assert all(np.ptp(way["latency_ns"]) < 10 for way in ways.values())


def test_other_runs_have_no_directions(tmp_path: Path) -> None:
    assert directions_of(tmp_path) is None
