"""DPDK's drivers of real cards, on cards that QEMU emulates: what they do and count, not how fast.

The guest has an IOMMU and four cards of each kind, which two cables join in pairs: from the
generator to the device, and back. The cables of two more cards lead to another guest.
"""

from __future__ import annotations

import base64
import json
import signal
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from booted_guest import Inside, booted, qemu_with
from captures import pcapng_packets, unzstd
from package_inside import libraries

from tailscope.platforms.accelerator import machine
from tailscope.platforms.vm import _Ports
from tailscope.testbed.process import find_binary
from tailscope.testbed.wires import Side

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tailscope.testbed.places import Process

pytestmark = pytest.mark.long

MODULES = ("e1000e", "igb", "igbvf", "virtio_pci", "virtio_net", "vmxnet3")
MODULES += ("vfio_pci", "vfio_iommu_type1")
IOMMU = ["-device", "intel-iommu,intremap=on,caching-mode=on,device-iotlb=on"]
MAC = "02:00:00:00:00:10"
WAIT_S = 300
HERE = Path(__file__).parent
PTP_V2_EVENT, FRAMES = 12, 10
QEMU = [
    Path("/usr/bin/qemu-system-x86_64"),
    Path("/usr/share/seabios/bios-256k.bin"),
    Path("/usr/share/qemu/kvmvapic.bin"),
    Path("/usr/lib/x86_64-linux-gnu/qemu/accel-tcg-x86_64.so"),
]
"""What a guest of the guest starts with."""


class Kind(NamedTuple):
    """A kind of card."""

    device: str
    """Options of QEMU."""
    driver: str
    """Name of DPDK's driver."""
    slot: int
    """First of its four slots."""
    has_functions: bool = False

    @property
    def cards(self) -> list[str]:
        """Return the addresses: those of the generator, then those of the device."""
        if self.has_functions:
            return [f"0000:{number:02x}:00.0" for number in range(1, 5)]
        return [f"0000:00:{self.slot + number:02x}.0" for number in range(4)]

    def options(self, hub: int) -> list[str]:
        """Return four cards as options of QEMU; virtual functions need a port of PCI Express."""
        options = []
        for number in range(4):
            name, slot = f"{self.driver}{number}", f"{self.slot + number:#x}"
            options += ["-netdev", f"hubport,id={name},hubid={hub + number % 2}"]
            where = f"bus=pcie.0,addr={slot}"
            if self.has_functions:
                chassis = f"chassis={self.slot + number}"
                options += ["-device", f"pcie-root-port,id=port{slot},{chassis},{where}"]
                where = f"bus=port{slot}"
            mac = f"52:54:00:00:00:{self.slot + number:02x}"
            options += ["-device", f"{self.device},netdev={name},mac={mac},romfile=,{where}"]
        return options


KINDS = {
    "e1000e": Kind("e1000e", "net_e1000_em", 0x4),
    "vmxnet3": Kind("vmxnet3", "net_vmxnet3", 0x8),
    "virtio": Kind("virtio-net-pci,iommu_platform=on,disable-legacy=on", "net_virtio", 0xC),
    "igb": Kind("igb", "net_e1000_igb", 0x10, has_functions=True),
}


CABLED = ["0000:00:14.0", "0000:00:15.0"]
"""Cards whose cables lead to another guest, which has them in the same slots."""


def cabled(cables: Sequence[Path], *, serves: bool) -> list[str]:
    """Return the cards at one end of cables as options of QEMU; the other end is another QEMU."""
    options = []
    for number, (card, path) in enumerate(zip(CABLED, cables, strict=True)):
        socket = f"server={'on' if serves else 'off'},addr.type=unix,addr.path={path}"
        mac = f"52:54:00:00:0{2 - serves}:{number:02x}"
        where = f"bus=pcie.0,addr={card[8:10]}"
        options += ["-netdev", f"stream,id=cable{number},{socket}"]
        options += ["-device", f"e1000e,netdev=cable{number},mac={mac},romfile=,{where}"]
    return options


