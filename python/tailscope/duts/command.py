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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

__all__ = ["Command", "filled", "succeeds", "words_of"]

_READY_S = 60.0


def words_of(name: str, value: str) -> list[str]:
    """Read an option that is a command: its words.

    Raises
    ------
    UsageError
        If it has none, or a quote that does not end.
    """
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


class Command(Dut):
    """A command of the user's; no shell reads it.

    In its words ``{links}`` stands for the kernel's links (a word each), ``{link0}`` and
    ``{link1}`` for one of them, ``{eal}`` for DPDK's options for ports and memory (a word each),
    ``{cpus}`` for the CPUs that are its own, ``{folder}`` for a private folder.
    """

    name = "command"
    about = "any program, with a probe that says when it is ready"
    options = {  # noqa: RUF012
        "run": words_of,
        "ready": _pattern,
        "ready-command": words_of,
        "version": words_of,
    }

    def __init__(self, options: Mapping[str, str], wire: str) -> None:
        super().__init__(options, wire)
        self.check_given()

    def check_given(self) -> None:
        """There is a command, and a probe."""
        if "run" not in self.given:
            raise UsageError("dut command: no --dut-option run=COMMAND")
        self.check_probe()

    def check_probe(self) -> None:
        """There is one probe."""
        if ("ready" in self.given) == ("ready-command" in self.given):
            raise UsageError(
                f"dut {self.name}: expected one of --dut-option ready=PATTERN (in its output)"
                " and ready-command=COMMAND (that succeeds)"
            )

    @property
    def uses_dpdk(self) -> bool:
        """If it asks for DPDK's options."""
        return "{eal}" in words_of("run", self.given["run"])

    def guest_programs(self) -> tuple[Path, ...]:
        """The command's own, and its probe's."""
        names = [name for name in ("run", "ready-command") if name in self.given]
        return tuple(filter(None, (which(words_of(name, self.given[name])[0]) for name in names)))

    @contextmanager
    def open(self, context: DutContext) -> Iterator[Running]:
        """Start it, and wait for its probe."""
        command = filled(words_of("run", self.given["run"]), context)
        with context.place.start(
            "dut", command, cpus=context.allowed, merged=True, urgent=True
        ) as process:
            ready: str | Callable[[], bool]
            if "ready" in self.given:
                ready = self.given["ready"]
            else:
                probe = filled(words_of("ready-command", self.given["ready-command"]), context)
                ready = partial(succeeds, context, probe)
            wait_for(command[0], process, ready, timeout_s=_READY_S)
            version = self.given.get("version")
            said = "unknown"
            if version is not None:
                said = context.place.run(words_of("version", version)).strip()
            yield RunningProgram(command[0], process, version=said, configuration=command)


def filled(words: list[str], context: DutContext) -> list[str]:
    """Put what a device is given in the place of what stands in braces."""
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


def succeeds(context: DutContext, command: list[str]) -> bool:
    """Whether a command succeeds where the device is."""
    try:
        context.place.run(command)
    except TestbedError:
        return False
    return True
