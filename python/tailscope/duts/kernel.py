"""Devices of the kernel: what forwards is set up by commands, and nothing runs."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tailscope.duts.dut import Dut, DutContext, Running, one_of
from tailscope.exceptions import TestbedError, UsageError
from tailscope.testbed.places import Here
from tailscope.testbed.rights import Capability, require

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tailscope.duts.dut import Packets
    from tailscope.store.records.dataplane import DutCounts, LinkCounts
    from tailscope.testbed.places import Place

__all__ = ["Bridge", "Kernel", "Mirred", "Router", "RunningKernel", "do"]

_MAC = "02:00:00:00:00:10"
"""Where the generator sends its frames."""
_NEIGHBOUR_MAC = "02:00:00:00:00:11"
_NEAR_IP, _FAR_IP = "10.0.0.1", "10.0.1.1"
"""The generator's addresses on both sides of a router."""
_BRIDGE = "tailscope0"
_COUNTED = ("rx_packets", "tx_packets", "rx_errors", "tx_errors", "rx_dropped", "tx_dropped")


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
        for link in context.side.links:
            _steer(context.place, link, context.working)
        yield self.running(context, self.set_up(context))

    def running(self, context: DutContext, commands: list[list[str]]) -> Running:
        """Say what it is, once these commands have set it up."""
        return RunningKernel(context, commands)

    @abstractmethod
    def set_up(self, context: DutContext) -> list[list[str]]:
        """Make it forward, and return the commands that did."""


class RunningKernel(Running):
    """A device of the kernel that forwards.

    Parameters
    ----------
    context : DutContext
    commands : list of list of str
        What set it up.
    """

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

    def _counted(self) -> dict[str, dict[str, int]]:
        """What the links have counted since they are there: cards have before this device, too."""
        found = {}
        for link in self._context.side.links:
            words = [f"/sys/class/net/{link}/statistics/{name}" for name in _COUNTED]
            counts = self._context.place.run(["cat", *words]).split()
            found[link] = dict(zip(_COUNTED, map(int, counts), strict=True))
        return found


def do(context: DutContext, *commands: list[str]) -> list[list[str]]:
    """Run commands where a device is, and return them.

    Raises
    ------
    TestbedError
        If one fails: with what it said.
    """
    for command in commands:
        context.place.run(command)
    return list(commands)


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


def _set(name: str, value: str) -> list[str]:
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
        if packets.replay is not None:
            return
        if packets.vlan is not None:
            raise UsageError(f"--vlan: got {packets.vlan}, expected none with --dut {self.name}")
        known = {"--dst-mac": (packets.dst_mac, _MAC), "--dst-ip": (packets.dst_ip, _FAR_IP)}
        if packets.direction == "both":
            known["--src-ip"] = (packets.src_ip, _NEAR_IP)
        for option, (value, expected) in known.items():
            if value.lower() != expected:
                dut = f"--dut {self.name}"
                raise UsageError(f"{option}: got {value}, expected {expected} with {dut}")

    def set_up(self, context: DutContext) -> list[list[str]]:
        """Two networks, the generator's addresses in them, and neighbours that never answer."""
        near, far = context.side.links
        neighbours = (
            ["ip", "neigh", "replace", address, "lladdr", _NEIGHBOUR_MAC, "dev", link]
            for address, link in ((_NEAR_IP, near), (_FAR_IP, far))
        )
        return do(
            context,
            *(["ip", "link", "set", "dev", link, "address", _MAC] for link in (near, far)),
            ["ip", "address", "add", "10.0.0.254/24", "dev", near],
            ["ip", "address", "add", "10.0.1.254/24", "dev", far],
            *([*neighbour, "nud", "permanent"] for neighbour in neighbours),
            _set("net.ipv4.ip_forward", "1"),
            # It counts what never could answer as spoofed else.
            *(_set(f"net.ipv4.conf.{name}.rp_filter", "0") for name in ("all", near, far)),
        )
