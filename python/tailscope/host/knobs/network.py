"""Network cards: interrupt coalescing, buffers, memory node, and the management card."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailscope.host.cpus import cpu_list
from tailscope.host.knobs.interrupts import affinity_file, interrupt_counts
from tailscope.host.knobs.knob import Change, Files, Lasting, Report, listed, others

if TYPE_CHECKING:
    from tailscope.host.knobs.knob import Cpus, Knob
    from tailscope.host.machine import Machine

_NETWORK_CLASS = "0x02"
_RING = 1024
_DEFAULT = "00000000"
_DEFAULT_IPV6 = ["0" * 32, "00"]


@dataclass(frozen=True, kw_only=True)
class CardSettings(Files):
    """Settings of every card except the one that the machine is reached by."""

    group: str
    """Group of settings in `cards`."""
    want: tuple[tuple[str, str], ...]
    """Name and recommended value of each setting."""

    def settings(self, machine: Machine, cpus: Cpus) -> list[Change]:
        return [
            Change(path, text)
            for card in _cards(machine)
            if card not in _management(machine)
            for field, text in self.want
            if machine.read(path := f"ethtool:{card}/{self.group}/{field}") is not None
        ]

    def wanted(self, machine: Machine, cpus: Cpus) -> str | None:
        settings = self.settings(machine, cpus)
        fields = dict.fromkeys(f"{_field(path)} {text}" for path, text in settings)
        return ", ".join(fields) or None

    def read(self, machine: Machine, cpus: Cpus) -> str | None:
        """List the settings that differ from the recommended ones."""
        settings = [
            f"{path.partition(':')[2].partition('/')[0]} {_field(path)} {machine.read(path)}"
            for path, _ in self.changes(machine, cpus)
        ]
        return ", ".join(settings) or self.wanted(machine, cpus)

    def lasting(self, machine: Machine, cpus: Cpus) -> list[Lasting]:
        if self.recommended(machine, cpus) is None:
            return []
        option = {"coalescing": "-C", "pause": "-A", "ring": "-G"}[self.group]
        words = [option, "CARD", *(word for pair in self.want for word in pair)]
        return [Lasting("advice", self.name, f"ethtool {' '.join(words)}, when the link comes up")]


@dataclass(frozen=True, kw_only=True)
class Rings(CardSettings):
    """Receive buffers of 1024 packets, or of as many as the card has room for."""

    def settings(self, machine: Machine, cpus: Cpus) -> list[Change]:
        changes = []
        for path, text in super().settings(machine, cpus):
            most = machine.read(f"{path}-max")
            changes.append(Change(path, text if most is None else str(min(int(text), int(most)))))
        return changes

    def takes(self, text: str, change: Change, cpus: Cpus) -> bool:
        return int(text) >= int(change.text)


class Locality(Report):
    """Cards on the same memory node as the CPUs."""

    good = "same node"

    def wanted(self, machine: Machine, cpus: Cpus) -> str | None:
        nodes = machine.glob("/sys/devices/system/node/node[0-9]*")
        return self.good if len(nodes) > 1 and self._nodes(machine) else None

    def read(self, machine: Machine, cpus: Cpus) -> str | None:
        near = self._near(machine, cpus)
        far = [card for card, node in self._nodes(machine).items() if node not in near]
        return f"another node: {', '.join(far)}" if far else self.good

    def lasting(self, machine: Machine, cpus: Cpus) -> list[Lasting]:
        return [Lasting("advice", self.name, "choose CPUs of the card's node, or another slot")]

    def evidence(self, machine: Machine, cpus: Cpus) -> list[str]:
        cards = [f"{card}: node {node}" for card, node in self._nodes(machine).items()]
        return [f"CPUs {cpu_list(cpus)}: node {cpu_list(self._near(machine, cpus))}", *cards]

    def _near(self, machine: Machine, cpus: Cpus) -> set[int]:
        nodes = machine.glob("/sys/devices/system/node/node[0-9]*")
        return {
            int(node.rpartition("node")[2])
            for node in nodes
            if not listed(machine.read(f"{node}/cpulist") or "").isdisjoint(cpus)
        }

    def _nodes(self, machine: Machine) -> dict[str, int]:
        """Return the memory node of each card by PCI address, where it is known."""
        nodes = {}
        for path in machine.glob("/sys/bus/pci/devices/*/class"):
            node = (machine.read(path.replace("/class", "/numa_node")) or "-1").strip()
            if (machine.read(path) or "").startswith(_NETWORK_CLASS) and node != "-1":
                nodes[path.split("/")[-2]] = int(node)
        return nodes


class ManagementCard(Report):
    """The card that the machine is reached by, which is in use during measurements."""

    good = "not on the CPUs"

    def wanted(self, machine: Machine, cpus: Cpus) -> str | None:
        return self.good if _management(machine) and others(machine, cpus) else None

    def read(self, machine: Machine, cpus: Cpus) -> str | None:
        cards = [
            f"{card}: interrupts {', '.join(irqs)}"
            for card in sorted(_management(machine))
            if (irqs := self._irqs(machine, card, cpus))
        ]
        return "; ".join(cards) or self.good

    def lasting(self, machine: Machine, cpus: Cpus) -> list[Lasting]:
        advice = "keep it quiet while measuring; irq-affinity and irqaffinity= move its interrupts"
        return [Lasting("advice", self.name, advice)]

    def evidence(self, machine: Machine, cpus: Cpus) -> list[str]:
        counts = interrupt_counts(machine, cpus)
        return [
            f"{card}: interrupt {irq}: {counts.get(irq, 'never seen')}"
            for card in sorted(_management(machine))
            for irq in self._irqs(machine, card, cpus)
        ]

    def _irqs(self, machine: Machine, card: str, cpus: Cpus) -> list[str]:
        device = f"/sys/class/net/{card}/device"
        # The interrupts of a virtio card belong to its bus.
        files = machine.glob(f"{device}/msi_irqs/*") or machine.glob(f"{device}/../msi_irqs/*")
        irqs = [path.rpartition("/")[2] for path in files]
        return [
            irq
            for irq in irqs
            if not listed(machine.read(affinity_file(irq)) or "").isdisjoint(cpus)
        ]


def _field(path: str) -> str:
    return path.rpartition("/")[2]


def _cards(machine: Machine) -> list[str]:
    """List the hardware cards, by the kernel's names."""
    return [path.split("/")[4] for path in machine.glob("/sys/class/net/*/device")]


