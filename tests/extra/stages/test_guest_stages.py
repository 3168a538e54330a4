"""The packets of a flow in kernels that this machine does not run, against their own counters."""

from __future__ import annotations

import io
import itertools
import json
import signal
import struct
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from foreign.files import packet, pcap
from foreign.frames import SERVER, udp_frame
from guests import NETWORK, booted, fetch, kernel
from runs import needed

from tailscope.extra.stages.follower import compiled_flow
from tailscope.testbed.process import find_binary
from tailscope.testbed.programs import which

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tailscope.platforms.guest import Guest
    from tailscope.testbed.places import Process

pytestmark = pytest.mark.long

PROGRAMS = ("perl", "tc", "nft", "nstat", "tcpreplay", "iperf3", "ethtool", "ping", "wg")
MODULES = ("veth", "sch_tbf", "crc32c_generic", "nf_tables", "wireguard")
PATIENCE_S = 240
PACKETS = 300
PINGS = 40
MAGIC = 0xF57473A1
"""The beginning of a probe's payload."""
LONG = 2000
"""Rules that a packet passes in a long chain."""
RULES = """
table inet loss {
    chain forward {
        type filter hook forward priority 0;
        udp dport 5001 counter comment "udp"
        tcp dport 5201 counter comment "tcp"
        udp dport 51820 counter comment "outer"
        udp dport 5001 @th,64,32 & 7 == 5 counter drop comment "dropped"
    }
}
"""
SOCKET = """
socket(S, 2, 2, 17) && setsockopt(S, 1, 8, pack("i", 4096)) or die $!;
bind(S, pack("SnA4x8", 2, 5001, pack("N", 0))) or die $!;
syswrite(STDOUT, "ready\\n");
sleep(1000);
"""
"""A socket of UDP with room for a few packets, which nobody reads."""
TUNNEL = """
set -e
ip() { /bin/env ip "$@"; }
for role in client server; do
    wg genkey >/tmp/$role.key
    ip -n $role link add wg0 type wireguard
done
ip netns exec client wg set wg0 listen-port 51820 private-key /tmp/client.key \\
    peer "$(wg pubkey </tmp/server.key)" allowed-ips 10.9.0.2/32 endpoint 10.2.0.2:51820
ip netns exec server wg set wg0 listen-port 51820 private-key /tmp/server.key \\
    peer "$(wg pubkey </tmp/client.key)" allowed-ips 10.9.0.1/32 endpoint 10.1.0.2:51820
ip -n client address add 10.9.0.1/24 dev wg0
ip -n server address add 10.9.0.2/24 dev wg0
ip -n client link set wg0 up
ip -n server link set wg0 up
"""
XDP = """
#include <linux/bpf.h>
__attribute__((section("xdp"), used)) int pass(struct xdp_md *context) { return XDP_PASS; }
"""


class Inside(NamedTuple):
    """A client, a router and a server in a guest."""

    guest: Guest
    lacking: set[str]
    """Tracepoints that its kernel does not have."""
    traffic: Path
    probes: Path
    """As many packets with the payload of tailscope's probes."""
    program: Path
    """A program of XDP that lets everything pass."""

    def run(self, role: str, *words: object) -> str:
        return self.guest.run(_in(role, *words), timeout_s=PATIENCE_S)

    def start(self, role: str, *words: object) -> Process:
        return self.guest.start(str(words[0]), _in(role, *words), merged=True)

    def counters(self) -> dict[str, int]:
        """Return the packets that rules of the router have counted."""
        listed = json.loads(self.run("router", "nft", "-j", "list", "ruleset"))["nftables"]
        rules = [entry["rule"] for entry in listed if "rule" in entry]
        return {
            rule["comment"]: each["counter"]["packets"]
            for rule in rules
            for each in rule["expr"]
            if "counter" in each
        }

    def recorded(
        self, program: str, *options: str, traffic: Callable[[], object]
    ) -> dict[str, Any]:
        """Let a program of the data plane record while there is traffic; return its result."""
        binary, _ = find_binary()
        recorder = self.guest.start(program, [str(binary), program, "--", *options], merged=True)
        first = recorder.next_line(PATIENCE_S) or ""
        assert "ready" in first, (first, recorder.last_words())
        traffic()
        recorder.signal(signal.SIGTERM)
        lines = [*iter(lambda: recorder.next_line(PATIENCE_S), None)]
        found: dict[str, Any] = json.loads(lines[-1])
        return found

    def followed(self, flow: str, traffic: Callable[[], object]) -> dict[str, Any]:
        """Follow a flow while there is traffic; check that its sums are right."""
        found = self.recorded("flow", f"--filter={compiled_flow(flow)}", traffic=traffic)
        for way in found["flow"]["ways"]:
            assert sum(stage["ns_total"] for stage in way["stages"]) == way["latency_ns_total"]
            assert way["packets"] == way["whole"], way
        assert set(found["cost"]["lacking"]) == self.lacking
        assert (found["cost"]["lost"], found["flow"]["late"]) == (0, 0)
        assert found["cost"]["ns_total"] > 0
        return found


def _in(role: str, *words: object) -> list[str]:
    return ["ip", "netns", "exec", role, *map(str, words)]


