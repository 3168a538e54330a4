"""The inventory of a machine, as ``run.json`` has it; null is what could not be read."""

from __future__ import annotations

from msgspec import Struct


class NumaNode(Struct, frozen=True, kw_only=True):
    """A NUMA node."""

    number: int
    cpus: str
    """List of its CPUs."""
    memory_bytes: int | None


class Cache(Struct, frozen=True, kw_only=True):
    """A cache, and the CPUs that share it."""

    level: int
    kind: str
    """``Data``, ``Instruction`` or ``Unified``."""
    size_bytes: int | None
    ways: int | None
    """Ways of associativity, in which it is divided by CAT."""
    cpus: str


class Card(Struct, frozen=True, kw_only=True):
    """A network card of the PCI bus."""

    address: str
    vendor: str | None
    device: str | None
    """Its PCI address, and the numbers of its vendor and kind."""
    driver: str | None
    """Driver that it is bound to, such as ``ixgbe`` or ``vfio-pci``."""
    driver_version: str | None
    firmware: str | None
    """Versions as the kernel's driver tells them; null where DPDK has the card."""
    numa_node: int | None
    links: tuple[str, ...]
    """The kernel's links of it."""
    virtual_functions: int
    is_virtual_function: bool


class Inventory(Struct, frozen=True, kw_only=True):
    """The inventory of a machine."""

    memory_bytes: int | None
    numa_nodes: tuple[NumaNode, ...]
    caches: tuple[Cache, ...]
    cards: tuple[Card, ...]
    lstopo: str | None
    """What ``lstopo`` of hwloc draws as text; null where it is not installed."""
