"""Two guests with kernels and clocks of their own: what is inserted, lost, reordered, and set.

The far guest forwards to a namespace of its own, in which the reflector is. On the way there and
back are its netem, and tcpdump before and behind each: all by one clock, and none of tailscope's.
The guests are emulated: the cable between them takes long, and each time as long as the machine is
busy. What tcpdump says of that is taken from each latency, and what is left was inserted.
"""

from __future__ import annotations

import re
import signal
import struct
import subprocess
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from between import analysed
from guests import booted, fetch, kernel
from runs import needed

from tailscope.extra.hosts.figures import _overtaken
from tailscope.host.kernel import is_release
from tailscope.testbed.process import find_binary
from tailscope.testbed.programs import which

if TYPE_CHECKING:
    from collections.abc import Iterator

    from between import Found
    from numpy.typing import NDArray

    from tailscope.platforms.guest import Guest
    from tailscope.testbed.places import Process

    Integers = NDArray[np.int64]

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("dataplane")]

NEAR, AT_FAR, GATE, FAR = "10.98.0.1", "10.98.0.2", "10.97.0.1", "10.97.0.2"
TO = f"{FAR}:862"
MAC = "52:54:00:00:00:0"
WAIT_S = 120.0
OFFSET_NS, GAIN_PPM = 3_000_000, 100
NEAR_ERROR_US, FAR_ERROR_US = 1_000, 8_000
"""How far clocks are off, at most, as those say who keep them."""
BOUND_NS = 1_000
DELAYS_US = (20, 100, 300, 1_000)
RECORD = ("departures", "stamps", "arrivals", "follow_ups", "stalls")
_NANOSECONDS, _HEADERS = 0xA1B23C4D, 14 + 20 + 8


class Packet(NamedTuple):
    """What tcpdump saw of a packet."""

    ns: int
    source_port: int
    payload: bytes


def packets(capture: bytes) -> list[Packet]:
    """Read a capture of Ethernet and IPv4 without options."""
    assert struct.unpack_from("<I", capture)[0] == _NANOSECONDS
    found, at = [], 24
    while at + 16 <= len(capture):
        seconds, ns, length, _ = struct.unpack_from("<IIII", capture, at)
        frame = capture[at + 16 : at + 16 + length]
        at += 16 + length
        [port] = struct.unpack_from("!H", frame, 34)
        found.append(Packet(seconds * 10**9 + ns, port, frame[_HEADERS:]))
    return found