@pytest.fixture(
    scope="module",
    params=[
        ("vanilla", "6.1", {"sk_data_ready", "sock_recv_length", "tcp_sendmsg_locked"}),
        ("osnoise", "6.12", {"tcp_sendmsg_locked"}),
    ],
    ids=lambda kind: kind[1],
)
def inside(
    request: pytest.FixtureRequest, dataplane: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Inside]:
    """One guest for all tests of a kernel: it needs no root here."""
    needed(*PROGRAMS, "tcpdump", "clang")
    kind, release, lacking = request.param
    found = kernel(kind)
    if not found.release.startswith(f"{release}."):
        pytest.skip(f"no kernel {release} for guests: {found.release}")
    folder = tmp_path_factory.mktemp("guest")
    names = ("udp.pcap", "probes.pcap", "xdp.c", "xdp.o")
    traffic, probes, source, program = (folder / name for name in names)
    traffic.write_bytes(pcap([packet(10**18 + n, udp_frame(n)) for n in range(PACKETS)]))
    payloads = [struct.pack(">IQ6x", MAGIC, number) for number in range(PACKETS)]
    frames = [udp_frame(0, dport=5005, payload=payload) for payload in payloads]
    probes.write_bytes(pcap([packet(10**18 + n, frame) for n, frame in enumerate(frames)]))
    source.write_text(XDP)
    headers = "-I/usr/include/x86_64-linux-gnu"
    command = ["clang", "-target", "bpf", "-O2", "-g", headers, "-c", source, "-o", program]
    subprocess.run(command, check=True)
    with booted(
        found,
        folder,
        modules=MODULES,
        programs=[dataplane, *(Path(str(which(name))) for name in PROGRAMS)],
        files=[traffic, probes, program],
        memory_mb=1024,
    ) as guest:
        guest.run(["sh", "-c", NETWORK], timeout_s=PATIENCE_S)
        inside = Inside(guest, lacking, traffic, probes, program)
        rules = guest.write("rules", RULES)
        inside.run("router", "nft", "-f", rules)
        yield inside


def ways_of(found: dict[str, Any]) -> dict[str, int]:
    return {way["way"]: way["packets"] for way in found["flow"]["ways"]}


def drops_of(found: dict[str, Any]) -> dict[tuple[str, str], int]:
    return {(drop["reason"], drop["stage"]): drop["packets"] for drop in found["flow"]["drops"]}


def ended(found: dict[str, Any]) -> int:
    """Return the packets that the kernel took.

    Of an answer that a raw socket has read it says that no socket of its own kind wanted it.
    """
    drops = drops_of(found)
    unwanted = drops.pop(("NO_SOCKET", "stack"), 0)
    assert not drops
    return ways_of(found)["kernel"] + unwanted


def test_drops_of_datagrams_are_those_that_the_kernel_counts(inside: Inside) -> None:
    """A rule of the router drops every eighth, its queue some; nobody reads the rest."""
    shaper = "rate 50kbit burst 1500 limit 1500"
    inside.run("router", "tc", "qdisc", "add", "dev", "tap-out", "root", "tbf", *shaper.split())
    reader = inside.start("server", "perl", "-e", SOCKET)
    assert reader.next_line(PATIENCE_S) == "ready"

    def send() -> None:
        inside.run("client", "tcpreplay", "-q", "-t", "-i", "eth0", inside.traffic)
        inside.run("router", "sleep", 1)

    try:
        found = inside.followed("udp dst port 5001", send)
        queues = inside.run("router", "tc", "-s", "-j", "qdisc", "show", "dev", "tap-out")
        errors = int(inside.run("server", "nstat", "-az", "UdpRcvbufErrors").split()[-2])
    finally:
        inside.run("router", "tc", "qdisc", "del", "dev", "tap-out", "root")
        reader.kill()
    [queue] = json.loads(queues)
    counted = inside.counters()
    assert counted["udp"] == PACKETS
    expected = {
        ("NETFILTER_DROP", "stack"): counted["dropped"],
        ("QDISC_DROP", "qdisc"): queue["drops"],
        ("SOCKET_RCVBUFF", "stack"): errors,
    }
    assert drops_of(found) == expected
    assert min(expected.values()) > 0
    forwarded = PACKETS - counted["dropped"] - queue["drops"]
    ways = ways_of(found)
    assert (ways["queued"], ways["forwarded"]) == (PACKETS, forwarded)
    waiting = found["flow"]["waiting" if "sk_data_ready" not in inside.lacking else "unended"]
    assert waiting == forwarded - errors


