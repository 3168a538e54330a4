"""What a knob is, and the kinds of which there are many."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple, TypeAlias

from tailscope.exceptions import UsageError
from tailscope.host.cpus import cpu_list, cpu_mask, parse_cpu_mask, parse_cpus
from tailscope.host.machine import chosen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tailscope.host.machine import Machine

Cpus: TypeAlias = tuple[int, ...]
"""The CPUs to keep free, in ascending order."""

CMDLINE = "/proc/cmdline"
_SYSCTLS = "/proc/sys/"


class Change(NamedTuple):
    """A text that a path should have."""

    path: str
    text: str


class Lasting(NamedTuple):
    """How a setting outlives a reboot."""

    how: str
    """``boot`` (a parameter of the kernel), ``sysctl``, ``sysfs`` (a file to write at boot), or
    ``advice`` (`value` says what to do)."""
    name: str
    value: str

    def __str__(self) -> str:
        """In words."""
        return {
            "boot": f"boot parameter {self.parameter}",
            "sysctl": f"sysctl {self.name}={self.value}",
            "sysfs": f"write {self.value} to {self.name} at boot",
        }.get(self.how, self.value)

    @property
    def parameter(self) -> str:
        """As it stands on the kernel's command line."""
        return f"{self.name}={self.value}" if self.value else self.name


@dataclass(frozen=True, kw_only=True)
class Knob(ABC):
    """Something of the machine that decides latency."""

    name: str
    title: str
    """What it is called on the command line, and for people."""
    why: str
    source: str
    """Why it matters, and who says so."""
    cost: str = "none"
    risk: str = "none"
    """What is given up, and what may go wrong."""
    asked: str = ""
    """Why it is changed only where it is asked for by name; empty where it need not be."""
    undone_by: str = ""
    """The knob that, where it is bad, may undo it."""
    lags: str = ""
    """Why it takes long until it acts, or no longer does, so that it cannot be set for one run and
    not for the next; empty where it acts at once."""
    needs: Callable[[Machine], bool] | None = None
    """Whether a machine can have it at all."""
    kind: ClassVar[str] = "report"
    """``runtime`` (can be set while the machine runs), ``held`` (only for as long as a process
    holds it), ``boot`` (needs a reboot), ``report`` (only looked at)."""

    def recommended(self, machine: Machine, cpus: Cpus) -> str | None:
        """What it should be; None where it does not apply."""
        if self.needs is not None and not self.needs(machine):
            return None
        return self.wanted(machine, cpus)

    @abstractmethod
    def wanted(self, machine: Machine, cpus: Cpus) -> str | None:
        """What it should be on a machine that can have it."""

    @abstractmethod
    def read(self, machine: Machine, cpus: Cpus) -> str | None:
        """What it is; None where that cannot be read."""

    @abstractmethod
    def is_good(self, machine: Machine, cpus: Cpus) -> bool:
        """Whether it is as it should be."""

    def changes(self, machine: Machine, cpus: Cpus) -> list[Change]:
        """List each single write that makes it what it should be, in order."""
        return []

    def lasting(self, machine: Machine, cpus: Cpus) -> list[Lasting]:
        """List what makes it last."""
        return []

    def evidence(self, machine: Machine, cpus: Cpus) -> list[str]:
        """List what `read` is taken from."""
        return []

    def takes(self, text: str, change: Change, cpus: Cpus) -> bool:
        """Whether a text that was read is as good as the one that was written."""
        return chosen(text) == change.text