def _management(machine: Machine) -> set[str]:
    """Return the cards of default routes, also those behind a bridge, a bond or a VLAN."""
    lines = (machine.read("/proc/net/route") or "").splitlines()[1:]
    routes = [line.split() for line in lines]
    by = {route[0] for route in routes if route[1:2] == [_DEFAULT]}
    lines = (machine.read("/proc/net/ipv6_route") or "").splitlines()
    routes = [line.split() for line in lines]
    by |= {route[-1] for route in routes if route[:2] == _DEFAULT_IPV6}
    return _beneath(machine, by) & set(_cards(machine))


def _beneath(machine: Machine, interfaces: set[str]) -> set[str]:
    """Return interfaces and all interfaces beneath them."""
    lower = {
        path.rpartition("/lower_")[2]
        for interface in interfaces
        for path in machine.glob(f"/sys/class/net/{interface}/lower_*")
    }
    return interfaces if lower <= interfaces else _beneath(machine, interfaces | lower)


KNOBS: tuple[Knob, ...] = (
    CardSettings(
        name="nic-coalescing",
        title="cards interrupt at once",
        why="a card waits for further packets before it interrupts",
        source="kernel: Documentation/networking/ethtool-netlink.rst (coalescing)",
        cost="more interrupts; irrelevant if a driver polls",
        group="coalescing",
        want=(("adaptive-rx", "0"), ("adaptive-tx", "0"), ("rx-usecs", "0"), ("tx-usecs", "0")),
    ),
    CardSettings(
        name="nic-pause",
        title="no pause frames",
        why="a full receiver stops its sender, and packets wait instead of being lost",
        source="kernel: Documentation/networking/ethtool-netlink.rst (pause)",
        cost="packets that find no room are lost",
        risk="the link goes down for a moment",
        asked="links go down for a moment",
        group="pause",
        want=(("autoneg", "0"), ("rx", "0"), ("tx", "0")),
    ),
    Rings(
        name="nic-rings",
        title="room for 1024 packets",
        why="packets that arrive during a stall are lost where the ring is full",
        source="kernel: Documentation/networking/ethtool-netlink.rst (rings)",
        cost="packets may wait longer instead of being lost",
        risk="the link goes down for a moment",
        asked="links go down for a moment",
        group="ring",
        want=(("rx", str(_RING)),),
    ),
    Locality(
        name="nic-locality",
        title="cards and CPUs on the same NUMA node",
        why="each packet crosses the link between NUMA nodes",
        source="containers2024 §2.4",
    ),
    ManagementCard(
        name="management-nic",
        title="the card for management interrupts other CPUs",
        why="the card for management interrupts the machine while it measures",
        source="limbo2022 §4.1 (irqaffinity)",
    ),
)
