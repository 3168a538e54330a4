"""The recorder of two links by packet sockets, compared with tcpdump on the same links."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from captures import Packet, packets, pcapng_packets, probe_numbers, udp, unzstd
from errors import raises
from runs import AS_ROOT, needed

from tailscope.exceptions import DataplaneError, TestbedError
from tailscope.extra.laboratory.stamps.links import by_socket
from tailscope.extra.laboratory.stamps.packet_sockets import SocketRecorder
from tailscope.extra.laboratory.stamps.phc import ClockReading
from tailscope.extra.laboratory.stamps.stamping import Stamping
from tailscope.testbed.folder import RunFolder
from tailscope.testbed.messages import missed_frames
from tailscope.testbed.namespaces import command_in, inside, make_links, namespace
from tailscope.testbed.places import Here
from tailscope.testbed.tcpdump import Tap, recording

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

pytestmark = [AS_ROOT, pytest.mark.usefixtures("dataplane")]

MANY, SIDES = 500, ("pre", "post")
OTHER = bytes.fromhex("020000000001 020000000002 88b5") + bytes(46)
"""Frame of an experimental protocol."""


@dataclass
class Cables:
    """Two pairs of joined links in a namespace."""

    home: str
    place: Here

    def recorder(self, out: Path, *, probes: bool = False) -> SocketRecorder:
        """Return a recorder of both receiving ends."""
        return SocketRecorder(["pre", "post"], out, place=self.place, by_cards=False, probes=probes)

    @contextmanager
    def sender(self, link: str) -> Iterator[socket.socket]:
        """Open a socket that sends whole frames on a link."""
        with inside(self.home), socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
            raw.bind((link, 0))
            yield raw

    def send(self, link: str, frames: Sequence[bytes]) -> None:
        """Send frames, one after the other."""
        with self.sender(link) as raw:
            for frame in frames:
                raw.send(frame)


@pytest.fixture
def cables() -> Iterator[Cables]:
    with ExitStack() as stack:
        folder = stack.enter_context(RunFolder())
        home = stack.enter_context(namespace(f"{folder.name}-taps", quiet=True))
        make_links(home, [("to-pre", "pre"), ("to-post", "post")])
        yield Cables(home, Here(folder.path, command_in(home)))


def probe(number: int) -> bytes:
    return udp(number, payload=b"\xf5ts\xa1" + struct.pack(">Q", number) + bytes(6))


def tagged(frame: bytes, tag: int) -> bytes:
    return frame[:12] + struct.pack(">HH", 0x8100, tag) + frame[12:]


def recorded(out: Path, side: str) -> list[Packet]:
    return pcapng_packets(unzstd(out / f"{side}.pcapng.zst"))


def test_cards_pass_on_what_is_for_others(cables: Cables, tmp_path: Path) -> None:
    """They would keep it back: frames of a tap are for the device, not for the timestamper."""

    def promiscuity() -> list[int]:
        listed = cables.place.run(["ip", "-d", "-j", "link"])
        return [link["promiscuity"] for link in json.loads(listed) if link["ifname"] in SIDES]

    assert promiscuity() == [0, 0]
    with cables.recorder(tmp_path) as recorder:
        assert promiscuity() == [1, 1]
        recorder.finish()
    assert promiscuity() == [0, 0]


def test_it_sees_what_tcpdump_sees(cables: Cables, tmp_path: Path) -> None:
    """Both record the same frames with the same timestamps, in the same order."""
    needed("tcpdump")
    frames = [
        (probe(number), OTHER, tagged(udp(number), 7), udp(number) + bytes(1000))[number % 4]
        for number in range(MANY)
    ]
    taps = {name: Tap(name, cables.place.command) for name in ("pre", "post")}
    with (
        recording(taps, Here(cables.place.folder, mark=cables.place.folder.name), only=""),
        cables.recorder(tmp_path) as recorder,
    ):
        for name in taps:
            cables.send(f"to-{name}", frames)
        result = recorder.finish()
    assert result.complete and result.socket.timestamps == "kernel-software"
    for name, counts in (("pre", result.socket.pre), ("post", result.socket.post)):
        own, theirs = recorded(tmp_path, name), packets(taps[name].path.read_bytes())
        assert counts.received == counts.written == len(own) == MANY
        assert missed_frames(counts) == counts.foreign == taps[name].dropped == 0
        assert [(packet.orig_len, packet.data) for packet in own] == [
            (packet.orig_len, packet.data) for packet in theirs
        ]
        assert [packet.data for packet in own] == [frame[:128] for frame in frames]
        # The kernel stamps a frame once, for all listeners.
        assert [packet.ts for packet in own] == [packet.ts for packet in theirs]
        assert [packet.ts for packet in own] == sorted(packet.ts for packet in own)


def test_only_probes_are_written_where_these_are_asked_for(cables: Cables, tmp_path: Path) -> None:
    with cables.recorder(tmp_path, probes=True) as recorder:
        cables.send("to-pre", [probe(1), OTHER, udp(2), probe(3)])
        cables.send("to-post", [OTHER, probe(1)])
        cables.send("pre", [probe(9)])  # What leaves by a link does not arrive there.
        result = recorder.finish()
    assert probe_numbers(tmp_path / "pre.pcapng.zst") == [1, 3]
    assert probe_numbers(tmp_path / "post.pcapng.zst") == [1]
    pre, post = result.socket.pre, result.socket.post
    assert (pre.received, pre.written, pre.foreign) == (4, 2, 2)
    assert (post.received, post.written, post.foreign) == (2, 1, 1)
    assert result.complete


@pytest.mark.long
def test_frames_that_find_no_room_are_counted(cables: Cables, tmp_path: Path) -> None:
    """A stopped recorder gets more frames on both links than its rings can hold."""
    sent = {"pre": 400_000, "post": 350_000}
    with cables.recorder(tmp_path) as recorder:
        recorder.process.signal(signal.SIGSTOP)
        for side, frames in sent.items():
            with cables.sender(f"to-{side}") as raw:
                for _ in range(frames):
                    raw.send(OTHER)
        recorder.process.signal(signal.SIGCONT)
        result = recorder.finish()
    assert not result.complete
    links = {"pre": result.socket.pre, "post": result.socket.post}
    for (side, counts), partial in zip(links.items(), result.partial, strict=True):
        assert counts.received == sent[side] == counts.written + counts.dropped
        assert counts.dropped == missed_frames(counts) > 0 and counts.written > 0
        assert len(recorded(tmp_path, side)) == counts.written
        assert partial.startswith(f"{side}.pcapng.zst: {counts.dropped} ")


def test_frames_without_a_time_of_the_card_are_left_out(cables: Cables, tmp_path: Path) -> None:
    """Timestamps of the kernel must not be recorded as those of the card."""
    recorder = SocketRecorder(
        ["pre", "post"], tmp_path, place=cables.place, by_cards=True, probes=False
    )
    with recorder:
        cables.send("to-pre", [OTHER] * 3)
        result = recorder.finish()
    pre = result.socket.pre
    assert (pre.received, pre.unstamped, pre.written) == (3, 3, 0)
    assert not result.complete and recorded(tmp_path, "pre") == []


def test_a_card_that_stamps_nothing_ends_a_measurement(cables: Cables, tmp_path: Path) -> None:
    with (
        raises(TestbedError, "no-timestamps") as error,
        by_socket(["pre", "post"], tmp_path, Stamping(by_cards=True), place=cables.place),
    ):
        cables.send("to-pre", [probe(1), probe(2), OTHER])
    assert "before the device" in str(error.value) and "of 2 frames" in str(error.value)


class Ahead:
    """A clock 5 ms ahead of this machine's, and 500 ppm faster."""

    name = "ptp1"

    def __init__(self) -> None:
        self.start_ns = time.time_ns()

    def at(self, ns: int) -> int:
        return ns + 5_000_000 + (ns - self.start_ns) // 2000

    def read(self) -> ClockReading:
        before_ns = time.time_ns()
        shown_ns = self.at(time.time_ns())
        after_ns = time.time_ns()
        return ClockReading((before_ns + after_ns) // 2, shown_ns, after_ns - before_ns)


class Now(Ahead):
    """This machine's own clock."""

    name = "ptp0"

    def at(self, ns: int) -> int:
        return ns


def test_links_with_a_clock_each_are_brought_to_one(cables: Cables, tmp_path: Path) -> None:
    """The lead of the second clock is subtracted from the times behind the device."""
    needed("tcpdump")
    taps = {"post": Tap("post", cables.place.command)}
    clocks = (Now(), Ahead())
    only = Here(cables.place.folder, mark=cables.place.folder.name)
    with (
        recording(taps, only),
        by_socket(["pre", "post"], tmp_path, Stamping(clocks=clocks), place=cables.place) as found,
    ):
        for number in range(60):
            cables.send("to-post", [probe(number)])
            time.sleep(0.02)
    theirs, own = packets(taps["post"].path.read_bytes()), recorded(tmp_path, "post")
    ports = found.port_clocks
    assert ports is not None and ports.readings >= 5 and (ports.pre, ports.post) == ("ptp0", "ptp1")
    assert ports.drift_ppb == pytest.approx(500_000, rel=0.01)
    assert len(own) == len(theirs) == 60
    for seen, raw in zip(own, theirs, strict=True):
        # The kernel's time is taken for a reading of the second clock.
        first_ns = clocks[1].start_ns + (raw.ts - 5_000_000 - clocks[1].start_ns) * 2000 / 2001
        assert abs(seen.ts - first_ns) <= ports.error_ns
    assert sorted(path.name for path in tmp_path.iterdir()) == ["post.pcapng.zst", "pre.pcapng.zst"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_a_result(
    number: signal.Signals, cables: Cables, tmp_path: Path, dataplane: Path
) -> None:
    command = [str(dataplane), "socket", "--", "--pre=pre", "--post=post"]
    with subprocess.Popen(
        [*cables.place.command, *command, f"--captures={tmp_path}"],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert '"ready"' in process.stdout.readline()
        cables.send("to-post", [probe(5)])
        # `ip netns exec` becomes the program itself.
        os.kill(process.pid, number)
        assert '"complete":true' in process.stdout.read()
    assert process.returncode == 0
    assert probe_numbers(tmp_path / "post.pcapng.zst") == [5]


@pytest.mark.parametrize(
    ("links", "code", "named"),
    [
        (["pre", "nothing7"], "packet-socket", "nothing7: "),
        (["pre", "pre"], "option-value", "--post: got pre"),
    ],
)
def test_what_cannot_be_recorded_is_said(
    links: list[str], code: str, named: str, cables: Cables, tmp_path: Path
) -> None:
    with raises(DataplaneError, code) as error:
        SocketRecorder(links, tmp_path, place=cables.place, by_cards=False).__enter__()
    assert str(error.value).startswith(f"timestamper: {named}")
    assert not list(tmp_path.iterdir())


def test_a_link_that_goes_is_said(cables: Cables, tmp_path: Path) -> None:
    with cables.recorder(tmp_path) as recorder:
        subprocess.run([*cables.place.command, "ip", "link", "del", "pre"], check=True)
        # The recorder ends by itself.
        deadline_s = time.monotonic() + 60
        while recorder.process.is_running:
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        with raises(DataplaneError, "packet-socket") as error:
            recorder.finish()
        assert "pre: " in str(error.value)
