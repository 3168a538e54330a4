"""GTP-U whose other end is the kernel's, in a guest: no host of ours need have that module.

Two cables join the generator to a namespace, where a device `gtp` of the kernel takes the tunnel
off and puts it on. In the guest time passes by instructions, so that a busy machine loses nothing.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from guests import booted, kernel
from package_inside import libraries
from runs import needed

from tailscope.testbed.process import find_binary
from tailscope.testbed.programs import which

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tailscope.platforms.guest import Guest

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("dataplane")]

PATIENCE_S = 300.0
TEID_IN, TEID_OUT = 7, 8
PORTS = ("02:00:00:00:00:01", "02:00:00:00:00:02")
MAC = "02:00:00:00:00:10"
"""To which the generator sends."""
GATEWAY = f"""
ip() {{ /bin/env ip "$@"; }}
mkdir -p /run
for f in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 1 >$f; done
ip netns add gateway
inside() {{ nsenter --net=/run/netns/gateway "$@"; }}
inside sh -c 'echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6'
inside sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
ip link add port0 address {PORTS[0]} type veth peer name n3 address {MAC} netns gateway
ip link add port1 address {PORTS[1]} type veth peer name n6 address {MAC} netns gateway
ip link set port0 up
ip link set port1 up
for link in lo n3 n6; do ip -n gateway link set $link up; done
ip -n gateway address add 192.0.2.2/24 dev n3
ip -n gateway address add 10.0.1.254/24 dev n6
ip -n gateway neigh replace 192.0.2.1 lladdr {PORTS[0]} dev n3
ip -n gateway neigh replace 10.0.1.1 lladdr {PORTS[1]} dev n6
ip -n gateway link add gtp0 type gtp role ggsn
ip -n gateway link set gtp0 up
ip -n gateway route add 10.0.0.0/24 dev gtp0
inside gtp_context gtp0 {TEID_IN} {TEID_OUT} 192.0.2.1 10.0.0.1
"""
MEMORY = ("-l", "0", "--no-huge", "-m", "128", "--no-pci", "--no-telemetry")
CABLES = ("--vdev=net_af_packet0,iface=port0", "--vdev=net_af_packet1,iface=port1")
TRAFFIC = ("--rate=500", "--duration=1s", "--warm-up=100ms", "--drain=1s", "--size=128")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guest]:
    """Boot a guest whose kernel ends a tunnel."""
    needed("cc", "ip", "nsenter")
    folder = tmp_path_factory.mktemp("guest")
    context = folder / "gtp_context"
    source = Path(__file__).with_name("gtp_context.c")
    subprocess.run(["cc", "-static", "-O1", "-o", context, source], check=True)
    drivers = [
        path
        for pmds in Path("/usr/lib/x86_64-linux-gnu/dpdk").glob("pmds-*")
        for path in pmds.glob("librte_net_af_packet.so*")
    ]
    with booted(
        kernel("vanilla"),
        folder,
        modules=["af_packet", "veth", "gtp"],
        programs=[find_binary()[0], context, *filter(None, [which("nsenter")])],
        files=[*drivers, *libraries(drivers)],
        dpdk=True,
        counted=True,
    ) as guest:
        guest.run(["sh", "-ec", GATEWAY], timeout_s=PATIENCE_S)
        yield guest


def passed(gateway: Guest) -> tuple[int, int]:
    """Return how many packets the kernel's device took out of the tunnel, and put into it."""
    shown = gateway.run(["ip", "-n", "gateway", "-j", "-s", "link", "show", "gtp0"])
    [device] = json.loads(shown)
    return device["stats64"]["rx"]["packets"], device["stats64"]["tx"]["packets"]


@pytest.mark.parametrize(
    ("teid", "is_known"), [(TEID_IN, True), (TEID_IN + 1, False)], ids=["own", "other"]
)
def test_the_kernel_takes_the_tunnel_off_and_puts_it_on(
    gateway: Guest, teid: int, *, is_known: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each packet is counted by both; one for another end is lost in the kernel, and so counted."""
    before = passed(gateway)
    tunnel = f"--encap=gtpu:teid={teid},src=192.0.2.1,dst=192.0.2.2"
    command = [str(find_binary()[0]), "gen", *MEMORY, *CABLES, "--", *TRAFFIC, tunnel]
    output = gateway.run([*command, "--direction=both"], timeout_s=PATIENCE_S)
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    [there] = [line["gen"] for line in lines if line["event"] == "result"]
    back = there["back"]
    off, on = (now - then for now, then in zip(passed(gateway), before, strict=True))
    sent = there["sent"] + there["warm_up_sent"]
    with capsys.disabled():
        print(
            f"\nTEID {teid}: {sent} sent there, the kernel took {off} off, {there['matched']} of"
            f" {there['sent']} came; {back['sent'] + back['warm_up_sent']} sent back, the kernel"
            f" put {on} on, {back['matched']} of {back['sent']} came"
        )
    assert there["sent"] > 400
    assert off == (sent if is_known else 0)
    assert there["matched"] == (there["sent"] if is_known else 0)
    assert on == back["sent"] + back["warm_up_sent"]
    assert back["matched"] == back["sent"] > 400
    assert (there["corrupt"], there["foreign"], back["corrupt"], back["foreign"]) == (0, 0, 0, 0)
