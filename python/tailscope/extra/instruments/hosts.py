"""Two hosts of the kernel with a device between them, for instruments that are programs."""

from __future__ import annotations

import subprocess
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tailscope.duts.catalogue import dut_named
from tailscope.duts.dut import DutContext
from tailscope.exceptions import TestbedError
from tailscope.testbed.cores import staying_on
from tailscope.testbed.folder import RunFolder
from tailscope.testbed.places import Here
from tailscope.testbed.programs import find_program
from tailscope.testbed.wires import Veth

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tailscope.testbed.cores import Cores

CLIENT, SERVER = "10.99.0.1", "10.99.0.2"
_LINKS = {"gen0": CLIENT, "gen1": SERVER}
_MACS = {"gen0": "02:00:00:99:00:01", "gen1": "02:00:00:99:00:02"}
_ENDS_S, _STARTS_S = 3.0, 5.0


@dataclass(frozen=True)
class Hosts:
    """A client and a server that reach each other through a device."""

    folder: Path
    commands: Mapping[str, Sequence[str]]
    """Words that start a program on a host, by its link."""

    def run(self, command: Sequence[str], *, timeout_s: float, expect: bool = True) -> str:
        """Run a program on the client to its end, and return what it prints."""
        done = subprocess.run(  # noqa: S603
            [*self.commands["gen0"], *command],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if expect and done.returncode != 0:
            said = (done.stderr or done.stdout).strip()[-300:]
            raise TestbedError(f"{command[0]}: {said}", code="instrument-failed")
        return done.stdout

    @contextmanager
    def serving(self, command: Sequence[str], port: int) -> Iterator[None]:
        """Run a program on the server within a block, which begins when it has its port."""
        log = self.folder / f"server-{port}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(  # noqa: S603
                [*self.commands["gen1"], *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            self._wait_bound(process, port, log)
            yield
        finally:
            process.terminate()
            try:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_ENDS_S)
            finally:
                process.kill()
                process.wait()

    def _wait_bound(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        deadline_s, words = time.monotonic() + _STARTS_S, f":{port:04X} "
        while time.monotonic() < deadline_s and process.poll() is None:
            for table in ("udp", "tcp", "udp6", "tcp6"):
                with suppress(OSError):
                    if words in _sockets(process.pid, table):
                        return
            time.sleep(0.02)
        raise TestbedError(
            f"server: did not listen on port {port}: {log.read_text().strip()[-300:]}",
            code="instrument-failed",
        )


def _sockets(pid: int, table: str) -> str:
    """Return the local addresses of sockets in the namespace of a process."""
    lines = Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
    return "\n".join(f"{line.split()[1]} " for line in lines)


@contextmanager
def hosts(device: Mapping[str, str], cores: Cores) -> Iterator[Hosts]:
    """Put up two hosts and the device `delay` between them within a block."""
    ethtool = str(find_program("instruments", "ethtool", "ethtool"))
    wire = Veth({})
    wire.check()
    with ExitStack() as stack:
        stack.enter_context(staying_on(cores.housekeeping))
        folder = stack.enter_context(RunFolder())
        ends = stack.enter_context(wire.open(folder))
        commands = stack.enter_context(wire.hosts(folder, ends.generator, _LINKS))
        for link, other in (("gen0", "gen1"), ("gen1", "gen0")):
            # A device that is no part of the kernel cannot fill in checksums. Addresses are known:
            # no question for them shall be held or lost.
            for words in (
                [ethtool, "-K", link, "tx", "off"],
                ["ip", "link", "set", link, "address", _MACS[link]],
                ["ip", "neigh", "replace", _LINKS[other], "lladdr", _MACS[other], "dev", link],
            ):
                subprocess.run([*commands[link], *words], check=True, capture_output=True)  # noqa: S603
        place = Here(folder.path, ends.dut.command, mark=folder.name)
        context = DutContext(
            place, ends.dut, (cores.pollers[1],), cores.housekeeping, wire.stall_ns
        )
        stack.enter_context(dut_named("delay", device, wire.name).open(context))
        yield Hosts(folder.path, commands)
