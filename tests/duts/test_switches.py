"""Real testpmd and Open vSwitch: they forward, drop the packets of their flows, and count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from errors import code_of, raises
from measurements import said_to_nobody
from runs import AS_ROOT, left_behind, needed, sound

from tailscope.duts.catalogue import dut_named
from tailscope.exceptions import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from measurements import Place

    Measure = Callable[..., dict[str, Any]]

RATE = ("--rate", "2k")
DROPPED = "udp,in_port=1,tp_src={port},actions=drop\npriority=1,in_port=1,actions=output:2\n"


@pytest.mark.parametrize(
    ("wire", "mode"),
    [("memif", "mac"), pytest.param("veth", "macswap", marks=[AS_ROOT, pytest.mark.long])],
)
def test_testpmd_forwards_and_counts(measure: Measure, wire: str, mode: str) -> None:
    needed("dpdk-testpmd")
    options = ("--wire", wire, "--dut-option", f"mode={mode}", "--dut-option", "burst=8")
    figures = measure("--dut", "testpmd", *options, *RATE)
    device = sound(figures["out"])["dut"]
    assert figures["count"] == figures["sent"]
    assert device["version"].startswith("testpmd (DPDK ")
    near, far = device["result"]["ports"]
    assert near["rx_packets"] == far["tx_packets"] >= figures["sent"]
    assert (near["tx_packets"], far["tx_dropped"], near["rx_dropped"]) == (0, 0, 0)


def test_a_switch_polls_both_ports_by_dpdk(measure: Measure) -> None:
    needed("ovs-vsctl")
    figures = measure("--dut", "ovs", *RATE, "--noise", "auto")
    device = sound(figures["out"])["dut"]
    assert figures["count"] == figures["sent"] and figures["dropped_by_dut"] == 0
    assert device["version"].startswith("Open vSwitch ") and "DPDK" in device["version"]
    ports = device["result"]["ports"]
    assert ports["port0"]["rx_packets"] == ports["port1"]["tx_packets"] >= figures["sent"]
    [(name, thread)] = device["result"]["threads"].items()
    assert name.startswith("pmd thread") and thread["received"] == ports["port0"]["rx_packets"]
    assert thread["misses"] >= 1 and thread["processing_cycles"] > 0
    assert not left_behind()


@AS_ROOT
@pytest.mark.parametrize(
    ("driver", "thread"),
    [
        ("system", "main thread"),
        pytest.param("afxdp", "pmd thread", marks=pytest.mark.long),
    ],
)
def test_a_switch_forwards_between_links_and_drops_as_flows_say(
    measure: Measure, tmp_path: Path, driver: str, thread: str
) -> None:
    """The switch drops one of two flows, which differ by source port."""
    needed("ovs-vsctl")
    flows = tmp_path / "my own.flows"
    flows.write_text(DROPPED.format(port=20_001))
    options = ("--dut-option", f"flows={flows}", "--dut-option", f"driver={driver}")
    traffic = ("--src-port", "20000,20001", "--flows", "2", *RATE)
    figures = measure("--dut", "ovs", "--wire", "veth", *options, *traffic)
    device = sound(figures["out"])["dut"]
    assert (
        figures["lost"]
        == figures["lost_in_dut"]
        == figures["dropped_by_dut"]
        == figures["sent"] // 2
    )
    assert (device["result"]["flows"], device["result"]["lost"]) == (2, 0)
    assert any(name.startswith(thread) for name in device["result"]["threads"])
    assert device["result"]["ports"]["dut0"]["rx_packets"] >= figures["sent"]
    assert device["rules_sha256"] and not left_behind()


@AS_ROOT
@pytest.mark.long
def test_an_ordinary_user_has_a_switch(place: Place, dataplane: Path) -> None:
    needed("ovs-vsctl")
    words = ("run", "--dut", "ovs", *RATE, "--duration", "200ms", "--json", "-")
    assert '"lost": 0,' in said_to_nobody(place, *words)


@pytest.mark.parametrize(
    ("options", "wire", "code", "expected"),
    [
        ({"driver": "system"}, "memif", "ovs-driver", "expected dpdk"),
        ({"driver": "kernel"}, "veth", "dut-option", "dpdk, system or afxdp"),
        ({"flows": ""}, "memif", "dut-option", "ports, normal"),
    ],
)
def test_what_a_switch_cannot_be_is_refused(
    options: dict[str, str], wire: str, code: str, expected: str
) -> None:
    with raises(UsageError, code) as error:
        dut_named("ovs", options, wire)
    assert expected in str(error.value)


def test_flows_that_it_cannot_read_are_quoted(tailscope: Any, place: Place, tmp_path: Path) -> None:
    needed("ovs-vsctl")
    flows = tmp_path / "broken.flows"
    flows.write_text("in_port=1,actions=teleport\n")
    out = place.path / "out"
    given = ("--dut-option", f"flows={flows}", "--out", out)
    done = tailscope("run", "--dut", "ovs", *given, env=place.environment)
    assert done.returncode == 1
    assert code_of(done) == "command-failed"
    assert "error: ovs-vswitchd: " in done.stderr and "teleport" in done.stderr
    assert not out.exists() and not left_behind()
