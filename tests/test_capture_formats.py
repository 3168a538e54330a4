"""Captures in formats that no tcpdump writes: ERF of capture cards, and snoop."""

from __future__ import annotations

import struct
import subprocess
from typing import TYPE_CHECKING

import captures
import pytest
from errors import raises
from runs import needed

from tailscope.engine.analysis import analyze, interfaces
from tailscope.exceptions import CaptureError

if TYPE_CHECKING:
    from pathlib import Path

PACKETS = 300
LOST = {7, 8, 200}
START_NS = 1_700_000_000 * captures.SECOND
SENT = captures.stream([START_NS + 50_021 * at for at in range(PACKETS)])
CAME = [
    packet._replace(ts=packet.ts + 5_000 + at) for at, packet in enumerate(SENT) if at not in LOST
]


@pytest.fixture
def of_both_ports(tmp_path: Path) -> Path:
    both = sorted([(packet, 0) for packet in SENT] + [(packet, 1) for packet in CAME])
    path = tmp_path / "card.erf"
    path.write_bytes(captures.erf(*map(list, zip(*both, strict=True))))
    return path


def check(pre: Path | str, post: Path | str, *, coarse_ns: int = 0) -> None:
    found = analyze(pre, post).summary
    assert (found["sent"], found["lost"]) == (PACKETS, len(LOST))
    for name, expected_ns in (("min", 5_000), ("max", 5_000 + PACKETS - 1)):
        assert abs(int(found[f"latency_ns_{name}"]) - expected_ns) <= coarse_ns


def test_each_port_of_a_card_is_an_interface(of_both_ports: Path) -> None:
    listed = [(one.name, one.packets) for one in interfaces(of_both_ports)]
    assert listed == [("if0", PACKETS), ("if1", PACKETS - len(LOST))]
    check(f"{of_both_ports}:if0", f"{of_both_ports}:if1")


@pytest.mark.parametrize("extended", [False, True])
@pytest.mark.parametrize("compressed", [False, True])
def test_a_file_for_each_port(tmp_path: Path, extended: bool, compressed: bool) -> None:
    paths = []
    for name, packets in (("pre", SENT), ("post", CAME)):
        content = captures.erf(packets, [0] * len(packets), extended=extended)
        path = tmp_path / f"{name}.erf"
        path.write_bytes(content)
        if compressed:
            needed("zstd")
            subprocess.run(["zstd", "--quiet", "--rm", path], check=True)
            path = path.with_suffix(".erf.zst")
        paths.append(path)
    check(*paths)
    assert analyze(*paths).summary["pre_format"] == "erf"


def test_what_a_card_lost_is_told(tmp_path: Path) -> None:
    """And a packet that is missing behind the device may be one of them."""
    for name, packets in (("pre", SENT), ("post", CAME)):
        (tmp_path / name).write_bytes(captures.erf(packets, [0] * len(packets), lost=1))
    found = analyze(tmp_path / "pre", tmp_path / "post").summary
    assert (found["pre_dropped"], found["lost"]) == (PACKETS, 0)


def test_tshark_sees_the_same_packets(of_both_ports: Path) -> None:
    needed("tshark")
    fields = ("frame.time_epoch", "erf.wlen", "erf.flags.cap")
    words = ["tshark", "-X", "read_format:Endace ERF capture", "-r", of_both_ports]
    words += ["-Y", "erf.types.type == 2", "-T", "fields"]
    words += [word for field in fields for word in ("-e", field)]
    listed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    rows = {
        (int(seconds) * captures.SECOND + int(fraction.ljust(9, "0")), int(length) - 4, int(port))
        for time, length, port in (line.split("\t") for line in listed.splitlines())
        for seconds, _, fraction in (time.partition("."),)
    }
    sides = enumerate((SENT, CAME))
    assert rows == {
        (packet.ts, packet.orig_len, port) for port, packets in sides for packet in packets
    }


def test_snoop_as_editcap_writes_it(tmp_path: Path) -> None:
    needed("editcap")
    for name, packets in (("pre", SENT), ("post", CAME)):
        (tmp_path / f"{name}.pcap").write_bytes(captures.pcap(packets))
        words = ["editcap", "-F", "snoop", tmp_path / f"{name}.pcap", tmp_path / name]
        subprocess.run(words, capture_output=True, check=True)
    check(tmp_path / "pre", tmp_path / "post", coarse_ns=1_000)


def test_numbers_that_moonsniff_keeps_are_matched(tmp_path: Path) -> None:
    for name, packets in (("pre", SENT), ("post", CAME)):
        (tmp_path / f"{name}.mscap").write_bytes(
            b"".join(
                struct.pack("<QI", packet.ts, int.from_bytes(packet.data[42:46], "little"))
                for packet in packets
            )
        )
    check(tmp_path / "pre.mscap", tmp_path / "post.mscap")


@pytest.mark.parametrize(
    ("at", "changed", "code"),
    [
        (8, b"\x05", "capture-corrupt"),  # a type that is no Ethernet
        (10, b"\x00\x0f", "capture-corrupt"),  # shorter than its header
        (14, b"\x00\x03", "capture-corrupt"),  # shorter than a check sequence
    ],
)
def test_a_damaged_record_is_named(tmp_path: Path, at: int, changed: bytes, code: str) -> None:
    """The damage lies behind what the format is told from."""
    content = bytearray(captures.erf(SENT, [0] * PACKETS))
    (length,) = struct.unpack_from(">H", content, 24 + 10)
    record = 24 + 200 * length
    content[record + at : record + at + len(changed)] = changed
    for name in ("pre", "post"):
        (tmp_path / name).write_bytes(content)
    with raises(CaptureError, code) as refused:
        analyze(tmp_path / "pre", tmp_path / "post")
    assert f"byte {record}" in str(refused.value)


@pytest.mark.parametrize("interface", ["", ":if0"])
def test_a_pattern_may_hold_commas_and_name_an_interface(tmp_path: Path, interface: str) -> None:
    """As folders of campaigns do."""
    folder = tmp_path / "rate=5k,repeat=1"
    folder.mkdir()
    for name, packets in (("pre", SENT), ("post", CAME)):
        for half, part in enumerate((packets[:150], packets[150:])):
            (folder / f"{name}-{half}.erf").write_bytes(captures.erf(part, [0] * len(part)))
    check(f"{folder}/pre-*.erf{interface}", f"{folder}/post-?.erf{interface}")
    named = (f"{folder}/post-{half}.erf{interface}" for half in (0, 1))
    check(f"{folder}/pre-*.erf{interface}", ",".join(named))
