"""Rebooting a machine of a laboratory, and waiting for it."""

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
    """Boots one machine."""

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
        """Ask the machine what it runs."""
        said = self._machine.contents(*_FACTS.values())
        known = {name: text.strip() for name, text in zip(_FACTS, said, strict=True)}
        return Booted(**known)

    def awaited(self) -> Booted:
        """Ask a machine that may be rebooting at the moment."""
        return self._wait(None)

    def boot(self, wanted: BootLine, running: Booted) -> Booted:
        """Boot it, and see that it is as wanted."""
        try:
            self._restart(wanted, running)
            found = self._wait(running.boot_id)
        except KeyboardInterrupt:
            self._say(f"interrupted: {self._machine.where} is rebooting into {wanted}")
            raise
        self.settle()
        self.check(wanted, found)
        return found

    def settle(self) -> None:
        """See that nothing is left that would boot a machine otherwise than by its default."""
        if self._loader is not None:
            self._loader.settle(self._machine)

    def check(self, wanted: BootLine, found: Booted) -> None:
        """See that a machine came back as it should."""
        lacks = found.lacks(wanted)
        if lacks:
            raise OtherKernelError(
                f"{self._machine.where}: it came back otherwise than asked for: {'; '.join(lacks)};"
                f" its kernel is {found.release}, its command line: {found.command_line}",
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
        """Wait until it is there, by another boot than `before`; switch it off and on if not."""
        tries: list[Sequence[str] | None] = [None, *([self._power_cycle] * bool(self._power_cycle))]
        for command in tries:
            if command is not None:
                self._say(f"{self._machine.where}: not back: {command[0]} switches it off and on")
                self._run_here(command)
            found = self._wait_once(before)
            if found is not None:
                return found
        raise self._machine.error(
            f"it did not come back within {long_text(self._wait_s)}",
            "look at its console; a power cycle boots its default entry. boot.wait gives it longer,"
            " boot.power_cycle names a command that switches it off and on",
        )

    def _wait_once(self, before: str | None) -> Booted | None:
        began_s = time.monotonic()
        while (passed_s := time.monotonic() - began_s) < self._wait_s:
            try:
                found = self.running()
            except HostError as error:
                state = str(error).removeprefix(f"{self._machine.where}: ")
            else:
                if found.boot_id != before:
                    return found
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
            raise self._machine.error(f"boot: {command[0]}: {error.strerror}") from None
        except subprocess.TimeoutExpired:
            limit = long_text(self._wait_s)
            raise self._machine.error(f"boot: {command[0]}: not done within {limit}") from None
        if done.returncode != 0:
            said = (done.stderr.strip() or done.stdout.strip())[-_SHOWN:]
            raise self._machine.error(
                f"boot: {command[0]}: ended with status {done.returncode}{said and f': {said}'}"
            )
