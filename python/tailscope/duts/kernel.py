"""Devices of the kernel, which commands set up: no program runs."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from tailscope.duts.dut import Dut, DutContext, Running, one_of
from tailscope.duts.steering import steer
from tailscope.exceptions import TestbedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tailscope.duts.dut import Packets
    from tailscope.store.records.dataplane import DutCounts, LinkCounts

_MAC = "02:00:00:00:00:10"
"""Destination of the generator's frames."""
_NEIGHBOUR_MAC = "02:00:00:00:00:11"
_BRIDGE = "tailscope0"
_COUNTED = ("rx_packets", "tx_packets", "rx_errors", "tx_errors", "rx_dropped", "tx_dropped")


class RouterSide(NamedTuple):
    """A side of a router."""

    network: str
    address: str
    """Address of the router in that network."""
    generator: str
    """Address of the generator."""

    def commands(self, link: str) -> list[list[str]]:
        """Return the commands that set up a link, its address and a silent neighbour."""
        neighbour = ["ip", "neigh", "replace", self.generator, "lladdr", _NEIGHBOUR_MAC]
        return [
            ["ip", "link", "set", "dev", link, "address", _MAC],
            ["ip", "address", "add", f"{self.address}/24", "dev", link],
            [*neighbour, "dev", link, "nud", "permanent"],
            # Otherwise the kernel drops packets of senders that it could not answer.
            setting(f"net.ipv4.conf.{link}.rp_filter", "0"),
        ]


NEAR_SIDE = RouterSide("10.0.0.0/24", "10.0.0.254", "10.0.0.1")
FAR_SIDE = RouterSide("10.0.1.0/24", "10.0.1.254", "10.0.1.1")


class Kernel(Dut):
    """A device of the kernel, which needs root."""

    wires = ("veth", "pci", "vhost")
    in_softirqs = True

    @property
    def uses_dpdk(self) -> bool:
        """Return False: the device has links of the kernel."""
        return False

    @contextmanager
    def open(self, context: DutContext) -> Iterator[Running]:
        """Run the commands that set the device up."""
        in_threads = steer(context)
        running = self.running(context, self.set_up(context))
        running.in_threads = in_threads
        yield running

    def running(self, context: DutContext, commands: list[list[str]]) -> Running:
        """Make the running device that these commands have set up."""
        return RunningKernel(context, commands)

    @abstractmethod
    def set_up(self, context: DutContext) -> list[list[str]]:
        """Set the device up, and return the commands that did."""


