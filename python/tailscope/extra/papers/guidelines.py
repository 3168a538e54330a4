"""Guidelines i, ii and v of commag2020, which `tailscope host audit` reports as knobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailscope.host.knobs.knob import Report

if TYPE_CHECKING:
    from tailscope.host.knobs.knob import Cpus, Knob
    from tailscope.host.machine import Machine

_PCI = "/sys/bus/pci/devices"
_BYPASS = ("vfio-pci", "uio_pci_generic", "igb_uio")
_REALTIME = "/sys/kernel/realtime"


def _cards(machine: Machine) -> list[str]:
    """Return the folders of the Ethernet cards."""
    kinds = machine.glob(f"{_PCI}/*/class")
    return [
        kind.removesuffix("/class")
        for kind in kinds
        if (machine.read(kind) or "").startswith("0x0200")
    ]


class _Framework(Report):
    """Cards that a packet processing framework may take."""

    good = "a card for DPDK"

    def wanted(self, machine: Machine, cpus: Cpus) -> str | None:  # noqa: ARG002
        return self.good if len(_cards(machine)) > 1 else None

    def read(self, machine: Machine, cpus: Cpus) -> str | None:  # noqa: ARG002
        bound = [card for card in _cards(machine) if machine.exists(f"{card}/driver")]
        drivers = {machine.link(f"{card}/driver").rpartition("/")[2] for card in bound}
        return self.good if drivers & {*_BYPASS} else "all cards are the kernel's"


class _VirtualFunctions(Report):
    """Virtual functions of cards that can have them."""

    good = "some"

    def wanted(self, machine: Machine, cpus: Cpus) -> str | None:  # noqa: ARG002
        able = (machine.read(f"{card}/sriov_totalvfs") for card in _cards(machine))
        return self.good if any(count not in (None, "0\n") for count in able) else None

    def read(self, machine: Machine, cpus: Cpus) -> str | None:  # noqa: ARG002
        made = (machine.read(f"{card}/sriov_numvfs") for card in _cards(machine))
        return self.good if any(count not in (None, "0\n") for count in made) else "none"


class _Preemption(Report):
    """Preemption of the kernel."""

    good = "PREEMPT_RT"

    def wanted(self, machine: Machine, cpus: Cpus) -> str | None:  # noqa: ARG002
        return self.good if machine.exists("/proc/version") else None

    def read(self, machine: Machine, cpus: Cpus) -> str | None:  # noqa: ARG002
        is_rt = machine.read(_REALTIME) == "1\n"
        is_rt = is_rt or "PREEMPT_RT" in (machine.read("/proc/version") or "")
        return self.good if is_rt else "not PREEMPT_RT"

    def evidence(self, machine: Machine, cpus: Cpus) -> list[str]:  # noqa: ARG002
        return [(machine.read("/proc/version") or "").strip()]


KNOBS: tuple[Knob, ...] = (
    _Framework(
        name="packet-framework",
        title="a framework that bypasses the kernel",
        why="the kernel's drivers interrupt, and its stack takes longer than the function",
        source="commag2020 §IV (i)",
        cost="the kernel loses the card",
    ),
    _VirtualFunctions(
        name="virtual-functions",
        title="virtual functions for guests",
        why="a switch in software, or a whole card for each guest, stands between card and guest",
        source="commag2020 §IV (ii)",
        cost="a guest with a function cannot migrate",
    ),
    _Preemption(
        name="preemption",
        title="a PREEMPT_RT kernel",
        why="code of the kernel that cannot be preempted delays what interrupts it",
        source="commag2020 §IV (v); limbo2022 Recommendation III: not for every function",
        cost="throughput of everything that the kernel does",
    ),
)
"""The knobs."""
