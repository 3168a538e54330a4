"""Interrupts of devices, and the CPUs that they arrive on."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailscope.host.cpus import cpu_list, parse_cpu_mask
from tailscope.host.knobs.knob import (
    Change,
    CpuMaskFile,
    Files,
    Lasting,
    Report,
    filled,
    listed,
    others,
)

if TYPE_CHECKING:
    from tailscope.host.knobs.knob import Cpus, Knob
    from tailscope.host.machine import Machine

_SOURCE = "kernel: Documentation/core-api/irq/irq-affinity.rst"
_BANNED = "IRQBALANCE_BANNED_CPULIST"
_BANNED_MASK = "IRQBALANCE_BANNED_CPUS"
_IRQBALANCE = ("/etc/default/irqbalance", "/etc/sysconfig/irqbalance")
_CPUS = "/sys/devices/system/cpu"


def affinity_file(irq: str) -> str:
    """Return the path of the file that lists the CPUs of an interrupt."""
    return f"/proc/irq/{irq}/smp_affinity_list"


def interrupt_counts(machine: Machine, cpus: Cpus) -> dict[str, str]:
    """Describe each interrupt: its count on the CPUs, and its name."""
    lines = (machine.read("/proc/interrupts") or "").splitlines()
    columns = [int(name[3:]) for name in lines[0].split()] if lines else []
    described = {}
    for line in lines[1:]:
        irq, _, rest = line.partition(":")
        words = rest.split()
        counts = dict(zip(columns, words, strict=False))
        what = " ".join(words[len(columns) :])
        total = sum(int(counts[cpu]) for cpu in cpus if counts.get(cpu, "").isdecimal())
        described[irq.strip()] = f"{total} on CPUs {cpu_list(cpus)} so far ({what})"
    return described


@dataclass(frozen=True, kw_only=True)
class IrqAffinity(Files):
    """The CPUs of each interrupt."""

    def settings(self, machine: Machine, cpus: Cpus) -> list[Change]:
        rest = set(others(machine, cpus))
        changes = []
        for path in machine.glob(affinity_file("[0-9]*")) if rest else ():
            if not machine.is_settable(path):
                continue  # Since Linux 6.11 that is what the kernel says of one that cannot move.
            allowed = listed(machine.read(path) or "") & rest
            changes.append(Change(path, cpu_list(allowed or rest)))
        return changes

    def takes(self, text: str, change: Change, cpus: Cpus) -> bool:
        return listed(text).isdisjoint(cpus)

    def wanted(self, machine: Machine, cpus: Cpus) -> str | None:
        return "none on the CPUs" if self.settings(machine, cpus) else None

    def read(self, machine: Machine, cpus: Cpus) -> str | None:
        settings = self.settings(machine, cpus)
        if any(machine.read(path) is None for path, _ in settings):
            return None
        count = sum(
            not self.takes(machine.read(change.path) or "", change, cpus) for change in settings
        )
        return f"{count or 'none'} on the CPUs"

    def lasting(self, machine: Machine, cpus: Cpus) -> list[Lasting]:
        value = filled("{others}", machine, cpus)
        return [] if value is None else [Lasting("boot", "irqaffinity", value)]

    def evidence(self, machine: Machine, cpus: Cpus) -> list[str]:
        counts = interrupt_counts(machine, cpus)
        return [
            f"{path}: {(machine.read(path) or 'not readable').strip()}"
            f"; {counts.get(path.split('/')[3], 'never seen')}"
            for path, _ in self.changes(machine, cpus)
        ]


class Irqbalance(Report):
    """The service that distributes interrupts over CPUs."""

    good = "not on the CPUs"

    def wanted(self, machine: Machine, cpus: Cpus) -> str | None:
        return self.good if others(machine, cpus) else None

    def read(self, machine: Machine, cpus: Cpus) -> str | None:
        if self._pid(machine) is None or self._banned(machine).issuperset(cpus):
            return self.good
        return "running"

    def lasting(self, machine: Machine, cpus: Cpus) -> list[Lasting]:
        file = next(filter(machine.exists, _IRQBALANCE), _IRQBALANCE[0])
        setting = f"{_BANNED}={cpu_list(cpus)} in {file}, then restart it; or stop it"
        return [Lasting("advice", self.name, setting)]

    def evidence(self, machine: Machine, cpus: Cpus) -> list[str]:
        pid = self._pid(machine)
        runs = "no process" if pid is None else f"process {pid}"
        spared = cpu_list(self._banned(machine)) or "none"
        settings = [f"{name}={text}" for name, text in self._settings(machine).items()]
        return [f"irqbalance: {runs}", f"CPUs that it spares: {spared}", *settings]

    def _pid(self, machine: Machine) -> str | None:
        for path in machine.glob("/proc/[0-9]*/comm"):
            if (machine.read(path) or "").strip() == "irqbalance":
                return path.split("/")[2]
        return None

    def _banned(self, machine: Machine) -> set[int]:
        """Return the CPUs that the service spares: those of its settings, or the isolated ones."""
        settings = self._settings(machine)
        if _BANNED_MASK in settings:  # It has the last word.
            with suppress(ValueError):
                return parse_cpu_mask(settings[_BANNED_MASK])
            return set()
        if _BANNED in settings:
            return listed(settings[_BANNED])
        files = (f"{_CPUS}/isolated", f"{_CPUS}/nohz_full")
        return set().union(*(listed(machine.read(file) or "") for file in files))

    def _settings(self, machine: Machine) -> dict[str, str]:
        text = "\n".join(machine.read(file) or "" for file in _IRQBALANCE)
        line = rf"^\s*(?:export\s+)?({_BANNED_MASK}|{_BANNED})=[\"']?([\da-fA-F,-]*)"
        return dict(re.findall(line, text, re.MULTILINE))


KNOBS: tuple[Knob, ...] = (
    CpuMaskFile(
        name="default-irq-affinity",
        title="new interrupts on other CPUs",
        why="an interrupt that is set up later may arrive on any CPU",
        source=_SOURCE,
        path="/proc/irq/default_smp_affinity",
        parameter="irqaffinity={others}",
    ),
    IrqAffinity(
        name="irq-affinity",
        title="interrupts on other CPUs",
        why="each interrupt takes the CPU away for microseconds",
        source="limbo2022 §4.1 (irqaffinity)",
        cost="the other CPUs serve all devices",
        risk="some interrupts cannot be moved: those are reported, and stay",
        undone_by="irqbalance",
    ),
    Irqbalance(
        name="irqbalance",
        title="irqbalance leaves the CPUs alone",
        why="it moves interrupts to whatever CPU is idle, also those that were moved away",
        source=_SOURCE,
    ),
)