@dataclass(frozen=True, kw_only=True)
class Boot(Knob):
    """A parameter of the kernel's command line."""

    parameter: str
    """As it should be, with ``{cpus}``, or ``{others}`` for all other CPUs."""
    equal: tuple[str, ...] = ()
    """Parameters that say the same."""
    taken: str = ""
    """A file that lists the CPUs for which the kernel took it, where kernels have one: it alone is
    believed."""
    implied: str = ""
    """A file that lists further CPUs for which it holds."""
    misspelt: str = ""
    """How it is often written, without effect."""
    kind: ClassVar[str] = "boot"

    def wanted(self, machine: Machine, cpus: Cpus) -> str | None:
        return filled(self.parameter, machine, cpus)

    def read(self, machine: Machine, cpus: Cpus) -> str | None:
        words = _command_line(machine)
        if words is None:
            return None
        found = " ".join(self._given(words))
        kernel_says = cpu_list(self._kernel_says(machine))
        found = found or (f"CPUs {kernel_says}, by other means" if kernel_says else "absent")
        return found + _misspelling(words, self.misspelt)

    def is_good(self, machine: Machine, cpus: Cpus) -> bool:
        given = self._given(_command_line(machine) or [])
        last = given[-1] if given else ""
        if "{" not in self.parameter:
            return last in (self.parameter, *self.equal)
        found = set() if self.taken else _named_cpus(last.partition("=")[2], machine)
        if "{others}" in self.parameter:
            return bool(found) and found.isdisjoint(cpus)
        return (found | self._kernel_says(machine)).issuperset(cpus)

    def lasting(self, machine: Machine, cpus: Cpus) -> list[Lasting]:
        parameter = self.recommended(machine, cpus)
        return [] if parameter is None else [_boot(parameter)]

    def evidence(self, machine: Machine, cpus: Cpus) -> list[str]:
        found = [f"{CMDLINE}: {self.read(machine, cpus)}"]
        files = filter(None, (self.taken, self.implied))
        return found + [f"{file}: {_shown(machine.read(file))}" for file in files]

    def _given(self, words: list[str]) -> list[str]:
        name = self.parameter.partition("=")[0]
        return [word for word in words if word.partition("=")[0] == name]

    def _kernel_says(self, machine: Machine) -> set[int]:
        """The CPUs for which it holds, by the kernel's files; kernels without it have none."""
        files = filter(None, (self.taken, self.implied))
        return set().union(*(listed(machine.read(file) or "") for file in files))


@dataclass(frozen=True, kw_only=True)
class Files(Knob):
    """Texts of files, all of which should be of one kind."""

    parameter: str = ""
    misspelt: str = ""
    """The boot parameter by which it lasts, where it is by one, and how it is often misspelt."""
    together: bool = False
    """Whether one write is of no use where an earlier one was refused."""
    kind: ClassVar[str] = "runtime"

    @abstractmethod
    def settings(self, machine: Machine, cpus: Cpus) -> list[Change]:
        """List the files that there are, with what they should be."""

    def wanted(self, machine: Machine, cpus: Cpus) -> str | None:
        return _summary(change.text for change in self.settings(machine, cpus))

    def read(self, machine: Machine, cpus: Cpus) -> str | None:
        texts = [machine.read(change.path) for change in self.settings(machine, cpus)]
        found = _summary(chosen(text) for text in texts if text is not None)
        if found is None or None in texts:
            return None
        return found + _misspelling(_command_line(machine) or [], self.misspelt)

    def is_good(self, machine: Machine, cpus: Cpus) -> bool:
        return not self.changes(machine, cpus)

    def changes(self, machine: Machine, cpus: Cpus) -> list[Change]:
        if self.recommended(machine, cpus) is None:
            return []
        return [
            change
            for change in self.settings(machine, cpus)
            if (text := machine.read(change.path)) is None or not self.takes(text, change, cpus)
        ]

    def lasting(self, machine: Machine, cpus: Cpus) -> list[Lasting]:
        if self.recommended(machine, cpus) is None:
            return []
        if self.parameter:
            found = filled(self.parameter, machine, cpus)
            return [] if found is None else [_boot(found)]
        return [_lasting(change) for change in self.settings(machine, cpus)]

    def evidence(self, machine: Machine, cpus: Cpus) -> list[str]:
        files = [change.path for change in self.settings(machine, cpus)]
        return [f"{path}: {_shown(machine.read(path))}" for path in files]


@dataclass(frozen=True, kw_only=True)
class File(Files):
    """One file with one value."""

    path: str
    want: str
    """With ``{cpus}`` and ``{others}`` in the value."""
    equal: tuple[str, ...] = ()
    """Values that are as good."""

    def settings(self, machine: Machine, cpus: Cpus) -> list[Change]:
        want = filled(self.want, machine, cpus)
        if want is None or not machine.exists(self.path):
            return []
        return [Change(self.path, want)]

    def takes(self, text: str, change: Change, cpus: Cpus) -> bool:
        return chosen(text) in (change.text, *self.equal)


@dataclass(frozen=True, kw_only=True)
class AtLeast(File):
    """A file with a number that should not be lower."""

    def takes(self, text: str, change: Change, cpus: Cpus) -> bool:
        value = text.strip()
        return value in self.equal or (value.isdecimal() and int(value) >= int(change.text))


@dataclass(frozen=True, kw_only=True)
class CpuListFile(File):
    """A file with a list of CPUs, in which those to keep free should not be."""

    want: str = "{others}"

    def takes(self, text: str, change: Change, cpus: Cpus) -> bool:
        return listed(text).isdisjoint(cpus)