class LinkCounters:
    """The kernel's counters of links from now on; those of cards started before."""

    def __init__(
        self, context: DutContext, links: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        self._place = context.place
        self._links = dict.fromkeys(context.side.links, ()) if links is None else links
        self._before = self._counted()

    def since(self) -> dict[str, LinkCounts]:
        """Return what was counted since."""
        from tailscope.store.records.dataplane import LinkCounts

        return {
            link: LinkCounts(
                **{name: max(0, count - self._before[link][name]) for name, count in now.items()}
            )
            for link, now in self._counted().items()
        }

    def _counted(self) -> dict[str, dict[str, int]]:
        counters = {}
        for link, way in self._links.items():
            words = [f"/sys/class/net/{link}/statistics/{name}" for name in _COUNTED]
            counts = self._place.run([*way, "cat", *words]).split()
            counters[link] = dict(zip(_COUNTED, map(int, counts), strict=True))
        return counters


class RunningKernel(Running):
    """A device of the kernel that forwards."""

    def __init__(self, context: DutContext, commands: list[list[str]]) -> None:
        self._context = context
        self._counters = LinkCounters(context, self.links())
        self._why_not = ""
        self.configuration = commands
        self.version = f"Linux {context.place.run(['uname', '-r']).strip()}"

    @property
    def is_running(self) -> bool:
        """Return True: the device exists as long as its links."""
        return True

    def failure(self) -> TestbedError:
        """Make the error that says why there are no counts."""
        return TestbedError(
            f"dut: the counters of its links cannot be read: {self._why_not}", code="link-counters"
        )

    def stop(self) -> DutCounts | None:
        """Return the counts; None if the device is gone with its container."""
        try:
            return self.counts(self._counters.since())
        except TestbedError as error:
            self._why_not = str(error).partition("\n")[0]
            return None

    def counts(self, links: dict[str, LinkCounts]) -> DutCounts:
        """Make the device's counts of those of its links since it was set up."""
        from tailscope.store.records.dataplane import KernelCounts

        return KernelCounts(links=links)

    def links(self) -> Mapping[str, Sequence[str]] | None:
        """Return the links that count, each with the words by which commands see it.

        None stands for those of the device.
        """
        return None


def do(context: DutContext, *commands: list[str]) -> list[list[str]]:
    """Run commands in the place of a device, and return them."""
    for command in commands:
        context.place.run(command)
    return list(commands)


def setting(name: str, value: str) -> list[str]:
    """Return the command that sets a parameter of the kernel."""
    return ["sysctl", "-qw", f"{name}={value}"]


class Mirred(Kernel):
    """Traffic control of the kernel, as in containers2024 5.7."""

    name = "mirred"
    about = "tc redirects what arrives at one link to the other, or mirrors it there"
    options = {  # noqa: RUF012
        "classifier": one_of("auto", "matchall", "u32"),
        "action": one_of("redirect", "mirror"),
    }
    programs = {"tc": "iproute2"}  # noqa: RUF012

    @property
    def modules(self) -> tuple[str, ...]:
        """Return the modules of traffic control."""
        return ("sch_ingress", "cls_matchall", "cls_u32", "act_mirred")

    def set_up(self, context: DutContext) -> list[list[str]]:
        """Forward both directions, by `u32` if the kernel has no `matchall`.

        Mirrored packets also go up the stack, which drops them: their address is not its own.
        """
        first, second = context.side.links
        commands: list[list[str]] = []
        for source, target in ((first, second), (second, first)):
            commands += do(context, ["tc", "qdisc", "add", "dev", source, "ingress"])
            commands += self._forward(context, source, target)
        return commands

    def _forward(self, context: DutContext, source: str, target: str) -> list[list[str]]:
        wanted = self.given.get("classifier", "auto")
        kinds = {"matchall": ["matchall"], "u32": ["u32", "match", "u32", "0", "0"]}
        choices = list(kinds) if wanted == "auto" else [wanted]
        add = ["tc", "filter", "add", "dev", source, "parent", "ffff:", "protocol", "all"]
        verb = self.given.get("action", "redirect")
        action = ["action", "mirred", "egress", verb, "dev", target]
        for kind in choices:
            try:
                return do(context, [*add, *kinds[kind], *action])
            except TestbedError as error:
                refused = error
        raise refused


class Bridge(Kernel):
    """Bridge of the kernel."""

    name = "bridge"
    about = "a kernel bridge"
    programs = {"ip": "iproute2"}  # noqa: RUF012

    @property
    def modules(self) -> tuple[str, ...]:
        """Return the module of the bridge."""
        return ("bridge",)

    def set_up(self, context: DutContext) -> list[list[str]]:
        """Join both links by a bridge without spanning tree."""
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
        """Check that the packets have the addresses that the device routes, and no VLAN."""
        super().check_traffic(packets)
        check_routed(self.name, packets)

    def set_up(self, context: DutContext) -> list[list[str]]:
        """Set up two networks with the generator's addresses, whose neighbours never answer."""
        near, far = context.side.links
        return do(
            context,
            setting("net.ipv4.ip_forward", "1"),
            setting("net.ipv4.conf.all.rp_filter", "0"),
            *NEAR_SIDE.commands(near),
            *FAR_SIDE.commands(far),
        )


def check_routed(dut: str, packets: Packets) -> None:
    """Check that a router can forward the packets of a run."""
    if packets.replay is not None:
        return
    for option, given in (("--vlan", packets.vlan), ("--encap", packets.encap)):
        if given is not None:
            code = f"dut-{option.removeprefix('--')}"
            raise UsageError(f"{option}: got {given}, expected none with --dut {dut}", code=code)
    addresses = {
        "--dst-mac": (packets.dst_mac, _MAC),
        "--dst-ip": (packets.dst_ip, FAR_SIDE.generator),
    }
    if packets.direction == "both":
        addresses["--src-ip"] = (packets.src_ip, NEAR_SIDE.generator)
    for option, (value, expected) in addresses.items():
        if value.lower() != expected:
            raise UsageError(
                f"{option}: got {value}, expected {expected} with --dut {dut}",
                code="dut-address",
            )
