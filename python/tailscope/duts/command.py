"""Any program that a person starts."""

from __future__ import annotations

import re
import shlex
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from tailscope.duts.dut import Dut, DutContext, Running, as_it_is
from tailscope.duts.program import RunningProgram, wait_for
from tailscope.exceptions import TestbedError, UsageError
from tailscope.testbed.programs import which
from tailscope.units import positive_duration_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

__all__ = ["Command"]

_READY_S = 60.0
_LINKS = re.compile(r"\{links\}|\{link\d+\}")
_NAMED = ("{link0}", "{link1}")


def _words(name: str, value: str) -> list[str]:
    try:
        words = shlex.split(value)
    except ValueError as error:
        raise UsageError(f"--dut-option {name}: {error}") from None
    if not words:
        raise UsageError(f"--dut-option {name}: got nothing, expected a command")
    return words


def _pattern(name: str, value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise UsageError(f"--dut-option {name}: {value!r}: {error}") from None
    return as_it_is(name, value)


def _within(name: str, value: str) -> float:
    return positive_duration_ns(value, f"--dut-option {name}") / 1e9


class Command(Dut):
    """A command of the user's; no shell reads it.

    It gets at its ports by ``{eal}``, or by the kernel's links: in its words ``{links}`` stands for
    these (a word each), ``{link0}`` and ``{link1}`` for one of them, ``{eal}`` for DPDK's options
    for ports and memory (a word each), ``{cpus}`` for the CPUs that are its own, ``{folder}`` for a
    private folder. Other words in braces are the program's own.
    """

    name = "command"
    about = "any program, with a probe that says when it is ready"
    options = {  # noqa: RUF012
        "run": _words,
        "ready": _pattern,
        "ready-command": _words,
        "ready-within": _within,
        "version": _words,
    }

    def __init__(self, options: Mapping[str, str], wire: str) -> None:
        super().__init__(options, wire)
        if "run" not in self.given:
            raise UsageError("dut command: no --dut-option run=COMMAND")
        if ("ready" in self.given) == ("ready-command" in self.given):
            raise UsageError(
                "dut command: expected one of --dut-option ready=PATTERN (in its output)"
                " and ready-command=COMMAND (that succeeds)"
            )
        self._check_ports()

    def _check_ports(self) -> None:
        """See that what it is given of its ports is there."""
        links = sorted({*_LINKS.findall(" ".join(self.given.values()))})
        beyond = [word for word in links if word not in ("{links}", *_NAMED[: self.ports])]
        if beyond:
            expected = ", ".join(("{links}", *_NAMED[: self.ports]))
            raise UsageError(f"dut command: got {beyond[0]}, expected {expected}")
        if self.wire == "memif" and links:
            raise UsageError(
                f"dut command: {links[0]} stands for a link of the kernel; got --wire memif,"
                " which has none",
                hint="join it by --wire veth, or give a program of DPDK its ports by {eal}",
            )
        if self.wire == "memif" and not self.uses_dpdk:
            raise UsageError(
                "dut command: run has no {eal}, by which a program of DPDK gets its ports",
                hint="a program that uses links of the kernel is joined by --wire veth",
            )

    @property
    def uses_dpdk(self) -> bool:
        """If it asks for DPDK's options."""
        return "{eal}" in _words("run", self.given["run"])

    def guest_programs(self) -> tuple[Path, ...]:
        """The command's own, and its probe's."""
        names = [name for name in ("run", "ready-command") if name in self.given]
        return tuple(filter(None, (which(_words(name, self.given[name])[0]) for name in names)))

    @contextmanager
    def open(self, context: DutContext) -> Iterator[Running]:
        """Start it, and wait for its probe."""
        command = _filled(_words("run", self.given["run"]), context)
        with context.place.start(
            "dut", command, cpus=context.allowed, merged=True, urgent=True
        ) as process:
            within = self.given.get("ready-within")
            timeout_s = _READY_S if within is None else _within("ready-within", within)
            ready: str | Callable[[], bool]
            waits_for = None
            if "ready" in self.given:
                ready = self.given["ready"]
            else:
                probe = _filled(_words("ready-command", self.given["ready-command"]), context)
                ready, waits_for = partial(_succeeds, context, probe), shlex.join(probe)
            wait_for(command[0], process, ready, timeout_s=timeout_s, waits_for=waits_for)
            version = self.given.get("version")
            said = "unknown"
            if version is not None:
                said = context.place.run(_words("version", version)).strip()
            yield RunningProgram(command[0], process, version=said, configuration=command)


def _filled(words: list[str], context: DutContext) -> list[str]:
    filled: list[str] = []
    single = {
        "{cpus}": ",".join(map(str, context.working)),
        "{folder}": str(context.place.folder),
        **{f"{{link{number}}}": link for number, link in enumerate(context.side.links)},
    }
    for word in words:
        if word == "{eal}":
            filled += context.side.eal
        elif word == "{links}":
            filled += context.side.links
        else:
            for name, value in single.items():
                word = word.replace(name, value)
            filled.append(word)
    return filled


def _succeeds(context: DutContext, command: list[str]) -> bool:
    try:
        context.place.run(command)
    except TestbedError:
        return False
    return True