@dataclass(frozen=True, kw_only=True)
class CpuMaskFile(File):
    """A file with a mask of CPUs, in which those to keep free should not be."""

    want: str = "{others}"

    def settings(self, machine: Machine, cpus: Cpus) -> list[Change]:
        like = machine.read(self.path) or ""
        return [
            Change(path, cpu_mask(parse_cpus(text), like))
            for path, text in super().settings(machine, cpus)
        ]

    def takes(self, text: str, change: Change, cpus: Cpus) -> bool:
        with suppress(ValueError):
            return parse_cpu_mask(text).isdisjoint(cpus)
        return False


@dataclass(frozen=True, kw_only=True)
class PerCpuFile(Files):
    """A file for each CPU to keep free."""

    pattern: str
    """Its path, with ``{cpu}``; there may be several, with ``*``."""
    want: str
    tuned: str = ""
    """The option of TuneD's ``[cpu]`` that does it too."""

    def settings(self, machine: Machine, cpus: Cpus) -> list[Change]:
        return [
            Change(path, self.want)
            for cpu in cpus
            for path in machine.glob(self.pattern.format(cpu=cpu))
        ]


class Report(Knob):
    """Something that is only looked at; `read` and what is made of it agree by construction."""

    good: ClassVar[str] = "none"

    def is_good(self, machine: Machine, cpus: Cpus) -> bool:
        return self.read(machine, cpus) == self.good


def online(machine: Machine) -> list[int]:
    """The CPUs that run; none where that cannot be read."""
    return sorted(listed(machine.read("/sys/devices/system/cpu/online") or ""))


def others(machine: Machine, cpus: Cpus) -> list[int]:
    """The CPUs that are left for everything else."""
    return [cpu for cpu in online(machine) if cpu not in cpus]


def filled(text: str, machine: Machine, cpus: Cpus) -> str | None:
    """Put CPUs into a text; None where no other CPU is left, so that none can be kept free."""
    if "{" not in text:
        return text
    rest = others(machine, cpus)
    return text.format(cpus=cpu_list(cpus), others=cpu_list(rest)) if rest else None


def listed(text: str) -> set[int]:
    """The CPUs in a list of the kernel's, flags before it left out; none if it is none."""
    parts = (part for part in text.strip().split(",") if re.fullmatch(r"\d+(-\d+)?", part))
    with suppress(UsageError):
        return set(parse_cpus(",".join(parts)))
    return set()


def _named_cpus(text: str, machine: Machine) -> set[int]:
    """The CPUs that a parameter names, ``all`` and ``N``, the last one, included."""
    there = listed(machine.read("/sys/devices/system/cpu/possible") or "") or set(online(machine))
    last = str(max(there, default=0))
    parts = text.replace("N", last).split(",")
    return listed(",".join(f"0-{last}" if part == "all" else part for part in parts))


def is_x86(machine: Machine) -> bool:
    """Whether its processor is one of Intel's, AMD's or alike."""
    return "vendor_id" in (machine.read("/proc/cpuinfo") or "")


def is_intel(machine: Machine) -> bool:
    """Whether its processor is one of Intel's."""
    return "GenuineIntel" in (machine.read("/proc/cpuinfo") or "")


def _command_line(machine: Machine) -> list[str] | None:
    """The kernel's part of its command line; what follows ``--`` is for the first process."""
    text = machine.read(CMDLINE)
    return None if text is None else f" {text.strip()} ".partition(" -- ")[0].split()


def _misspelling(words: list[str], misspelt: str) -> str:
    """Say that a parameter is there which no kernel knows."""
    given = {word.partition("=")[0] for word in words}
    return f", misspelt {misspelt}" if misspelt and misspelt in given else ""


def _boot(parameter: str) -> Lasting:
    name, _, value = parameter.partition("=")
    return Lasting("boot", name, value)


def _lasting(change: Change) -> Lasting:
    if change.path.startswith(_SYSCTLS):
        name = change.path.removeprefix(_SYSCTLS).replace("/", ".")
        return Lasting("sysctl", name, change.text)
    return Lasting("sysfs", change.path, change.text)


def _summary(values: Iterable[str]) -> str | None:
    """One value where all are equal, else each with how often it is there; None without any."""
    counts = Counter(values)
    if len(counts) < 2:
        return next(iter(counts), None)
    total = counts.total()
    return ", ".join(f"{value} ({count} of {total})" for value, count in counts.items())


def _shown(text: str | None) -> str:
    return "not readable" if text is None else " / ".join(text.strip().split("\n"))