@pytest.fixture(scope="module")
def cables(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Name the sockets that stand for the cables between two guests."""
    folder = tmp_path_factory.mktemp("cables")
    return [folder / "there", folder / "back"]


@pytest.fixture(scope="module")
def inside(tmp_path_factory: pytest.TempPathFactory, cables: list[Path]) -> Iterator[Inside]:
    """Boot the guest once."""
    qemu = qemu_with("igb")
    cards = [
        option for hub, kind in enumerate(KINDS.values()) for option in kind.options(2 * hub + 1)
    ]
    parameters = "intel_iommu=on iommu=pt hugepages=256"
    devices = [*IOMMU, *cards, *cabled(cables, serves=True)]
    folder = tmp_path_factory.mktemp("cards")
    files = [*QEMU, *libraries(QEMU[:1])]
    with booted(
        folder, devices, qemu=qemu, modules=MODULES, files=files, parameters=parameters
    ) as inside:
        yield inside


BIND = """
driver=$1; shift
[ $driver != kernel ] || driver=
for card; do
    device=/sys/bus/pci/devices/$card
    echo $driver >$device/driver_override
    [ ! -e $device/driver ] || echo $card >$device/driver/unbind
    echo $card >/sys/bus/pci/drivers_probe
done
"""

STATE = """
cd /sys/bus/pci
printf '%s\\n' drivers/*/0000:* devices/*/iommu_group/devices/* devices/*/net/* \\
    devices/*/virtio*/net/* /var/run/netns/*
grep -s . devices/*/driver_override devices/*/sriov_numvfs devices/*/sriov_drivers_autoprobe \\
    /sys/class/net/*/address /sys/class/net/*/flags /sys/class/net/*/mtu || true
grep HugePages /proc/meminfo
"""


@contextmanager
def lent(inside: Inside, cards: Sequence[str]) -> Iterator[None]:
    """Bind cards to vfio-pci within a block; the machine is as before afterwards."""
    before = state(inside)
    inside.shell(BIND, "vfio-pci", *cards)
    try:
        assert state(inside) != before
        yield
    finally:
        inside.shell(BIND, "kernel", *cards)
    assert state(inside) == before


@contextmanager
def up(inside: Inside, links: Sequence[str]) -> Iterator[None]:
    """Set links up within a block; the machine is as before afterwards."""
    before = state(inside)
    try:
        for link in links:
            inside.run("ip", "link", "set", link, "up")
        yield
    finally:
        for link in links:
            inside.run("ip", "link", "set", link, "down")
    assert state(inside) == before


def state(inside: Inside) -> list[str]:
    """Return the state of the machine: cards with their drivers and links, functions, memory."""
    return inside.shell(STATE).splitlines()


def link_of(inside: Inside, card: str) -> str:
    """Return the name of a card's link."""
    return inside.shell("ls $1/net", f"/sys/bus/pci/devices/{card}").strip()


def forwarded(
    inside: Inside, forwarder: str, sending: Sequence[str], forwarding: Sequence[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Send packets through a forwarder; return the results of both."""
    program, memory = str(find_binary()[0]), ["--in-memory", "-m", "128"]
    command = [program, forwarder, "-l", "2", *memory, *(f"-a{card}" for card in forwarding)]
    with inside.guest.start(forwarder, command, merged=True) as device:
        lines = heard(device, '"event":"ready"')
        command = [program, "gen", "-l", "1", *memory, *(f"-a{card}" for card in sending), "--"]
        command += ["--rate=200", "--duration=2s", "--warm-up=100ms", "--drain=3s"]
        sent = result(inside.run(*command, "--link-timeout=60s").splitlines())
        device.signal(signal.SIGINT)
        lines += heard(device, '"event":"result"')
        assert device.wait_end(WAIT_S)
    return sent, result(lines)


def heard(process: Process, wanted: str) -> list[str]:
    """Return the lines of a process up to the one with these words."""
    lines: list[str] = []
    while not lines or wanted not in lines[-1]:
        line = process.next_line(WAIT_S)
        assert line is not None, process.last_words()
        lines.append(line)
    return lines


def result(lines: Sequence[str]) -> dict[str, Any]:
    """Return the result among the lines of a program."""
    found: dict[str, Any] = next(json.loads(line) for line in lines if '"event":"result"' in line)
    return found


def counts(found: dict[str, Any]) -> list[tuple[str, str, int, int, int]]:
    """Return names, drivers and counters of ports: received, sent, and lost for any reason."""
    lost = ("rx_missed", "rx_errors", "rx_nombuf", "tx_errors")
    return [
        (
            port["name"],
            port["driver"],
            port["rx_packets"],
            port["tx_packets"],
            sum(port[name] for name in lost),
        )
        for port in found["ports"]
    ]


def all_cross(
    inside: Inside,
    forwarder: str,
    sending: Sequence[str],
    forwarding: Sequence[str],
    drivers: tuple[str, str],
) -> str:
    """Check that all packets come back, and that all counters agree; return a row of a table."""
    sent, device = forwarded(inside, forwarder, sending, forwarding)
    own = sent["gen"]
    all_sent = own["sent"] + own["warm_up_sent"]
    # On a busy machine the emulated generator skips most of its schedule.
    assert own["sent"] == own["matched"] > 0
    assert own["duplicated"] == own["corrupt"] == own["foreign"] == 0
    ends = (0, all_sent), (all_sent, 0)
    for found, cards, driver, order in (
        (sent, sending, drivers[0], ends),
        (device, forwarding, drivers[1], ends[::-1]),
    ):
        expected = [(card, driver, *numbers, 0) for card, numbers in zip(cards, order, strict=True)]
        assert counts(found) == expected
    numbers = f"{all_sent:5} {all_sent:8} {own['matched']:7} {own['sent'] - own['matched']:4}"
    return f"{drivers[0]:14} {drivers[1]:16} {forwarder:6} {'+'.join(forwarding)} {numbers}"


HEADER = (
    "generator      device           DuT    cards of the device        sent received matched lost"
)


@pytest.mark.parametrize("name", KINDS)
def test_every_packet_crosses_each_kind_of_card(
    inside: Inside, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is sent, received and matched is what the drivers count; the machine is as before."""
    kind = KINDS[name]
    with lent(inside, kind.cards):
        rows = [
            all_cross(inside, forwarder, kind.cards[:2], kind.cards[2:], (kind.driver,) * 2)
            for forwarder in ("l2fwd", "l3fwd")
        ]
    with capsys.disabled():
        print("", "emulated: counts, no times", HEADER, *rows, sep="\n")


def test_functions_forward_as_cards_do(inside: Inside, capsys: pytest.CaptureFixture[str]) -> None:
    """Virtual functions are made, used and removed by the kernel's driver of their cards."""
    sending, cards = KINDS["igb"].cards[:2], KINDS["igb"].cards[2:]
    drivers = KINDS["igb"].driver, "net_e1000_igb_vf"
    links = [link_of(inside, card) for card in cards]
    with lent(inside, sending), up(inside, links):
        before = state(inside)
        with functions(inside, links, "vfio-pci") as made:
            listed = inside.run("ip", "link", "show", "dev", links[0])
            assert f"link/ether {MAC}" in listed
            assert "spoof checking off" in listed and "trust on" in listed
            row = all_cross(inside, "l2fwd", sending, made, drivers)
        assert state(inside) == before
        with functions(inside, links, "kernel") as made:
            for link in made:
                assert inside.shell("cat $1", f"/sys/class/net/{link}/address").strip() == MAC
                assert "driver: igbvf" in inside.run("ethtool", "-i", link)
        assert state(inside) == before
    with capsys.disabled():
        print("", "emulated: counts, no times", HEADER, row, sep="\n")


def test_cards_are_lent_to_a_measurement(
    inside: Inside, capsys: pytest.CaptureFixture[str]
) -> None:
    """As cells on the machine itself have them, where those of guests have functions."""
    sending, cards = KINDS["igb"].cards[:2], KINDS["igb"].cards[2:]
    links = [link_of(inside, card) for card in cards]
    with lent(inside, sending), up(inside, links):
        before = state(inside)
        with inside.start_python(HERE / "lent_inside.py", *cards) as process:
            heard(process, "lent")
            row = all_cross(inside, "l2fwd", sending, cards, (KINDS["igb"].driver,) * 2)
            process.signal(signal.SIGTERM)
            heard(process, "given back")
        assert state(inside) == before
    with capsys.disabled():
        print("", "emulated: counts, no times", HEADER, row, sep="\n")


@contextmanager
def functions(inside: Inside, links: Sequence[str], driver: str) -> Iterator[list[str]]:
    """Make virtual functions as a laboratory does, within a block."""
    with inside.start_python(HERE / "functions_inside.py", driver, MAC, *links) as process:
        made = json.loads(heard(process, "[")[-1])
        try:
            yield made
        finally:
            process.signal(signal.SIGTERM)
            heard(process, "removed")


def test_a_card_for_ptp_only_is_refused_by_name(
    inside: Inside, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The 82576 stamps frames of PTP only: it is named, and ordinary frames get no time of it.

    Those of PTP are samples of its clock. QEMU's card has room for one, and makes more when a
    register is read (RXSATRH) that Linux's driver never reads.
    """
    sending, receiving, beside = (
        link_of(inside, card) for card in (*KINDS["igb"].cards[::2], KINDS["e1000e"].cards[0])
    )
    # The kernel sends frames of its own by IPv6.
    inside.shell("echo 1 >/proc/sys/net/ipv6/conf/$1/disable_ipv6", sending)
    with up(inside, (sending, receiving, beside)):
        output = inside.python(HERE / "ptp_inside.py", sending, receiving, beside)
    found = json.loads(output.split("found ")[-1])
    assert found["offer"]["stamps"] and not found["offer"]["stamps_all"]
    assert found["by_cards"] is False and found["during"] == [0, 0, 0]
    assert f"{receiving} timestamps only some" in found["warnings"][0]
    assert f"{beside} " not in found["warnings"][0]
    assert found["after"] == [0, 0, PTP_V2_EVENT]
    assert found["ordinary"]["counts"] == [FRAMES, 0, FRAMES]
    samples = found["ptp"]
    assert samples["counts"] == [FRAMES, 1, FRAMES - 1]
    capture = tmp_path / "pre.pcapng.zst"
    capture.write_bytes(base64.b64decode(samples["capture"]))
    [packet] = pcapng_packets(unzstd(capture))
    before_ns, after_ns = samples["between"][0]
    assert before_ns <= packet.ts <= after_ns
    with capsys.disabled():
        within = f"{packet.ts - before_ns} of {after_ns - before_ns} ns after its sending"
        print(f"\nigb: 1 of {FRAMES} frames of PTP stamped, {within}; 0 of {FRAMES} others")


def test_cards_are_handed_to_a_guest_of_the_guest(
    inside: Inside, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the platform hands them over; whether its system would take them is not tried."""
    cards = KINDS["igb"].cards[:2]
    command = [*machine("tcg", cpus=1, memory_mb=128), "-S", "-monitor", "stdio"]
    command += _Ports(Side(devices=tuple(cards)), polled=True).devices
    with lent(inside, cards):
        said = inside.shell('printf "info pci\\nquit\\n" | "$@" 2>&1', *command)
    assert said.count("PCI device 8086:10c9") == len(cards), said
    with capsys.disabled():
        found = [line.strip() for line in said.splitlines() if "Ethernet" in line]
        print("", "emulated: cards in a guest of the guest", *found, sep="\n")


def test_a_run_over_cards(inside: Inside, capsys: pytest.CaptureFixture[str]) -> None:
    """The whole measurement, by the command line, in the guest."""
    kind = KINDS["e1000e"]
    options = [f"generator={'+'.join(kind.cards[:2])}", f"dut={'+'.join(kind.cards[2:])}"]
    command = ["run", "--dut", "l2fwd", "--wire", "pci"]
    command += [word for option in options for word in ("--wire-option", option)]
    command += ["--rate", "200", "--duration", "2s", "--warm-up", "100ms", "--noise", "stalls"]
    with lent(inside, kind.cards):
        inside.run(Path(sys.executable).resolve(), "-m", "tailscope", *command, "--out", "/run/out")
    info = json.loads(inside.shell("cat /run/out/run.json"))
    summary = json.loads(inside.shell("cat /run/out/summary.json"))
    assert info["dut"]["result"]["ports"][0]["driver"] == kind.driver
    assert summary["sent"] == summary["count"] > 0
    assert "EMULATED" in inside.shell("cat /run/out/report.html")
    with capsys.disabled():
        print("\nemulated: tailscope run:", {name: summary[name] for name in ("sent", "count")})


BRIDGE = """
echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6
ip link add br0 type bridge mcast_snooping 0
for link in "$@" br0; do
    echo 1 >/proc/sys/net/ipv6/conf/$link/disable_ipv6
done
for link; do
    ip link set $link master br0
done
for link in "$@" br0; do
    ip link set $link up
done
"""


@pytest.fixture
def beyond(inside: Inside, cables: list[Path], tmp_path: Path) -> Iterator[Inside]:
    """Boot a second guest, at the other ends of the first one's cables."""
    modules = ("e1000e", "bridge", "vfio_pci", "vfio_iommu_type1")
    devices = [*IOMMU, *cabled(cables, serves=False)]
    parameters = "intel_iommu=on iommu=pt hugepages=128"
    with booted(
        tmp_path, devices, qemu=qemu_with("e1000e"), modules=modules, parameters=parameters
    ) as beyond:
        yield beyond


def test_the_device_is_another_guest(
    inside: Inside, beyond: Inside, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two cards of this guest send and receive; what forwards between them is another machine."""
    driver, rows = KINDS["e1000e"].driver, []
    program, memory = str(find_binary()[0]), ["--in-memory", "-m", "128"]
    command = [program, "l2fwd", "-l", "2", *memory, *(f"-a{card}" for card in CABLED)]
    with lent(inside, CABLED):
        with lent(beyond, CABLED), beyond.guest.start("l2fwd", command, merged=True) as device:
            lines = heard(device, '"event":"ready"')
            sent, row = sent_through(inside, "l2fwd of another guest")
            rows.append(row)
            device.signal(signal.SIGINT)
            lines += heard(device, '"event":"result"')
            assert device.wait_end(WAIT_S)
        first, second = CABLED
        expected = [(first, driver, sent, 0, 0), (second, driver, 0, sent, 0)]
        assert counts(result(lines)) == expected
        links = [link_of(beyond, card) for card in CABLED]
        beyond.shell(BRIDGE, *links)
        before = [statistics(beyond, link) for link in links]
        sent, row = sent_through(inside, "bridge of another kernel")
        rows.append(row)
        after = [statistics(beyond, link) for link in links]
    grown = [(new[0] - old[0], new[1] - old[1]) for old, new in zip(before, after, strict=True)]
    assert grown == [(sent, 0), (0, sent)]
    with capsys.disabled():
        header = f"{'device':25} cards of the generator         sent received matched lost"
        print("", "emulated: counts, no times", header, *rows, sep="\n")


def sent_through(inside: Inside, what: str) -> tuple[int, str]:
    """Send packets by one cabled card; all come back by the other. Return how many, and a row."""
    command = [find_binary()[0], "gen", "-l", "1", "--in-memory", "-m", "128"]
    command += [f"-a{card}" for card in CABLED] + ["--", "--rate=200", "--duration=2s"]
    command += ["--warm-up=100ms", "--drain=3s", "--link-timeout=60s"]
    found = result(inside.run(*command).splitlines())
    own, driver = found["gen"], KINDS["e1000e"].driver
    sent = own["sent"] + own["warm_up_sent"]
    assert own["sent"] == own["matched"] > 0
    assert own["duplicated"] == own["corrupt"] == own["foreign"] == 0
    assert counts(found) == [(CABLED[0], driver, 0, sent, 0), (CABLED[1], driver, sent, 0, 0)]
    numbers = f"{sent:5} {sent:8} {own['matched']:7} {own['sent'] - own['matched']:4}"
    return sent, f"{what:25} {'+'.join(CABLED)} {numbers}"


def statistics(inside: Inside, link: str) -> tuple[int, int]:
    """Return the packets that a link has received, and those that it has sent."""
    folder = f"/sys/class/net/{link}/statistics"
    received, sent = inside.shell("cat $1/rx_packets $1/tx_packets", folder).split()
    return int(received), int(sent)
