"""The interface of a knob, and the kinds that several knobs share."""

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
"""CPUs to keep free, in ascending order."""

CMDLINE = "/proc/cmdline"
_SYSCTLS = "/proc/sys/"


class Change(NamedTuple):
    """A path and the text that it should have."""

    path: str
    text: str


class Lasting(NamedTuple):
    """A setting that outlives a reboot."""

    how: str
    """One of ``boot`` (a kernel parameter), ``sysctl``, ``sysfs`` (a file to write at boot), and
    ``advice`` (`value` says what to do)."""
    name: str
    value: str

    def __str__(self) -> str:
        """Return the setting in words."""
        return {
            "boot": f"boot parameter {self.parameter}",
            "sysctl": f"sysctl {self.name}={self.value}",
            "sysfs": f"write {self.value} to {self.name} at boot",
        }.get(self.how, self.value)

    @property
    def parameter(self) -> str:
        """Return the setting as a word of the kernel's command line."""
        return f"{self.name}={self.value}" if self.value else self.name


@dataclass(frozen=True, kw_only=True)
class Knob(ABC):
    """A setting of the machine that affects latency."""

    name: str
    title: str
    """Heading of the knob, next to its name on the command line."""
    why: str
    source: str
    """Publication or documentation behind `why`."""
    cost: str = "none"
    risk: str = "none"
    """Risk of the setting; `cost` says what it gives up."""
    asked: str = ""
    """Reason to set the knob only if it is named; empty if there is none."""
    undone_by: str = ""
    """Name of a knob that, if it is bad, may undo this one."""
    lags: str = ""
    """Reason why a change takes long to act, so that it cannot be set for one run and not for
    the next; empty if it acts at once."""
    needs: Callable[[Machine], bool] | None = None
    """Condition on the machine; None if every machine can have the knob."""
    kind: ClassVar[str] = "report"
    """One of ``runtime`` (can be set while the machine runs), ``held`` (only while a process
    holds it), ``boot`` (needs a reboot), and ``report`` (is only read)."""

    def recommended(self, machine: Machine, cpus: Cpus) -> str | None:
        """Return the recommended value; None if the knob does not apply."""
        if self.needs is not None and not self.needs(machine):
            return None
        return self.wanted(machine, cpus)

    @abstractmethod
    def wanted(self, machine: Machine, cpus: Cpus) -> str | None:
        """Return the recommended value for a machine that meets `needs`."""

    @abstractmethod
    def read(self, machine: Machine, cpus: Cpus) -> str | None:
        """Return the current value; None if it cannot be read."""

    @abstractmethod
    def is_good(self, machine: Machine, cpus: Cpus) -> bool:
        """Return True if the current value is as good as the recommended one."""

    def changes(self, machine: Machine, cpus: Cpus) -> list[Change]:
        """List the writes that set the recommended value, in order."""
        return []

    def lasting(self, machine: Machine, cpus: Cpus) -> list[Lasting]:
        """List what makes it last."""
        return []

    def evidence(self, machine: Machine, cpus: Cpus) -> list[str]:
        """List what `read` is taken from."""
        return []

    def takes(self, text: str, change: Change, cpus: Cpus) -> bool:
        """Return True if a text that was read is as good as the text that was written."""
        return chosen(text) == change.text

    def refusal(self, machine: Machine) -> str:
        """Return the machine's explanation of the last refused write, if there is one."""
        return ""


@dataclass(frozen=True, kw_only=True)
class Boot(Knob):
    """A parameter on the kernel's command line."""

    parameter: str
    """Recommended parameter, with ``{cpus}``, or ``{others}`` for all other CPUs."""
    equal: tuple[str, ...] = ()
    """Other spellings with the same effect."""
    taken: str = ""
    """File that lists the CPUs for which the kernel applied the parameter; it outweighs the
    command line."""
    implied: str = ""
    """File that lists further CPUs for which the parameter holds."""
    misspelt: str = ""
    """Frequent misspelling without effect."""
    kind: ClassVar[str] = "boot"

    def wanted(self, machine: Machine, cpus: Cpus) -> str | None:
        return filled(self.parameter, machine, cpus)

    def read(self, machine: Machine, cpus: Cpus) -> str | None:
        words = _command_line(machine)
        if words is None:
            return None
        given = " ".join(self._given(words))
        kernel_says = cpu_list(self._kernel_says(machine))
        otherwise = f"CPUs {kernel_says}, by other means" if kernel_says else "absent"
        return (given or otherwise) + _misspelling(words, self.misspelt)

    def is_good(self, machine: Machine, cpus: Cpus) -> bool:
        given = self._given(_command_line(machine) or [])
        last = given[-1] if given else ""
        if "{" not in self.parameter:
            return last in (self.parameter, *self.equal)
        named = set() if self.taken else _named_cpus(last.partition("=")[2], machine)
        if "{others}" in self.parameter:
            return bool(named) and named.isdisjoint(cpus)
        return (named | self._kernel_says(machine)).issuperset(cpus)

    def lasting(self, machine: Machine, cpus: Cpus) -> list[Lasting]:
        parameter = self.recommended(machine, cpus)
        return [] if parameter is None else [_boot(parameter)]

    def evidence(self, machine: Machine, cpus: Cpus) -> list[str]:
        lines = [f"{CMDLINE}: {self.read(machine, cpus)}"]
        files = filter(None, (self.taken, self.implied))
        return lines + [f"{file}: {_shown(machine.read(file))}" for file in files]

    def _given(self, words: list[str]) -> list[str]:
        name = self.parameter.partition("=")[0]
        return [word for word in words if word.partition("=")[0] == name]

    def _kernel_says(self, machine: Machine) -> set[int]:
        """Return the CPUs that the kernel's files list; none for kernels without these files."""
        files = filter(None, (self.taken, self.implied))
        return set().union(*(listed(machine.read(file) or "") for file in files))


