"""Catalogue of the devices under test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailscope.duts.command import Command
from tailscope.duts.dataplane import Delay, L2fwd, L3fwd, Loop, Work
from tailscope.duts.ipsec import Ipsec
from tailscope.duts.kernel import Bridge, Mirred, Router
from tailscope.duts.nftables import Nftables
from tailscope.duts.oci import Oci
from tailscope.duts.ovs import Ovs
from tailscope.duts.snort import Snort
from tailscope.duts.suricata import Suricata
from tailscope.duts.testpmd import Testpmd
from tailscope.duts.wireguard import Wireguard
from tailscope.duts.xdp import Xdp
from tailscope.units import refuse_unknown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailscope.duts.dut import Dut

DUTS: dict[str, type[Dut]] = {
    dut.name: dut
    for dut in (
        *(Loop, L2fwd, L3fwd, Delay, Work),
        *(Testpmd, Ovs, Suricata, Snort),
        *(Mirred, Bridge, Router, Nftables, Xdp),
        *(Wireguard, Ipsec),
        *(Command, Oci),
    )
}
"""Kinds of devices, by name."""


def dut_named(name: str, options: Mapping[str, str], wire: str = "memif") -> Dut:
    """Make a device of the kind that has this name."""
    refuse_unknown("--dut", name, DUTS, "unknown-dut")
    return DUTS[name](options, wire)


def without_image(dut: str) -> tuple[str, str | None]:
    """Split ``oci:IMAGE`` into the device's name and its image; None for other devices."""
    name, colon, image = dut.partition(":")
    return (name, image) if colon and name == Oci.name else (dut, None)
