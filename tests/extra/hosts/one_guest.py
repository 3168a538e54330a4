"""Two hosts in one guest, as namespaces of its kernel.

In the guest time passes by instructions: what else this machine does delays nothing there.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from between import analysed
from guests import booted, fetch, kernel
from runs import needed

from tailscope.testbed.process import find_binary
from tailscope.testbed.programs import which

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from between import Found

    from tailscope.platforms.guest import Guest
    from tailscope.testbed.places import Process

NEAR, FAR = "10.96.0.1", "10.96.0.2"
NEAR_MAC, FAR_MAC = "02:00:00:00:96:01", "02:00:00:00:96:02"
PATIENCE_S = 240.0
_NETWORK = f"""
set -e
ip() {{ /bin/env ip "$@"; }}
mkdir -p /run
echo root:x:0:0:root:/:/bin/sh >/etc/passwd
for f in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 1 >$f; done
ip netns add far
ip link add near0 address {NEAR_MAC} type veth peer name far0 address {FAR_MAC} netns far
ip link set near0 up
ip address add {NEAR}/24 dev near0
ip neigh replace {FAR} lladdr {FAR_MAC} dev near0
ip -n far link set far0 up
ip -n far link set lo up
ip link set lo up
ip -n far address add {FAR}/24 dev far0
ip -n far neigh replace {NEAR} lladdr {NEAR_MAC} dev far0
"""
_RECORD = ("departures", "stamps", "arrivals", "follow_ups", "stalls")


class Inside(NamedTuple):
    """A guest with two hosts."""

    guest: Guest
    folder: Path

    def shell(self, script: str) -> str:
        """Run a script of the shell."""
        return self.guest.run(["sh", "-ec", script], timeout_s=PATIENCE_S)

    def queue(self, *words: str) -> None:
        """Give the near host's interface a queue."""
        self.guest.run(["tc", "qdisc", "replace", "dev", "near0", "root", *words])

    def reflect(self, *before: str) -> None:
        """Start the reflector on the far host."""
        words = ["nsenter", "--net=/run/netns/far", str(find_binary()[0]), "reflect", "--"]
        reflector = self.guest.start("reflect", [*before, *words], merged=True)
        assert '"ready"' in (reflector.next_line(PATIENCE_S) or "")

    def start(self, name: str, *options: str, before: Sequence[str] = ()) -> Process:
        """Begin to measure."""
        inside = f"/tmp/{name}"
        self.guest.run(["mkdir", inside])
        words = [str(find_binary()[0]), "sender", "--", f"--to={FAR}:862", f"--record={inside}"]
        return self.guest.start("sender", [*before, *words, *options], merged=True)

    def end(self, name: str, process: Process) -> Found:
        """Wait for the end of a measurement, and analyse what it recorded."""
        line = last_line(process)
        folder = self.folder / name
        folder.mkdir()
        for each in _RECORD:
            (folder / f"{each}.npy").write_bytes(fetch(self.guest, f"/tmp/{name}/{each}.npy"))
        return analysed(folder, FAR, line)


def last_line(process: Process) -> str:
    """Return the last line that a program prints."""
    lines = []
    while (line := process.next_line(PATIENCE_S)) is not None:
        lines.append(line)
    return lines[-1]


@contextmanager
def one_guest(kind: str, folder: Path, *modules: str) -> Iterator[Inside]:
    """Boot a guest with two hosts."""
    needed("tc", "nsenter")
    tools = [tool for name in ("tc", "nsenter") if (tool := which(name))]
    with booted(
        kernel(kind),
        folder,
        modules=["veth", *modules],
        programs=[find_binary()[0], *tools],
        counted=True,
    ) as guest:
        inside = Inside(guest, folder)
        inside.shell(_NETWORK)
        yield inside