def test_every_probe_is_seen_at_every_point(inside: Inside) -> None:
    if "sk_data_ready" in inside.lacking:
        pytest.skip("kernels before 6.12 tell nothing of probes")
    namespace = inside.run("router", "readlink", "/proc/self/ns/net").strip().strip("net:[]")
    files = [f"/sys/class/net/{link}/ifindex" for link in ("tap-in", "tap-out")]
    entering, leaving = map(int, inside.run("router", "cat", *files).split())
    found = inside.recorded(
        "stages",
        f"--namespace={namespace}",
        f"--links={entering},{leaving}",
        "--record=/tmp",
        traffic=lambda: inside.run("client", "tcpreplay", "-q", "-t", "-i", "eth0", inside.probes),
    )
    assert (found["events"], found["lost"]) == (4 * PACKETS, 0)
    events = np.load(io.BytesIO(fetch(inside.guest, f"/tmp/{found['file']}")))
    for point, link in enumerate((entering, entering, leaving, leaving)):
        here = events[events["point"] == point]
        assert (here["ifindex"] == link).all()
        assert sorted(here["seq"]) == [*range(PACKETS)]
        # The links have no queue, which is told where a packet comes to one.
        assert (here["reason"] == (point == 2)).all()
    times = [events["tsc"][events["point"] == point] for point in range(4)]
    assert all((later >= sooner).all() for sooner, later in itertools.pairwise(times))


def test_a_long_ruleset_is_a_stage_of_its_own(
    inside: Inside, capsys: pytest.CaptureFixture[str]
) -> None:
    """What thousands of rules take is no part of the stack."""
    medians = []
    for rules in (0, LONG):
        each = "\n".join(f"udp dport {10_000 + number} drop" for number in range(rules))
        chain = f"chain long {{ type filter hook forward priority 1;\n{each}\n}}"
        table = inside.guest.write("long", f"table ip long {{\n{chain}\n}}\n")
        inside.run("router", "nft", "-f", table)
        found = inside.followed(
            "icmp", lambda: inside.run("client", "ping", "-q", "-c", PINGS, "-i", 0.05, SERVER)
        )
        inside.run("router", "nft", "delete", "table", "ip", "long")
        [way] = [way for way in found["flow"]["ways"] if way["way"] == "forwarded"]
        assert way["packets"] == 2 * PINGS
        quantiles = {stage["stage"]: stage["ns_quantiles"][0] for stage in way["stages"]}
        medians.append((quantiles["stack"], quantiles["netfilter"]))
    with capsys.disabled():
        print(f"\n{LONG} rules: stack and netfilter {medians[1]} ns, without {medians[0]} ns")
    (stack, without), (long_stack, with_rules) = medians
    assert 0 < without < with_rules / 4
    assert 0 < long_stack < 2 * stack


def test_a_stream_is_followed_to_its_reader(inside: Inside) -> None:
    server = inside.start("server", "iperf3", "-s", "-1", "--forceflush")
    while "listening" not in (line := server.next_line(PATIENCE_S) or ""):
        assert server.is_running, line
    found = inside.followed(
        f"tcp dst port 5201 and dst host {SERVER}",
        lambda: inside.run("client", "iperf3", "-c", SERVER, "-n", "500K"),
    )
    ways, flow = ways_of(found), found["flow"]
    counted = inside.counters()["tcp"]
    assert (ways["forwarded"], flow["unended"]) == (counted, 0)
    # The kernel gives no reason for which handshakes end, and since 6.12 one for what its socket
    # still held when it was closed.
    drops = drops_of(found)
    assert drops.keys() <= {("NOT_SPECIFIED", "stack"), ("QUEUE_PURGE", "stack")}
    ended = ways["received"] + ways["kernel"] + flow["acknowledgements"] + flow["merged"]
    # What has come when iperf3 ends its server does not read.
    assert ended + sum(drops.values()) + flow["waiting"] == counted
    # A long packet is divided behind its queue: its parts are forwarded, and it is sent as one.
    sent, divided = ways["queued"] + ways.get("sent", 0), flow["segmented"]
    assert sent + divided <= counted
    assert divided > 0 or sent == counted


def test_inner_and_outer_packets_of_a_tunnel_are_one(inside: Inside) -> None:
    inside.guest.run(["sh", "-c", TUNNEL], timeout_s=PATIENCE_S)
    counted: dict[str, int] = {}

    def ping() -> None:
        inside.run("client", "ping", "-q", "-c", PINGS, "-i", 0.05, "10.9.0.2")
        # Ten seconds later the tunnel sends a packet of its own.
        counted.update(inside.counters())

    found = inside.followed("icmp or udp port 51820", ping)
    ways, outer = ways_of(found), counted["outer"]
    assert outer >= 2 * PINGS
    # The end of a handshake's packet may be untold.
    assert found["flow"]["unended"] <= 2
    assert ended(found) + found["flow"]["unended"] == outer
    assert (ways["queued"], ways["forwarded"]) == (outer, outer)


def test_programs_of_xdp_are_listed_with_their_runs(inside: Inside) -> None:
    link = ("dev", "eth0", "xdpgeneric")
    inside.run("server", "ip", "link", "set", *link, "obj", inside.program, "sec", "xdp")
    found = inside.followed(
        "icmp", lambda: inside.run("client", "ping", "-q", "-c", PINGS, "-i", 0.05, SERVER)
    )
    inside.run("server", "ip", "link", "set", *link, "off")
    [program] = found["xdp"]
    assert program["calls"] >= PINGS
    assert program["ns_total"] > 0
    ways = ways_of(found)
    assert (ways["queued"], ways["forwarded"], ended(found)) == (2 * PINGS,) * 3
