"""The device ``command``: any program of the user's."""

from __future__ import annotations

import re
import shlex
from contextlib import contextmanager
from difflib import get_close_matches
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

    from tailscope.testbed.places import Process

_READY_S = 60.0
_LINKS = re.compile(r"\{links\}|\{link\d+\}")
_NAMED = ("{link0}", "{link1}")
_BRACED = re.compile(r"\{\w+\}")
_KNOWN = ("{links}", *_NAMED, "{eal}", "{cpus}", "{folder}")
_LIKE = 0.8
"""Likeness of a word in braces to a known one from which on it is a slip, not the program's own."""


def words_of(name: str, value: str) -> list[str]:
    """Split an option that is a command into words."""
    try:
        words = shlex.split(value)
    except ValueError as error:
        raise UsageError(f"--dut-option {name}: {error}", code="command-syntax") from None
    if not words:
        raise UsageError(f"--dut-option {name}: got nothing, expected a command", code="no-command")
    return words


def _pattern(name: str, value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise UsageError(f"--dut-option {name}: {value!r}: {error}", code="ready-pattern") from None
    return as_it_is(name, value)


def _within(name: str, value: str) -> float:
    return positive_duration_ns(value, f"--dut-option {name}") / 1e9


class Command(Dut):
    """A command of the user's, which no shell reads.

    It opens its ports by ``{eal}``, or by the kernel's links: in its words ``{links}`` stands for
    these (a word each), ``{link0}`` and ``{link1}`` for one of them, ``{eal}`` for DPDK's options
    for ports and memory (a word each), ``{cpus}`` for the CPUs of the device, and ``{folder}`` for
    a private folder. Other words in braces belong to the program.
    """

    name = "command"
    about = "any program, with a probe that says when it is ready"
    options = {  # noqa: RUF012
        "run": words_of,
        "ready": _pattern,
        "ready-command": words_of,
        "ready-within": _within,
        "version": words_of,
    }

    def __init__(self, options: Mapping[str, str], wire: str) -> None:
        super().__init__(options, wire)
        self.check_given()
        self._check_ports()

    def check_given(self) -> None:
        """Check that there is a command, and a probe."""
        if "run" not in self.given:
            raise UsageError(
                "dut command: no --dut-option run=COMMAND",
                code="no-command",
                hint="such as --dut-option 'run=./forward {eal}' --dut-option ready=forwarding",
            )
        self.check_probe()

    def check_probe(self) -> None:
        """Check that there is exactly one probe."""
        if ("ready" in self.given) == ("ready-command" in self.given):
            raise UsageError(
                f"dut {self.name}: expected one of --dut-option ready=PATTERN (in its output)"
                " and ready-command=COMMAND (that succeeds)",
                code="no-probe",
            )

    def _check_ports(self) -> None:
        """Check that the ports that the command names exist."""
        text = " ".join(self.given.values())
        for word in {*_BRACED.findall(text)} - {*_KNOWN, *_LINKS.findall(text)}:
            if near := get_close_matches(word, _KNOWN, 1, _LIKE):
                raise UsageError(
                    f"dut {self.name}: got {word}, expected {', '.join(_KNOWN)}",
                    code="unknown-placeholder",
                    hint=f"did you mean {near[0]}?",
                )
        links = sorted({*_LINKS.findall(text)})
        beyond = [word for word in links if word not in ("{links}", *_NAMED[: self.ports])]
        if beyond:
            expected = ", ".join(("{links}", *_NAMED[: self.ports]))
            raise UsageError(
                f"dut {self.name}: got {beyond[0]}, expected {expected}", code="unknown-link"
            )
        if self.wire == "memif" and links:
            raise UsageError(
                f"dut {self.name}: {links[0]} stands for a link of the kernel; got --wire memif,"
                " which has none",
                code="no-kernel-links",
                hint="add --wire veth (memif is the default), or give a program of DPDK its ports"
                " by {eal}",
            )
        if self.wire == "memif" and not self.uses_dpdk:
            raise UsageError(
                f"dut {self.name}: run has no {{eal}}, by which a program of DPDK gets its ports",
                code="no-eal",
                hint="a program that uses links of the kernel is joined by --wire veth",
            )

    @property
    def uses_dpdk(self) -> bool:
        """Return True if the command asks for DPDK's options."""
        return "{eal}" in words_of("run", self.given["run"])

    def cpus_of(self, context: DutContext) -> tuple[int, ...]:
        """Return the CPUs of the program: the device's, unless it places its threads itself.

        Otherwise its threads could poll beside the generator, where nobody looks for neighbours.
        """
        return context.allowed if "{cpus}" in self.given.get("run", "") else context.working

    def guest_programs(self) -> tuple[Path, ...]:
        """Return the programs of the command and of its probe."""
        names = [name for name in ("run", "ready-command") if name in self.given]
        return tuple(filter(None, (which(words_of(name, self.given[name])[0]) for name in names)))

    def wait_ready(self, name: str, process: Process, context: DutContext) -> None:
        """Wait until the probe says that the device is ready."""
        within = self.given.get("ready-within")
        timeout_s = _READY_S if within is None else _within("ready-within", within)
        ready: str | Callable[[], bool]
        waits_for = None
        if "ready" in self.given:
            ready = self.given["ready"]
        else:
            probe = filled(words_of("ready-command", self.given["ready-command"]), context)
            ready, waits_for = partial(_succeeds, context, probe), shlex.join(probe)
        wait_for(name, process, ready, timeout_s=timeout_s, waits_for=waits_for)

    @contextmanager
    def open(self, context: DutContext) -> Iterator[Running]:
        """Start the command, and wait for its probe."""
        command = filled(words_of("run", self.given["run"]), context)
        with context.place.start(
            "dut", command, cpus=self.cpus_of(context), merged=True, urgent=True
        ) as process:
            self.wait_ready(command[0], process, context)
            version = self.given.get("version")
            version_text = "unknown"
            if version is not None:
                version_text = context.place.run(words_of("version", version)).strip()
            yield RunningProgram(command[0], process, version=version_text, configuration=command)


def filled(words: list[str], context: DutContext) -> list[str]:
    """Replace the words in braces by the device's ports, CPUs and folder."""
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
    """Return True if a command succeeds in the place of the device."""
    try:
        context.place.run(command)
    except TestbedError:
        return False
    return True