class Guests:
    """Both guests, and what runs in them."""

    def __init__(self, near: Guest, far: Guest, folder: Path) -> None:
        self.near, self.far, self._folder = near, far, folder
        self._number = 0

    def set_up(self) -> None:
        """Join both guests, and start the reflector in the namespace of the far one."""
        for guest in (self.near, self.far):
            _shell(guest, "echo root:x:0:0:root:/:/bin/sh >/etc/passwd; mkdir -p /run")
            _shell(guest, "for f in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 1 >$f; done")
        _ip(
            self.near,
            "link set eth0 up",
            f"addr add {NEAR}/24 dev eth0",
            f"neigh replace {AT_FAR} lladdr {MAC}2 dev eth0",
            f"route add {FAR} via {AT_FAR}",
        )
        _ip(
            self.far,
            "link set eth0 up",
            f"addr add {AT_FAR}/24 dev eth0",
            f"neigh replace {NEAR} lladdr {MAC}1 dev eth0",
            "netns add far",
            f"link add gate address {MAC}3 type veth peer name host0 address {MAC}4 netns far",
            "link set gate up",
            f"addr add {GATE}/24 dev gate",
            f"neigh replace {FAR} lladdr {MAC}4 dev gate",
        )
        _ip(
            self.far,
            "link set lo up",
            "link set host0 up",
            f"addr add {FAR}/24 dev host0",
            f"neigh replace {GATE} lladdr {MAC}3 dev host0",
            f"route add default via {GATE}",
            namespace="far",
        )
        _shell(self.far, "echo 1 >/proc/sys/net/ipv4/ip_forward")
        self.reflector = self.in_far("reflect", str(find_binary()[0]), "reflect", "--")
        _wait_for(self.reflector, '"ready"')

    def in_far(self, name: str, *command: str) -> Process:
        """Start a program in the namespace of the far guest."""
        return self.far.start(name, ["nsenter", "--net=/run/netns/far", *command], merged=True)

    def netem(self, there: str, back: str) -> None:
        """Let netem do this to packets on their way there, and back."""
        for link, what in (("gate", there), ("eth0", back)):
            words = ["tc", "qdisc", "replace", "dev", link, "root", "netem", "limit", "10000"]
            self.far.run([*words, *what.split()])

    def dropped(self) -> list[int]:
        """Return what netem has dropped on the way there, and back."""
        said = [
            self.far.run(["tc", "-s", "qdisc", "show", "dev", link]) for link in ("gate", "eth0")
        ]
        return [int(re.findall(r"dropped (\d+)", each)[0]) for each in said]

    def without_room(self) -> list[int]:
        """Return for how many packets sockets of the near and of the far host had no room."""
        counted = []
        for guest, before in ((self.near, []), (self.far, ["nsenter", "--net=/run/netns/far"])):
            lines = guest.run([*before, "cat", "/proc/net/snmp"]).splitlines()
            names, values = (line.split() for line in lines if line.startswith("Udp:"))
            counted.append(int(dict(zip(names, values, strict=True))["RcvbufErrors"]))
        return counted

    def start(self, *options: str) -> Asked:
        """Begin to measure."""
        self._number += 1
        inside = f"/tmp/record{self._number}"
        _shell(self.near, f"mkdir {inside}")
        words = [str(find_binary()[0]), "sender", "--", f"--to={TO}", f"--record={inside}"]
        process = self.near.start("sender", [*words, *options], merged=True)
        _wait_for(process, '"ready"')
        return Asked(self.near, process, inside, self._folder / f"record{self._number}")

    @contextmanager
    def captured(self, into: dict[str, list[Packet]]) -> Iterator[None]:
        """Let tcpdump look in both guests meanwhile."""
        places = {
            "near": (self.near, [], "eth0", "inout"),
            "eth0": (self.far, [], "eth0", "inout"),
            "gate": (self.far, [], "gate", "in"),
            "host0": (self.far, ["nsenter", "--net=/run/netns/far"], "host0", "in"),
        }
        running = {}
        for name, (guest, before, link, way) in places.items():
            words = ["tcpdump", "-i", link, "-Q", way, "-w", f"/tmp/{name}", "-U", "-s", "80"]
            words += ["-Z", "root", "--time-stamp-precision=nano", "-n", "udp port 862"]
            running[name] = guest.start(name, [*before, *words], merged=True)
            _wait_for(running[name], "listening")
        yield
        time.sleep(1)
        for name, process in running.items():
            process.signal(signal.SIGTERM)
            while process.next_line(WAIT_S) is not None:
                pass
            into[name] = packets(fetch(places[name][0], f"/tmp/{name}"))


class Asked(NamedTuple):
    """A measurement under way."""

    near: Guest
    process: Process
    inside: str
    folder: Path

    def stop(self) -> Found:
        """Let it end before its time, which the machine may need more of than anybody knows."""
        time.sleep(1)
        self.process.signal(signal.SIGTERM)
        return self.end()

    def end(self) -> Found:
        """Wait for its end, fetch what it wrote, and analyse that."""
        lines = []
        while (line := self.process.next_line(WAIT_S)) is not None:
            lines.append(line)
        self.folder.mkdir()
        for name in RECORD:
            content = fetch(self.near, f"{self.inside}/{name}.npy")
            (self.folder / f"{name}.npy").write_bytes(content)
        return analysed(self.folder, TO, lines[-1])


def _shell(guest: Guest, script: str) -> str:
    return guest.run(["sh", "-ec", script])


def _ip(guest: Guest, *lines: str, namespace: str = "") -> None:
    # The guest's shell has an `ip` of its own that can do less.
    batch = guest.write("batch", "".join(f"{line}\n" for line in lines))
    inside = ["-n", namespace] if namespace else []
    guest.run(["ip", *inside, "-batch", str(batch)])


def _wait_for(process: Process, word: str) -> None:
    while (line := process.next_line(WAIT_S)) is not None:
        if word in line:
            return
    raise AssertionError(process.last_words())


