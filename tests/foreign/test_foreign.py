"""What tailscope says of pairs of captures that other programs made."""

from __future__ import annotations

import os
import subprocess
from statistics import median
from typing import TYPE_CHECKING

import pytest
from runs import AS_ROOT, needed

from .case import UnavailableError
from .catalogue import CASES
from .network import routed_network
from .tools import mergecap
from .tools import run as run_tool
from .truth import NOTHING, Truth, judge

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Tailscope

    from .case import Made

UNCONFIRMED = ("cut", "swapped", "broadcasts", "goes back")
"""Words in names of kinds that tshark does not read, or of which it tells less than is true."""

CONFIRMED = [
    name
    for name, kind in CASES.items()
    if kind.make.__module__.endswith(
        ("headers", "directions", "tunnels", "links", "spans", "clocks", "flows")
    )
    and not any(word in name for word in UNCONFIRMED)
]
"""Kinds whose files tshark reads, and whose packets it can tell apart by what they carry."""

FIELDS = (
    *("frame.interface_id", "frame.time_epoch", "_ws.malformed"),
    *("ip.checksum.status", "udp.checksum.status", "tcp.checksum.status"),
    *("tcp.payload", "udp.payload", "udp.length", "icmp.type", "icmp.seq"),
)
DISSECTED = (
    *("-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"),
    *("-o", "tcp.check_checksum:TRUE", "-o", "tcp.analyze_sequence_numbers:FALSE"),
    *("-d", "udp.port==5001,data", "-d", "tcp.port==5001,data"),
)
BAD = "0"
COUNTER = 8
"""Hexadecimal digits of a payload that hold its number."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Made]:
    """Makes a kind of pair, once."""
    made: dict[str, Made] = {}

    def pair(name: str) -> Made:
        kind = CASES[name]
        needed(*kind.programs)
        if name not in made:
            try:
                made[name] = kind.make(tmp_path_factory.mktemp("foreign"))
            except UnavailableError as error:
                pytest.skip(str(error))
        return made[name]

    return pair


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=[
                *([AS_ROOT] if kind.as_root else []),
                *([pytest.mark.long] if kind.is_long else []),
            ],
        )
        for name, kind in CASES.items()
    ],
)
def test_figures_are_true(name: str, pair: Callable[[str], Made], tailscope: Tailscope) -> None:
    made = pair(name)
    verdict = judge(tailscope("analyze", *made.arguments, "--json", "-"), made.truth)
    assert not verdict.complaints, f"{verdict}; truth: {made.truth}"


def read_by_tshark(path: Path) -> tuple[dict[str, int], dict[str, int]]:
    """Times of the packets of each interface, by what tells packets apart.

    Of protocols that occur twice in a packet, it is the inner one that does.
    """
    wanted = [word for field in FIELDS for word in ("-e", field)]
    inner = ("-T", "fields", "-E", "occurrence=l", *wanted)
    found: tuple[dict[str, int], dict[str, int]] = ({}, {})
    for line in run_tool("tshark", "-n", "-r", path, *DISSECTED, *inner).splitlines():
        interface, time, malformed, *fields = line.split("\t")
        sums, tcp, others = fields[:3], fields[3], fields[4:]
        assert not malformed
        assert BAD not in sums
        if identity := tcp[:COUNTER] or " ".join(field[:COUNTER] for field in others).strip():
            found[int(interface)][identity] = int(time.replace(".", ""))
    return found


@pytest.mark.long
@pytest.mark.parametrize("name", CONFIRMED)
def test_tshark_sees_what_is_said_to_be_true(
    name: str, pair: Callable[[str], Made], tmp_path: Path
) -> None:
    needed("tshark", "mergecap")
    arguments, truth = pair(name).arguments, pair(name).truth
    assert isinstance(truth, Truth)
    before, behind = read_by_tshark(mergecap(tmp_path / "both.pcapng", *arguments[:2]))
    assert len(before.keys() - behind.keys()) == truth.lost[0] + truth.outside[0]
    took = [behind[each] - before[each] for each in before.keys() & behind.keys()]
    assert len(took) == truth.count[0] + truth.reverse[0]
    if truth.reverse == NOTHING and not truth.relative and "--clocks" not in arguments:
        assert truth.latency_ns_p50 is not None
        low, high = truth.latency_ns_p50
        assert low <= median(took) <= high


@AS_ROOT
def test_a_network_ends_with_its_block_whatever_happens() -> None:
    needed("ip", "ethtool", "tcpdump")
    with pytest.raises(RuntimeError, match="in the middle"), routed_network() as found:
        names = list(found.names.values())
        tap = found.start(
            "router", "tcpdump", "-i", "tap-in", "-w", os.devnull, ready="listening on"
        )
        raise RuntimeError("in the middle")
    assert tap.poll() is not None
    listed = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    assert not [name for name in names if name in listed]
