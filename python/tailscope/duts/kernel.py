"""Devices of the kernel: what forwards is set up by commands, and nothing runs."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from tailscope.duts.dut import Dut, DutContext, Running, one_of
from tailscope.exceptions import TestbedError, UsageError
from tailscope.testbed.places import Here
from tailscope.testbed.rights import Capability, require

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tailscope.duts.dut import Packets
    from tailscope.store.records.dataplane import DutCounts, LinkCounts
    from tailscope.testbed.places import Place

_MAC = "02:00:00:00:00:10"
"""Where the generator sends its frames."""
_NEIGHBOUR_MAC = "02:00:00:00:00:11"
_BRIDGE = "tailscope0"
_COUNTED = ("rx_packets", "tx_packets", "rx_errors", "tx_errors", "rx_dropped", "tx_dropped")


class RouterSide(NamedTuple):
    """One side of a router."""

    network: str
    address: str
    """The router's own, in that network."""
    generator: str
    """The generator's."""

    def commands(self, link: str) -> list[list[str]]:
        """Set a link up for it: with an address, and a neighbour that never answers."""
        neighbour = ["ip", "neigh", "replace", self.generator, "lladdr", _NEIGHBOUR_MAC]
        return [
            ["ip", "link", "set", "dev", link, "address", _MAC],
            ["ip", "address", "add", f"{self.address}/24", "dev", link],
            [*neighbour, "dev", link, "nud", "permanent"],
            # It counts what never could answer as spoofed else.
            setting(f"net.ipv4.conf.{link}.rp_filter", "0"),
        ]


NEAR_SIDE = RouterSide("10.0.0.0/24", "10.0.0.254", "10.0.0.1")
FAR_SIDE = RouterSide("10.0.1.0/24", "10.0.1.254", "10.0.1.1")


class Kernel(Dut):
    """A device of the kernel; as root."""

    wires = ("veth", "pci", "vhost")
    in_softirqs = True

    @property
    def uses_dpdk(self) -> bool:
        """It has links."""
        return False

    @contextmanager
    def open(self, context: DutContext) -> Iterator[Running]:
        """Run the commands."""
        steer(context)
        yield self.running(context, self.set_up(context))

    def running(self, context: DutContext, commands: list[list[str]]) -> Running:
        """Say what it is, once these commands have set it up."""
        return RunningKernel(context, commands)

    @abstractmethod
    def set_up(self, context: DutContext) -> list[list[str]]:
        """Make it forward, and return the commands that did."""


class RunningKernel(Running):
    """A device of the kernel that forwards."""

    def __init__(self, context: DutContext, commands: list[list[str]]) -> None:
        self._context = context
        self._before = self._counted()
        self._why_not = ""
        self.configuration = commands
        self.version = f"Linux {context.place.run(['uname', '-r']).strip()}"

    @property
    def is_running(self) -> bool:
        """Commands have set it up: it is there as long as its links."""
        return True

    def failure(self) -> TestbedError:
        """Say why nothing was counted."""
        return TestbedError(f"dut: the counters of its links cannot be read: {self._why_not}")

    def stop(self) -> DutCounts | None:
        """What was counted; None where it is gone, with the container it was in."""
        from tailscope.store.records.dataplane import LinkCounts

        try:
            now = self._counted()
            since = {
                link: {
                    name: max(0, count - self._before[link][name]) for name, count in counts.items()
                }
                for link, counts in now.items()
            }
            return self.counts({link: LinkCounts(**counts) for link, counts in since.items()})
        except TestbedError as error:
            self._why_not = str(error).partition("\n")[0]
            return None

    def counts(self, links: dict[str, LinkCounts]) -> DutCounts:
        """Make what was counted of what its links counted since it was there."""
        from tailscope.store.records.dataplane import KernelCounts

        return KernelCounts(links=links)

    def links(self) -> Mapping[str, Sequence[str]]:
        """Which links count, and what commands begin with that see them."""
        return dict.fromkeys(self._context.side.links, ())

    def _counted(self) -> dict[str, dict[str, int]]:
        """What the links have counted since they are there: cards have before this device, too."""
        found = {}
        for link, way in self.links().items():
            words = [f"/sys/class/net/{link}/statistics/{name}" for name in _COUNTED]
            counts = self._context.place.run([*way, "cat", *words]).split()
            found[link] = dict(zip(_COUNTED, map(int, counts), strict=True))
        return found


def do(context: DutContext, *commands: list[str]) -> list[list[str]]:
    """Run commands where a device is, and return them."""
    for command in commands:
        context.place.run(command)
    return list(commands)


def steer(context: DutContext) -> None:
    """Let the device's CPUs work on what arrives at its links."""
    for link in context.side.links:
        _steer(context.place, link, context.working)


