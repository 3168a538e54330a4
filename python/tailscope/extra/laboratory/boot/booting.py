"""The reboot of a machine of a laboratory, until it answers again."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

from tailscope.exceptions import HostError, OtherKernelError
from tailscope.host.boot_line import Booted
from tailscope.units import long_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tailscope.extra.laboratory.boot.boot_loaders import BootLoader
    from tailscope.extra.laboratory.remote import Machine
    from tailscope.host.boot_line import BootLine

_EVERY_S = 2.0
_SHOWN = 300

_FACTS = {
    "boot_id": "/proc/sys/kernel/random/boot_id",
    "release": "/proc/sys/kernel/osrelease",
    "version": "/proc/version",
    "command_line": "/proc/cmdline",
    "nohz_full": "/sys/devices/system/cpu/nohz_full",
    "realtime": "/sys/kernel/realtime",
}


class Rebooter:
    """The control of one machine's reboots."""

    def __init__(
        self,
        machine: Machine,
        loader: BootLoader | None,
        command: Sequence[str] | None,
        *,
        wait_s: float,
        power_cycle: Sequence[str] | None,
        say: Callable[[str], None],
        show: Callable[[str], None],
    ) -> None:
        self._machine, self._loader, self._command = machine, loader, command
        self._wait_s, self._power_cycle = wait_s, power_cycle
        self._say, self._show = say, show

    def running(self) -> Booted:
        """Ask the machine for its kernel and parameters."""
        contents = self._machine.contents(*_FACTS.values())
        facts = {name: text.strip() for name, text in zip(_FACTS, contents, strict=True)}
        return Booted(**facts)

    def awaited(self) -> Booted:
        """Ask a machine that may be rebooting."""
        return self._wait(None)

    def boot(self, wanted: BootLine, running: Booted) -> Booted:
        """Boot the machine, and check the result."""
        try:
            self._restart(wanted, running)
            booted = self._wait(running.boot_id)
        except KeyboardInterrupt:
            self._say(f"interrupted: {self._machine.where} is rebooting into {wanted}")
            raise
        self.settle()
        self.check(wanted, booted)
        return booted

    def settle(self) -> None:
        """Make sure that the next boot is the default one."""
        if self._loader is not None:
            self._loader.settle(self._machine)

    def check(self, wanted: BootLine, booted: Booted) -> None:
        """Check that the machine booted the wanted kernel with its parameters."""
        lacks = booted.lacks(wanted)
        if lacks:
            raise OtherKernelError(
                f"{self._machine.where}: it came back otherwise than asked for: {'; '.join(lacks)};"
                f" its kernel is {booted.release}, its command line: {booted.command_line}",
                code="booted-otherwise",
                hint="see boot in hosts.dut: the release of the kernel, and whether the boot loader"
                " is the one that it names",
            )

    def _restart(self, wanted: BootLine, running: Booted) -> None:
        if self._command is not None:
            self._run_here([*self._command, wanted.name, *wanted.words])
            return
        assert self._loader is not None, "a loader, or a command"
        last: Sequence[str] = ["reboot"]
        if wanted.is_default:
            self._loader.settle(self._machine)
        else:
            last = self._loader.prepare(self._machine, wanted, running)
        self._machine.run_last(last)

    def _wait(self, before: str | None) -> Booted:
        """Wait for another boot than `before`, with a power cycle if the first try fails."""
        tries: list[Sequence[str] | None] = [None, *([self._power_cycle] * bool(self._power_cycle))]
        for command in tries:
            if command is not None:
                self._say(f"{self._machine.where}: not back: {command[0]} switches it off and on")
                self._run_here(command)
            booted = self._wait_once(before)
            if booted is not None:
                return booted
        raise self._machine.error(
            f"it did not come back within {long_text(self._wait_s)}",
            "look at its console; a power cycle boots its default entry. boot.wait gives it longer,"
            " boot.power_cycle names a command that switches it off and on",
            "not-back",
        )

    def _wait_once(self, before: str | None) -> Booted | None:
        began_s = time.monotonic()
        while (passed_s := time.monotonic() - began_s) < self._wait_s:
            try:
                booted = self.running()
            except HostError as error:
                state = str(error).removeprefix(f"{self._machine.where}: ")
            else:
                if booted.boot_id != before:
                    return booted
                state = "still on its way down"
            limit = long_text(self._wait_s)
            self._show(f"{self._machine.where}: rebooting, {passed_s:.0f} s of {limit}: {state}")
            time.sleep(_EVERY_S)
        return None

    def _run_here(self, command: Sequence[str]) -> None:
        """Run a command of the user's on this machine."""
        try:
            done = subprocess.run(  # noqa: S603 - words, not a shell's line
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self._wait_s,
                check=False,
            )
        except OSError as error:
            text = f"boot: {command[0]}: {error.strerror}"
            raise self._machine.error(text, code="boot-command") from None
        except subprocess.TimeoutExpired:
            limit = long_text(self._wait_s)
            text = f"boot: {command[0]}: not done within {limit}"
            raise self._machine.error(text, code="boot-command") from None
        if done.returncode != 0:
            output = (done.stderr.strip() or done.stdout.strip())[-_SHOWN:]
            text = f"boot: {command[0]}: ended with status {done.returncode}"
            text += f": {output}" if output else ""
            raise self._machine.error(text, code="boot-command")