@dataclass(frozen=True, kw_only=True)
class Files(Knob):
    """Texts of files of one kind."""

    parameter: str = ""
    misspelt: str = ""
    """Frequent misspelling of `parameter`, the boot parameter that makes the setting last."""
    together: bool = False
    """True if a later write is useless after an earlier one was refused."""
    kind: ClassVar[str] = "runtime"

    @abstractmethod
    def settings(self, machine: Machine, cpus: Cpus) -> list[Change]:
        """List the files that exist, with their recommended texts."""

    def wanted(self, machine: Machine, cpus: Cpus) -> str | None:
        return _summary(change.text for change in self.settings(machine, cpus))

    def read(self, machine: Machine, cpus: Cpus) -> str | None:
        texts = [machine.read(change.path) for change in self.settings(machine, cpus)]
        summary = _summary(chosen(text) for text in texts if text is not None)
        if summary is None or None in texts:
            return None
        return summary + _misspelling(_command_line(machine) or [], self.misspelt)

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
            parameter = filled(self.parameter, machine, cpus)
            return [] if parameter is None else [_boot(parameter)]
        return [_lasting(change) for change in self.settings(machine, cpus)]

    def evidence(self, machine: Machine, cpus: Cpus) -> list[str]:
        files = [change.path for change in self.settings(machine, cpus)]
        return [f"{path}: {_shown(machine.read(path))}" for path in files]


@dataclass(frozen=True, kw_only=True)
class File(Files):
    """One file with one value."""

    path: str
    want: str
    """Recommended value, with ``{cpus}`` and ``{others}``."""
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
    """A file with a list of CPUs that should not contain those to keep free."""

    want: str = "{others}"

    def takes(self, text: str, change: Change, cpus: Cpus) -> bool:
        return listed(text).isdisjoint(cpus)


@dataclass(frozen=True, kw_only=True)
class CpuMaskFile(File):
    """A file with a mask of CPUs that should not contain those to keep free."""

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
    """One file for each CPU to keep free."""

    pattern: str
    """Path with ``{cpu}``; ``*`` matches several files."""
    want: str
    tuned: str = ""
    """Option of TuneD's ``[cpu]`` with the same effect."""

    def settings(self, machine: Machine, cpus: Cpus) -> list[Change]:
        return [
            Change(path, self.want)
            for cpu in cpus
            for path in machine.glob(self.pattern.format(cpu=cpu))
        ]


class Report(Knob):
    """A knob that is only read; `is_good` compares `read` with `wanted`."""

    good: ClassVar[str] = "none"

    def is_good(self, machine: Machine, cpus: Cpus) -> bool:
        return self.read(machine, cpus) == self.good


def online(machine: Machine) -> list[int]:
    """List the CPUs that are online; empty if they cannot be read."""
    return sorted(listed(machine.read("/sys/devices/system/cpu/online") or ""))


def others(machine: Machine, cpus: Cpus) -> list[int]:
    """List the CPUs that are left for everything else."""
    return [cpu for cpu in online(machine) if cpu not in cpus]


def filled(text: str, machine: Machine, cpus: Cpus) -> str | None:
    """Insert CPUs into a text; return None if no other CPU is left."""
    if "{" not in text:
        return text
    rest = others(machine, cpus)
    return text.format(cpus=cpu_list(cpus), others=cpu_list(rest)) if rest else None


def listed(text: str) -> set[int]:
    """Parse a list of CPUs of the kernel's without the flags before it; empty if it is none."""
    parts = (part for part in text.strip().split(",") if re.fullmatch(r"\d+(-\d+)?", part))
    with suppress(UsageError):
        return set(parse_cpus(",".join(parts)))
    return set()


def _named_cpus(text: str, machine: Machine) -> set[int]:
    """Return the CPUs that a parameter names; ``all`` and ``N``, the last CPU, are expanded."""
    possible = listed(machine.read("/sys/devices/system/cpu/possible") or "") or set(
        online(machine)
    )
    last = str(max(possible, default=0))
    parts = text.replace("N", last).split(",")
    return listed(",".join(f"0-{last}" if part == "all" else part for part in parts))


def is_x86(machine: Machine) -> bool:
    """Return True if the processor is an x86."""
    return "vendor_id" in (machine.read("/proc/cpuinfo") or "")


def is_intel(machine: Machine) -> bool:
    """Return True if the processor is from Intel."""
    return "GenuineIntel" in (machine.read("/proc/cpuinfo") or "")


def _command_line(machine: Machine) -> list[str] | None:
    """Return the kernel's part of its command line; the words after ``--`` are for init."""
    text = machine.read(CMDLINE)
    return None if text is None else f" {text.strip()} ".partition(" -- ")[0].split()


def _misspelling(words: list[str], misspelt: str) -> str:
    """Describe a misspelt parameter on the command line; empty if there is none."""
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
    """Summarise values: the one that all share, or each with its count; None without any."""
    counts = Counter(values)
    if len(counts) < 2:
        return next(iter(counts), None)
    total = counts.total()
    return ", ".join(f"{value} ({count} of {total})" for value, count in counts.items())


def _shown(text: str | None) -> str:
    return "not readable" if text is None else " / ".join(text.strip().split("\n"))