def _release(kind: tuple[str, str]) -> str:
    return kind[1]


@pytest.fixture(scope="module", params=[("vanilla", "6.1"), ("osnoise", "6.12")], ids=_release)
def guests(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guests]:
    """Boot both guests once for each kernel."""
    needed("cc", "tc", "tcpdump", "nsenter")
    kind, release = request.param
    found_kernel = kernel(kind)
    if not is_release(found_kernel.release, release):
        pytest.skip(f"no kernel {release} for guests: {found_kernel.release}")
    folder = tmp_path_factory.mktemp("guests")
    clock = folder / "set_clock"
    source = Path(__file__).with_name("set_clock.c")
    subprocess.run(["cc", "-static", "-O2", "-o", str(clock), str(source)], check=True)
    tools = [tool for name in ("tc", "tcpdump", "nsenter") if (tool := which(name))]
    with ExitStack() as stack:
        both = []
        for number, other in ((1, 2), (2, 1)):
            own = folder / f"guest{number}"
            own.mkdir()
            ends = ",".join(
                f"{end}.type=unix,{end}.path={folder / f'cable{at}'}"
                for end, at in (("local", number), ("remote", other))
            )
            devices = ["-netdev", f"dgram,id=net0,{ends}"]
            devices += ["-device", f"virtio-net-pci,netdev=net0,mac={MAC}{number}"]
            modules = ["virtio_pci", "virtio_net", "veth", "sch_netem", "af_packet"]
            programs = [find_binary()[0], clock, *tools]
            guest = booted(found_kernel, own, modules=modules, programs=programs, devices=devices)
            both.append(stack.enter_context(guest))
        found = Guests(*both, folder)
        found.set_up()
        yield found


class Way(NamedTuple):
    """What tcpdump knows of a query and its answer."""

    held_ns: int
    """Time in netem."""
    cable_ns: int
    """Time between both guests: what the near one waited for less what the far one took."""


def _ways(captures: dict[str, list[Packet]]) -> list[dict[int, Way]]:
    """Return the ways of all queries by their numbers, of each measurement in their order."""

    def times(name: str, *, of_answers: bool) -> dict[bytes, int]:
        some = [packet for packet in captures[name] if _is_answer(packet) == of_answers]
        # An answer repeats the number and the time of its query.
        key = slice(24, 36) if of_answers else slice(12)
        return {packet.payload[key]: packet.ns for packet in some}

    asked, came = (times(name, of_answers=False) for name in ("near", "eth0"))
    answered, left, back = (times(name, of_answers=True) for name in ("gate", "eth0", "near"))
    found: dict[bytes, dict[int, Way]] = {}
    everywhere = asked.keys() & came.keys() & answered.keys() & left.keys() & back.keys()
    for packet in captures["host0"]:
        key, session = packet.payload[:12], packet.payload[14:16]
        # A query that asks whether anybody answers is of no session.
        if any(session) and key in everywhere:
            held_ns = packet.ns - came[key] + left[key] - answered[key]
            cable_ns = back[key] - asked[key] - (left[key] - came[key])
            number = int.from_bytes(key[:4], "big")
            found.setdefault(session, {})[number] = Way(held_ns, cable_ns)
    return list(found.values())


def _is_answer(packet: Packet) -> bool:
    return packet.source_port == 862


def _lead(captures: dict[str, list[Packet]], since_ns: int, until_ns: int) -> tuple[int, int]:
    """Return what the far clock leads by, at least and at most: no packet comes before it left.

    Of packets that the near guest saw in this time of its clock.
    """

    def differences(*, are_answers: bool) -> list[int]:
        near, far = (
            {
                packet.payload[:36]: packet.ns
                for packet in captures[name]
                if _is_answer(packet) == are_answers
            }
            for name in ("near", "eth0")
        )
        some = [key for key, ns in near.items() if since_ns <= ns <= until_ns]
        return [far[key] - near[key] for key in some if key in far]

    return max(differences(are_answers=True)), min(differences(are_answers=False))


def _set_clock(guest: Guest, step_ns: int, gain_ppm: int, error_us: int) -> None:
    guest.run(["set_clock", str(step_ns), str(gain_ppm), str(error_us)])


