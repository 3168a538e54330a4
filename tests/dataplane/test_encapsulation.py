"""Packets through a tunnel: as tshark reads them, and behind a real gateway."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from measurements import quick
from test_traffic import sent

import tailscope._engine as _engine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from measurements import Place

ENDS = "src=192.0.2.1,dst=192.0.2.2"
V6_ENDS = "src=fd00::1,dst=fd00::2"
PROTOCOLS = "eth:ethertype:"
LONG = pytest.mark.long
MAC = "02:00:00:00:00:10"

pytestmark = pytest.mark.usefixtures("dataplane")


@pytest.mark.parametrize(
    ("tunnel", "protocols", "fields"),
    [
        (
            f"gtpu:teid=4294967295,qfi=9,{ENDS}",
            "ip:udp:gtp:ip:udp",
            {"gtp.teid": "0xffffffff", "gtp.ext_hdr.pdu_ses_con.qos_flow_id": "9"},
        ),
        (
            f"vxlan:vni=16777215,{V6_ENDS}",
            "ipv6:udp:vxlan:eth:ethertype:ip:udp",
            {"vxlan.vni": "16777215", "ipv6.dst": "fd00::2"},
        ),
        (
            "srv6:segments=fd00::7/fd00::8,src=fd00::1",
            "ipv6:ipv6.routing:ip:udp",
            {"ipv6.routing.segleft": "1", "ipv6.routing.srh.addr": "fd00::8,fd00::7"},
        ),
        pytest.param("gtpu:teid=7", "ip:udp:gtp:ip:udp", {"gtp.teid": "0x00000007"}, marks=LONG),
        pytest.param(
            f"geneve:vni=6,{ENDS}",
            "ip:udp:geneve:eth:ethertype:ip:udp",
            {"geneve.vni": "0x000006"},
            marks=LONG,
        ),
        pytest.param("gre", "ip:gre:ip:udp", {"gre.proto": "0x0800"}, marks=LONG),
        pytest.param(
            f"gre:key=8,{V6_ENDS}", "ipv6:gre:ip:udp", {"gre.key": "0x00000008"}, marks=LONG
        ),
        pytest.param("mpls:label=1048575", "mpls:ip:udp", {"mpls.label": "1048575"}, marks=LONG),
        pytest.param("ipip", "ip:ip:udp", {"ip.proto": "4,17"}, marks=LONG),
        pytest.param(f"ipip:{V6_ENDS}", "ipv6:ip:udp", {"ipv6.nxt": "4"}, marks=LONG),
    ],
    ids=lambda value: value.partition(":")[0] if isinstance(value, str) else "",
)
def test_tshark_reads_the_tunnel(
    tmp_path: Path, tunnel: str, protocols: str, fields: dict[str, str]
) -> None:
    if shutil.which("tshark") is None:
        pytest.skip("needs tshark")
    # Captures keep as much of these as their checksums are of.
    added = _engine.tunnel_bytes(tunnel, "10.0.0.1", "10.0.1.1")
    assert added is not None
    sizes = f"--size={70 + added}:2,{120 + added}:1"
    result, folder = sent(tmp_path, f"--encap={tunnel}", sizes, "--src-ip=10.0.0.1..10.0.0.3")
    counts = result.gen
    assert counts.matched == counts.sent > 0
    names = ("frame.protocols", "udp.checksum.status", "ip.checksum.status", *fields)
    wanted = [word for name in names for word in ("-e", name)]
    checks = [word for name in ("ip", "udp") for word in ("-o", f"{name}.check_checksum:TRUE")]
    for side in ("pre", "post"):
        capture = folder / f"{side}.pcapng.zst"
        command = ["tshark", "-n", "-r", str(capture), *checks, "-T", "fields", *wanted]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        for line in done.stdout.splitlines():
            found, udp, ip, *values = line.split("\t")
            assert found.startswith(PROTOCOLS + protocols)
            assert values == [*fields.values()]
            # 1 is good; 3, no checksum, is the tunnel's own UDP over IPv4.
            assert udp.split(",")[-1] == "1"
            assert {*udp.split(",")[:-1]} <= {"1" if V6_ENDS in tunnel else "3"}
            assert {*ip.split(",")} == {"1"}
        assert len(done.stdout.splitlines()) == counts.sent


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces are root's")
def test_a_gateway_takes_the_tunnel_off_and_puts_it_on(
    tailscope: Callable[..., Any], place: Place
) -> None:
    gateway = place.path / "gateway"
    gateway.write_text(f"""
set -e
ip link add vx0 address {MAC} type vxlan id 5 dstport 4789 local 192.0.2.2 remote 192.0.2.1 dev $1
sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0
for link in $1 $2 vx0; do
    ip link set $link address {MAC} up
    sysctl -qw net.ipv4.conf.$link.rp_filter=0
done
ip address add 192.0.2.2/24 dev $1
ip address add 10.0.0.254/24 dev vx0
ip address add 10.0.1.254/24 dev $2
ip neigh add 192.0.2.1 lladdr 02:00:00:00:00:01 dev $1 nud permanent
ip neigh add 10.0.0.1 lladdr 02:00:00:00:00:01 dev vx0 nud permanent
ip neigh add 10.0.1.1 lladdr 02:00:00:00:00:02 dev $2 nud permanent
echo forwarding
exec sleep 1000
""")
    out = place.path / "out"
    options = (
        *("--dut", "command", "--wire", "veth", "--direction", "both", "--rate", "2k"),
        *("--encap", f"vxlan:vni=5,{ENDS}", "--size", 128, "--captures"),
        *("--dut-option", f"run=sh {gateway} {{link0}} {{link1}}"),
        *("--dut-option", "ready=forwarding", "--out", out, "--json", "-"),
    )
    done = tailscope("run", *quick(*options), env=place.environment)
    assert done.returncode == 0, done.stderr
    for name, figures in zip(("forth", "back"), json.loads(done.stdout), strict=True):
        assert figures["count"] == figures["sent"] > 0
        captures = (out / name / "captures" / f"{side}.pcapng.zst" for side in ("pre", "post"))
        again = tailscope("analyze", *captures, "--json", "-")
        assert json.loads(again.stdout)["count"] == figures["count"]