def _steer(place: Place, link: str, cpus: Sequence[int]) -> None:
    """Let what arrives at a link be worked on by `cpus`: over veth it is the sender's CPU else."""
    mask = f"{sum(1 << cpu for cpu in cpus):x}"
    groups = [mask[max(0, end - 8) : end] for end in range(len(mask), 0, -8)]
    path = f"/sys/class/net/{link}/queues/rx-0/rps_cpus"
    command = ["sh", "-c", 'printf %s "$1" > "$2"', "sh", ",".join(reversed(groups)), path]
    try:
        place.run(command)
    except TestbedError:
        if isinstance(place, Here):
            needed = (Capability.DAC_OVERRIDE, Capability.NET_ADMIN)
            otherwise = "use a device of DPDK: --dut l2fwd"
            require(f"dut: CPUs of {link}", *needed, otherwise=otherwise, of_machine=True)
        raise


def setting(name: str, value: str) -> list[str]:
    """Make the command that gives the kernel a value."""
    return ["sysctl", "-qw", f"{name}={value}"]


class Mirred(Kernel):
    """The kernel's traffic control, as in containers2024 5.7."""

    name = "mirred"
    about = "tc redirects what arrives at one link to the other, or mirrors it there"
    options = {  # noqa: RUF012
        "classifier": one_of("auto", "matchall", "u32"),
        "action": one_of("redirect", "mirror"),
    }
    programs = {"tc": "iproute2"}  # noqa: RUF012

    @property
    def modules(self) -> tuple[str, ...]:
        """Of traffic control."""
        return ("sch_ingress", "cls_matchall", "cls_u32", "act_mirred")

    def set_up(self, context: DutContext) -> list[list[str]]:
        """Forward both directions; `u32` where the kernel has no `matchall`.

        What is mirrored also goes up the stack, which throws it away: nobody there has its address.
        """
        first, second = context.side.links
        done: list[list[str]] = []
        for here, there in ((first, second), (second, first)):
            done += do(context, ["tc", "qdisc", "add", "dev", here, "ingress"])
            done += self._forward(context, here, there)
        return done

    def _forward(self, context: DutContext, here: str, there: str) -> list[list[str]]:
        wanted = self.given.get("classifier", "auto")
        kinds = {"matchall": ["matchall"], "u32": ["u32", "match", "u32", "0", "0"]}
        choices = list(kinds) if wanted == "auto" else [wanted]
        add = ["tc", "filter", "add", "dev", here, "parent", "ffff:", "protocol", "all"]
        done = self.given.get("action", "redirect")
        action = ["action", "mirred", "egress", done, "dev", there]
        for kind in choices:
            try:
                return do(context, [*add, *kinds[kind], *action])
            except TestbedError as error:
                refused = error
        raise refused


class Bridge(Kernel):
    """The kernel's bridge."""

    name = "bridge"
    about = "a kernel bridge"
    programs = {"ip": "iproute2"}  # noqa: RUF012

    @property
    def modules(self) -> tuple[str, ...]:
        """The bridge's."""
        return ("bridge",)

    def set_up(self, context: DutContext) -> list[list[str]]:
        """Put both links into a bridge without spanning tree."""
        plain = ["stp_state", "0", "forward_delay", "0", "mcast_snooping", "0"]
        return do(
            context,
            ["ip", "link", "add", "name", _BRIDGE, "type", "bridge", *plain],
            *(["ip", "link", "set", "dev", link, "master", _BRIDGE] for link in context.side.links),
            ["ip", "link", "set", "dev", _BRIDGE, "up"],
        )


class Router(Kernel):
    """IP forwarding of the kernel."""

    name = "router"
    about = "the kernel's IP forwarding"
    programs = {"ip": "iproute2", "sysctl": "procps"}  # noqa: RUF012

    def check_traffic(self, packets: Packets) -> None:
        """It knows one address on each side, and no VLANs."""
        super().check_traffic(packets)
        check_routed(self.name, packets)

    def set_up(self, context: DutContext) -> list[list[str]]:
        """Two networks, the generator's addresses in them, and neighbours that never answer."""
        near, far = context.side.links
        return do(
            context,
            setting("net.ipv4.ip_forward", "1"),
            setting("net.ipv4.conf.all.rp_filter", "0"),
            *NEAR_SIDE.commands(near),
            *FAR_SIDE.commands(far),
        )


def check_routed(dut: str, packets: Packets) -> None:
    """See whether a router can forward what a run sends."""
    if packets.replay is not None:
        return
    if packets.vlan is not None:
        raise UsageError(f"--vlan: got {packets.vlan}, expected none with --dut {dut}")
    known = {
        "--dst-mac": (packets.dst_mac, _MAC),
        "--dst-ip": (packets.dst_ip, FAR_SIDE.generator),
    }
    if packets.direction == "both":
        known["--src-ip"] = (packets.src_ip, NEAR_SIDE.generator)
    for option, (value, expected) in known.items():
        if value.lower() != expected:
            raise UsageError(f"{option}: got {value}, expected {expected} with --dut {dut}")
