"""Captures of all devices of a host (``tcpdump -i any``): packets as they came and as they left."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import captures
import pytest
from errors import raises

from tailscope.engine.analysis import analyze, interfaces
from tailscope.exceptions import AnalysisError

if TYPE_CHECKING:
    from pathlib import Path

SLL2 = 276
CAME, LEFT = 2, 3
LATENCY_NS = 5_000
GAP_NS = 50_000
PACKETS = 300
LOST = {7, 8, 200}


def crossing(device: int, number: int) -> captures.Packet:
    """A packet as it crosses a device of a router."""
    frame = captures.udp(number, payload=struct.pack(">Q", number))
    head = frame[12:14] + struct.pack(">HIHBB", 0, device, 1, 0, 6) + frame[6:12] + bytes(2)
    time_ns = 10**18 + number * GAP_NS + (LATENCY_NS if device == LEFT else 0)
    data = head + frame[14:]
    return captures.Packet(time_ns, len(data), data)


@pytest.fixture(scope="module", params=["pcap", "pcapng"])
def of_both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    came = [crossing(CAME, number) for number in range(PACKETS)]
    left = [crossing(LEFT, number) for number in range(PACKETS) if number not in LOST]
    packets = sorted([*came, *left])
    path = tmp_path_factory.mktemp("any") / f"any.{request.param}"
    written = captures.pcap if request.param == "pcap" else captures.pcapng
    path.write_bytes(written(packets, link=SLL2))
    return path


def test_each_device_is_an_interface(of_both: Path) -> None:
    listed = [(one.name, one.packets) for one in interfaces(of_both)]
    assert listed == [("if2", PACKETS), ("if3", PACKETS - len(LOST))]


def test_a_device_is_chosen_by_its_index(of_both: Path) -> None:
    found = analyze(f"{of_both}:if2", f"{of_both}:if3").summary
    assert (found["sent"], found["lost"]) == (PACKETS, len(LOST))
    assert found["latency_ns_min"] == found["latency_ns_max"] == LATENCY_NS


def test_packets_are_not_matched_with_themselves(of_both: Path) -> None:
    with raises(AnalysisError, "several-devices"):
        analyze(of_both, f"{of_both}:if3")
