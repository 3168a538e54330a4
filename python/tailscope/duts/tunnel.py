"""What tunnels have in common: two gateways of the kernel, and a link for encrypted packets."""

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
    steer,
)
from tailscope.duts.program import failure

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from tailscope.duts.dut import Packets
    from tailscope.exceptions import TestbedError
    from tailscope.testbed.places import Process

MTU = 1500
"""Of the tunnel: the largest frames of a generator go through whole."""
_OUTER_MTU = 1600
"""Of the link between the gateways, with room for what a tunnel adds."""
_START_S = 10.0
# Keys and sockets of a tunnel are in a folder that is gone with this process. With IPv6, the kernel
# would send packets of its own.
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
    """One end of a tunnel."""

    number: int
    """0 where packets come from, 1 where they go to."""
    link: str
    """The device's port."""
    side: RouterSide
    """What is behind that."""
    way: tuple[str, ...]
    """What commands begin with that run there; ``/run`` is the tunnel's own."""

    @property
    def outer_link(self) -> str:
        """The link to the other gateway."""
        return f"outer{self.number}"

    @property
    def outer_address(self) -> str:
        """Its address there (RFC 2544: for measurements)."""
        return f"198.18.0.{self.number + 1}"

    @property
    def outer_mac(self) -> str:
        """Its hardware address there."""
        return f"02:00:00:00:00:2{self.number}"

    def run(self, context: DutContext, *commands: list[str]) -> list[list[str]]:
        """Run commands there, and return them."""
        return do(context, *([*self.way, *command] for command in commands))

    def forwarding(self, other: Gateway) -> list[list[str]]:
        """Commands that make it a router, joined with the other gateway."""
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
    """The kernel's router twice, with a tunnel in between; as root.

    The first link's gateway is where the device's links are. The second link moves to the other
    one, a network namespace without a name that is there as long as the process that keeps it.
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
        """It has links."""
        return False

    @property
    def modules(self) -> tuple[str, ...]:
        """What joins the gateways."""
        return ("veth",)

    def check_traffic(self, packets: Packets) -> None:
        """It knows one address on each side, and no VLANs."""
        super().check_traffic(packets)
        check_routed(self.name, packets)

    @contextmanager
    def open(self, context: DutContext) -> Iterator[Running]:
        """Make both gateways, and join them."""
        steer(context)
        with (
            _gateways(context) as (keeper, ends, commands),
            self.joined(context, ends) as running,
        ):
            running.configuration = [*commands, *running.configuration]
            running.programs["unshare"] = keeper
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
        """Whether its programs are there."""
        return all(process.is_running for process in self.programs.values())

    def failure(self) -> TestbedError:
        """Say which program ended, and how."""
        for name, process in self.programs.items():
            if not process.is_running:
                return failure(name, process, process.how_it_ended())
        return super().failure()

    def links(self) -> Mapping[str, Sequence[str]]:
        """Its ports, the link between its gateways, and those of the tunnel."""
        return self._links


def reason(error: TestbedError) -> str:
    """Why a command failed, without the command."""
    return str(error).rpartition(": ")[2]


@contextmanager
def _gateways(
    context: DutContext,
) -> Iterator[tuple[Process, list[Gateway], list[list[str]]]]:
    """Make two gateways within a block: the second one has the second link, and a keeper."""
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
    """Wait for the process that keeps the second gateway, and return its number there."""
    line: str | None = ""
    try:
        while line is not None:
            line = keeper.next_line(_START_S)
            if line is not None and line.startswith("gateway "):
                return line.removeprefix("gateway ")
    except queue.Empty:
        raise failure("unshare", keeper, f"not ready within {_START_S:g} s") from None
    raise failure("unshare", keeper, keeper.how_it_ended())
