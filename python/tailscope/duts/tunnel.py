"""Tunnels in general: two gateways of the kernel, and a link for encrypted packets."""

from __future__ import annotations

import queue
from abc import abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailscope.duts.dut import Dut, DutContext, Running
from tailscope.duts.kernel import (
    FAR_SIDE,
    NEAR_SIDE,
    RouterSide,
    RunningKernel,
    check_routed,
    do,
    setting,
)
from tailscope.duts.program import ended, not_ready
from tailscope.duts.steering import steer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from tailscope.duts.dut import Packets
    from tailscope.exceptions import TestbedError
    from tailscope.testbed.places import Process

MTU = 1500
"""MTU of the tunnel, in bytes: the largest frames of a generator are not fragmented."""
_OUTER_MTU = 1600
"""MTU of the link between the gateways, in bytes, with room for the tunnel's headers."""
_START_S = 10.0
# Keys and sockets of a tunnel are in a folder that vanishes with this process. With IPv6, the
# kernel would send its own packets.
_KEEPER = """
mount -t tmpfs -o mode=700 none /run
mount -t sysfs none /sys
for scope in all default; do
    echo 1 >/proc/sys/net/ipv6/conf/$scope/disable_ipv6 || true
done
echo "gateway $$"
exec sleep infinity
"""


@dataclass(frozen=True)
class Gateway:
    """An end of a tunnel."""

    number: int
    """Number of the gateway: 0 at the generator's first port, 1 at the second."""
    link: str
    """Port of the device at this gateway."""
    side: RouterSide
    """Network behind that port."""
    way: tuple[str, ...]
    """Words by which commands run there; ``/run`` is private to the tunnel."""

    @property
    def outer_link(self) -> str:
        """Return the link to the other gateway."""
        return f"outer{self.number}"

    @property
    def outer_address(self) -> str:
        """Return the address on that link (RFC 2544 reserves it for measurements)."""
        return f"198.18.0.{self.number + 1}"

    @property
    def outer_mac(self) -> str:
        """Return the MAC address on that link."""
        return f"02:00:00:00:00:2{self.number}"

    def run(self, context: DutContext, *commands: list[str]) -> list[list[str]]:
        """Run commands at this gateway, and return them."""
        return do(context, *([*self.way, *command] for command in commands))

    def forwarding(self, other: Gateway) -> list[list[str]]:
        """Return the commands that make this gateway a router, joined with the other one."""
        neighbour = ["ip", "neigh", "replace", other.outer_address, "lladdr", other.outer_mac]
        return [
            ["ip", "link", "set", "dev", self.link, "up"],
            setting("net.ipv4.ip_forward", "1"),
            setting("net.ipv4.conf.all.rp_filter", "0"),
            *self.side.commands(self.link),
            ["ip", "link", "set", "dev", self.outer_link, "address", self.outer_mac],
            ["ip", "link", "set", "dev", self.outer_link, "mtu", str(_OUTER_MTU), "up"],
            ["ip", "address", "add", f"{self.outer_address}/30", "dev", self.outer_link],
            [*neighbour, "dev", self.outer_link, "nud", "permanent"],
            setting(f"net.ipv4.conf.{self.outer_link}.rp_filter", "0"),
        ]


class Tunnel(Dut):
    """Two routers of the kernel with a tunnel between them, which need root.

    The first gateway is in the namespace of the device's links. The second link moves to the second
    gateway, an unnamed network namespace that lives as long as its keeper process.
    """

    wires = ("veth", "vhost")
    hides_packets = True
    programs = {  # noqa: RUF012
        "ip": "iproute2",
        "sysctl": "procps",
        "nsenter": "util-linux",
        "unshare": "util-linux",
    }

    @property
    def uses_dpdk(self) -> bool:
        """Return False: the device has links of the kernel."""
        return False

    @property
    def modules(self) -> tuple[str, ...]:
        """Return the module of the link between the gateways."""
        return ("veth",)

    def check_traffic(self, packets: Packets) -> None:
        """Check that the packets have the addresses that the device routes, and no VLAN."""
        super().check_traffic(packets)
        check_routed(self.name, packets)

    @contextmanager
    def open(self, context: DutContext) -> Iterator[Running]:
        """Set up both gateways, and join them."""
        in_threads = steer(context)
        with (
            _gateways(context) as (keeper, ends, commands),
            self.joined(context, ends) as running,
        ):
            running.configuration = [*commands, *running.configuration]
            running.programs["unshare"] = keeper
            running.in_threads = in_threads
            yield running

    @abstractmethod
    def joined(
        self, context: DutContext, ends: Sequence[Gateway]
    ) -> AbstractContextManager[RunningTunnel]:
        """Join two gateways by a tunnel within a block."""


class RunningTunnel(RunningKernel):
    """A tunnel that forwards."""

    configuration: list[list[str]]

    def __init__(
        self,
        context: DutContext,
        ends: Sequence[Gateway],
        commands: list[list[str]],
        links: Mapping[str, int],
        programs: dict[str, Process],
    ) -> None:
        self._place, self._ends, self.programs = context.place, ends, programs
        # The files of the first gateway's links are not in the folders of the second.
        ways: tuple[tuple[str, ...], ...] = ((), ends[1].way)
        own = {name: end.number for end in ends for name in (end.link, end.outer_link)}
        self._links = {name: ways[number] for name, number in (own | dict(links)).items()}
        super().__init__(context, commands)

    @property
    def is_running(self) -> bool:
        """Return True if all programs of the tunnel still run."""
        return all(process.is_running for process in self.programs.values())

    def failure(self) -> TestbedError:
        """Make the error that says which program ended, and how."""
        for name, process in self.programs.items():
            if not process.is_running:
                return ended(name, process)
        return super().failure()

    def links(self) -> Mapping[str, Sequence[str]]:
        """Return the ports, the link between the gateways, and the links of the tunnel."""
        return self._links


def reason(error: TestbedError) -> str:
    """Return the reason why a command failed, without the command."""
    return str(error).rpartition(": ")[2]


@contextmanager
def _gateways(
    context: DutContext,
) -> Iterator[tuple[Process, list[Gateway], list[list[str]]]]:
    """Set up two gateways within a block; the second one has the second link, and a keeper."""
    near, far = context.side.links
    keep = ["unshare", "--net", "--mount", "sh", "-ec", _KEEPER]
    with context.place.start("gateway", keep, cpus=context.housekeeping, merged=True) as keeper:
        number = _number_of(keeper)
        enter = ("nsenter", f"--target={number}", "--mount")
        ends = [Gateway(0, near, NEAR_SIDE, enter), Gateway(1, far, FAR_SIDE, (*enter, "--net"))]
        first, second = (end.outer_link for end in ends)
        peer = ["peer", "name", second, "netns", number]
        commands = do(
            context,
            ["ip", "link", "add", "name", first, "type", "veth", *peer],
            ["ip", "link", "set", "dev", far, "netns", number],
        )
        for end, other in zip(ends, reversed(ends), strict=True):
            commands += end.run(context, *end.forwarding(other))
        yield keeper, ends, commands


def _number_of(keeper: Process) -> str:
    """Wait for the process that keeps the second gateway, and return its process number."""
    line: str | None = ""
    try:
        while line is not None:
            line = keeper.next_line(_START_S)
            if line is not None and line.startswith("gateway "):
                return line.removeprefix("gateway ")
    except queue.Empty:
        raise not_ready("unshare", keeper, f"not ready within {_START_S:g} s") from None
    raise ended("unshare", keeper)