def test_inserted_delays_are_found(guests: Guests, capsys: pytest.CaptureFixture[str]) -> None:
    """A latency is that of the cable and what netem inserted, whose times tcpdump tells."""
    captures: dict[str, list[Packet]] = {}
    with guests.captured(captures):
        found = []
        for delay_us in DELAYS_US:
            guests.netem(*[f"delay {delay_us}us"] * 2)
            # On a busy machine three of four leave too late to be sent.
            found.append(guests.start("--rate=200", "--duration=8s").end())
    ways = _ways(captures)
    assert len(ways) == len(found)
    for delay_us, (_, record, passages), of_run in zip(DELAYS_US, found, ways, strict=True):
        seqs = [seq for seq in passages.seq.tolist() if seq in of_run]
        latency_ns = dict(zip(passages.seq.tolist(), passages.latency_ns.tolist(), strict=True))
        inserted_ns = np.array([of_run[seq].held_ns for seq in seqs])
        found_ns = np.array([latency_ns[seq] - of_run[seq].cable_ns for seq in seqs])
        errors_ns = found_ns - inserted_ns
        true_ns, error_ns = float(np.median(inserted_ns)), float(np.median(errors_ns))
        cable_ns = np.median([of_run[seq].cable_ns for seq in seqs])
        assert record.median is not None
        stamps_ns = record.median.stamps_ns
        with capsys.disabled():
            print(
                f"\nnetem {delay_us} us each way: {true_ns / 1e3:.1f} us inserted, found"
                f" {np.median(found_ns) / 1e3:.1f} us; errors of packets {error_ns / 1e3:+.1f} us,"
                f" half of them {np.quantile(errors_ns, 0.25) / 1e3:+.1f} to"
                f" {np.quantile(errors_ns, 0.75) / 1e3:+.1f} us; stamps"
                f" {(stamps_ns or 0) / 1e3:.1f} us; the cable took {cable_ns / 1e3:.1f} us;"
                f" {len(seqs)} packets"
            )
        assert stamps_ns is not None
        assert len(seqs) > 0.9 * len(passages.seq) > 100
        assert true_ns >= 2_000 * delay_us
        assert abs(error_ns) <= max(BOUND_NS, 0.02 * true_ns) + stamps_ns


def test_loss_and_order_are_those_of_netem(
    guests: Guests, capsys: pytest.CaptureFixture[str]
) -> None:
    captures: dict[str, list[Packet]] = {}
    guests.netem("delay 0us", "delay 0us")
    full = guests.without_room()
    with guests.captured(captures):
        asked = guests.start("--rate=200", "--duration=10min", "--drain=3s")
        guests.netem("delay 20ms reorder 20% loss 5%", "delay 20ms reorder 10% loss 3%")
        time.sleep(6)
        # What is behind the last answer has no direction.
        guests.netem("delay 20ms", "delay 20ms")
        _, record, _ = asked.stop()
        dropped = guests.dropped()
    # A guest whose machine is busy may not run for long enough that its sockets are full.
    full = [after - before for after, before in zip(guests.without_room(), full, strict=True)]
    loss, order = record.loss, record.order
    answers = [packet for packet in captures["near"] if _is_answer(packet)]
    answers = [packet for packet in answers if any(packet.payload[14:16])]
    back = np.array([int.from_bytes(packet.payload[:4], "big") for packet in answers])
    are_back = {packet.payload[24:36] for packet in answers}
    queries = [packet.payload for packet in captures["host0"] if packet.payload[:12] in are_back]
    forth = np.array([int.from_bytes(payload[:4], "big") for payload in queries])
    with capsys.disabled():
        print(
            f"\nnetem dropped {dropped}, and full sockets {full}: told {loss.forth} there,"
            f" {loss.back} back, {loss.where_unknown} nobody knows where; overtaken as tcpdump saw"
            f" {_overtaken(forth)} there, {_overtaken(back)} back: told {order.reordered_forth},"
            f" {order.reordered_back}"
        )
    assert [loss.forth, loss.back] == dropped
    assert [loss.sender_socket, loss.reflector_socket] == full
    assert (loss.where_unknown, loss.of_ends) == (0, sum(full))
    assert order.reordered_forth == _overtaken(forth) > 20
    assert order.reordered_back == _overtaken(back) > 20
    assert order.duplicated_forth == order.duplicated_back == 0


