"""The device ``xdp``: the kernel redirects frames before its network stack."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from tailscope.duts.dut import Dut, DutContext, Running, one_of
from tailscope.duts.program import RunningProgram, wait_for
from tailscope.exceptions import TestbedError

if TYPE_CHECKING:
    from collections.abc import Iterator

_READY_S = 20.0


class Xdp(Dut):
    """Redirection by xdp-tools from the first link to the second."""

    name = "xdp"
    about = "XDP redirects what arrives at the first link to the second"
    options = {"mode": one_of("native", "skb")}  # noqa: RUF012
    in_softirqs = True
    leaves_stack_out = True
    both_ways = False
    wires = ("veth", "pci", "vhost")
    programs = {"xdp-bench": "xdp-tools"}  # noqa: RUF012

    @property
    def uses_dpdk(self) -> bool:
        """Return False: the device has links of the kernel."""
        return False

    @contextmanager
    def open(self, context: DutContext) -> Iterator[Running]:
        """Attach the program; xdp-bench detaches it when it ends."""
        mode = self.given.get("mode") or ("native" if _is_card(context) else "skb")
        command = ["xdp-bench", "redirect", *context.side.links, "--mode", mode, "--interval", "1"]
        # xdp-bench prints its version, and fails.
        ask = ["sh", "-c", "xdp-bench redirect --version || true"]
        version = context.place.run(ask).strip()
        with context.place.start("dut", command, cpus=context.allowed, merged=True) as process:
            wait_for("xdp-bench", process, r"Redirecting from", timeout_s=_READY_S)
            yield RunningProgram("xdp-bench", process, version=version, configuration=command)


def _is_card(context: DutContext) -> bool:
    """Return True if the second link is a card: veth accepts native redirects only if polled."""
    try:
        context.place.run(["test", "-e", f"/sys/class/net/{context.side.links[1]}/device"])
    except TestbedError:
        return False
    return True