def test_one_way_is_within_its_error_of_clocks_that_are_apart(
    guests: Guests, capsys: pytest.CaptureFixture[str]
) -> None:
    """The far clock leads and gains; who keeps it says so, and later says less than is true."""
    guests.netem("delay 1ms", "delay 3ms")
    captures: dict[str, list[Packet]] = {}
    with guests.captured(captures):
        guests.start("--rate=200", "--duration=1s").end()
    low_ns, high_ns = _lead(captures, 0, 1 << 62)
    _set_clock(guests.near, 0, 0, NEAR_ERROR_US)
    _set_clock(guests.far, OFFSET_NS - (low_ns + high_ns) // 2, GAIN_PPM, FAR_ERROR_US)
    captures.clear()
    with guests.captured(captures):
        told = guests.start("--rate=200", "--duration=10s").end()
        _set_clock(guests.near, 0, 0, 10)
        _set_clock(guests.far, 100 * OFFSET_NS, 0, 10)
        denied = guests.start("--rate=200", "--duration=1s").end()
    sent_ns, one_way = told.passages.departed_ns, told.record.one_way
    begin_ns, end_ns = int(sent_ns.min()), int(sent_ns.max())
    leads = [_lead(captures, at, at + 10**9) for at in (begin_ns, end_ns - 10**9)]
    assert one_way.error_ns is not None
    assert one_way.forth is not None
    assert one_way.back is not None
    gained_ppm = [
        (leads[1][at] - leads[0][1 - at]) / (end_ns - begin_ns - 1e9) * 1e6 for at in (0, 1)
    ]
    with capsys.disabled():
        print(
            f"\nthe far clock leads by {leads[0][0] / 1e6:.3f} to {leads[0][1] / 1e6:.3f} ms, later"
            f" by {leads[1][0] / 1e6:.3f} to {leads[1][1] / 1e6:.3f} ms ({gained_ppm[0]:.0f} to"
            f" {gained_ppm[1]:.0f} ppm); printed error {one_way.error_ns / 1e6:.3f} ms; one way"
            f" {one_way.forth.ns_p50 / 1e6:.3f} ms there, {one_way.back.ns_p50 / 1e6:.3f} ms back;"
            f" with clocks that lie: {denied.record.one_way.withheld_because}"
        )
    assert gained_ppm[0] <= GAIN_PPM <= gained_ppm[1]
    # It gains from when it was set until packets leave, too.
    assert leads[1][1] > OFFSET_NS
    assert max(abs(lead) for pair in leads for lead in pair) <= one_way.error_ns
    assert not told.record.ends.reflector or not told.record.ends.reflector.same_clock
    # A lead makes one way longer, and the other as much shorter: no more than the error.
    assert abs(one_way.forth.ns_min - 1_000_000) <= one_way.error_ns
    assert denied.record.one_way.error_ns is None
    assert "contradict" in (denied.record.one_way.withheld_because or "")


def test_a_clock_that_is_set_is_named_and_is_not_the_network(
    guests: Guests, capsys: pytest.CaptureFixture[str]
) -> None:
    guests.netem("delay 0us", "delay 0us")
    asked = guests.start("--rate=100", "--duration=10min")
    for step_ns in (5 * 10**9, -3 * 10**9, 10**9, -5 * 10**9, 2 * 10**9):
        for guest in (guests.near, guests.far):
            time.sleep(0.5)
            _set_clock(guest, step_ns, 0, NEAR_ERROR_US)
    summary, record, _ = asked.stop()
    steps = [record.ends.clock.steps, record.ends.reflector_clock.steps]
    with capsys.disabled():
        print(f"\n5 steps of 1 to 5 s at each end: {steps} told; {summary['latency_ns_max']} ns")
    assert steps == [5, 5]
    assert summary["latency_ns_max"] < 10**9
    assert (record.loss.lost, record.contradictory) == (0, 0)
    assert record.one_way.error_ns is None
