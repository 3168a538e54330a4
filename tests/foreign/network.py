"""A client, a router and a server of the kernel, in network namespaces that end with the block."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .case import UnavailableError
from .tools import run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROLES = ("client", "router", "server")
READY_S = 10
DRAINED_S = 0.3
"""How long tcpdump and dumpcap are given to take the last packets out of their buffers."""

LINKS = """
link add name eth0 netns {client} type veth peer name tap-in netns {router}
link add name eth0 netns {server} type veth peer name tap-out netns {router}
"""
OFFLOADS = ("tso", "gso", "gro", "tx")
"""What makes packets on a link of the kernel differ from those on a wire."""

ADDRESSES = {
    "client": "addr add 10.1.0.2/24 dev eth0\naddr add fd01::2/64 dev eth0 nodad\n",
    "router": "addr add 10.1.0.1/24 dev tap-in\naddr add fd01::1/64 dev tap-in nodad\n"
    "addr add 10.2.0.1/24 dev tap-out\naddr add fd02::1/64 dev tap-out nodad\n",
    "server": "addr add 10.2.0.2/24 dev eth0\naddr add fd02::2/64 dev eth0 nodad\n",
}
ROUTES = {
    "client": "route add default via 10.1.0.1\nroute add default via fd01::1\n",
    "server": "route add default via 10.2.0.1\nroute add default via fd02::1\n",
}


@dataclass(frozen=True)
class Network:
    """Three namespaces; the router has `tap-in` to the client and `tap-out` to the server."""

    names: dict[str, str]
    stack: ExitStack

    def run(self, role: str, *words: object, given: str | None = None) -> str:
        """Run a program in a namespace to its end; what it prints."""
        return run("ip", "netns", "exec", self.names[role], *words, given=given)

    def configure(self, role: str, commands: str) -> None:
        """Run commands of `ip`, one a line."""
        run("ip", "-n", self.names[role], "-batch", "-", given=commands.format(**self.names))

    def add_link(self, role: str, description: str) -> None:
        """Add a link of a kind that not every kernel has."""
        words = ("ip", "-n", self.names[role], "link", "add", *description.split())
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
        if "Unknown device type" in done.stderr:
            raise UnavailableError(f"this kernel has no links of {description.split('type ')[1]}")
        assert done.returncode == 0, (words, done.stderr)

    def write(self, role: str, setting: str, value: object) -> None:
        """Write a setting of the kernel in a namespace."""
        self.run(role, "sh", "-c", f"echo {value} > /proc/sys/net/{setting}")

    def start(self, role: str, *words: object, ready: str) -> subprocess.Popen[str]:
        """Start a program that ends with the block, and wait until it says `ready`."""
        command = ["ip", "netns", "exec", self.names[role], *(str(word) for word in words)]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.stack.callback(end, process)
        _wait_for(process, ready)
        return process

    def dropped(self) -> int:
        """How many packets the rules of the router's firewall have dropped."""
        rules = json.loads(self.run("router", "nft", "-j", "list", "ruleset"))["nftables"]
        expressions = [each for entry in rules for each in entry.get("rule", {}).get("expr", [])]
        return sum(each["counter"]["packets"] for each in expressions if "counter" in each)

    @contextmanager
    def tapped(self, folder: Path, *options: object) -> Iterator[tuple[Path, Path]]:
        """Capture on both ports of the router by tcpdump within a block."""
        paths = folder / "tap-in.pcap", folder / "tap-out.pcap"
        precise = (
            "--time-stamp-precision=nano",
            "--immediate-mode",
            "-U",
            "-B",
            16_384,
            "-Z",
            "root",
            *options,
        )
        processes = [
            self.start(
                "router", "tcpdump", "-i", path.stem, "-w", path, *precise, ready="listening on"
            )
            for path in paths
        ]
        yield paths
        time.sleep(DRAINED_S)
        for process in processes:
            said = end(process)
            assert "\n0 packets dropped by kernel" in f"\n{said}", said


def end(process: subprocess.Popen[str]) -> str:
    """End a program as Ctrl-C does, or by force; what it said last."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        return process.communicate(timeout=READY_S)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()[0]
    except ValueError:  # it was ended, and what it said was read, before
        return ""


def _wait_for(process: subprocess.Popen[str], ready: str) -> None:
    """Read lines until one says that a program is ready; further ones are left to `end`."""
    assert process.stdout is not None
    said, deadline = b"", time.monotonic() + READY_S
    descriptor = process.stdout.fileno()
    while ready.encode() not in said:
        readable, _, _ = select.select([descriptor], [], [], max(0, deadline - time.monotonic()))
        part = os.read(descriptor, 4096) if readable else b""
        assert part, (process.args, said)
        said += part


@contextmanager
def network(*, quiet: bool = False) -> Iterator[Network]:
    """Three namespaces with links between them, without addresses; quiet ones have no IPv6."""
    mark = f"foreign-{os.getpid()}-{os.urandom(3).hex()}"
    names = {role: f"{mark}-{role}" for role in ROLES}
    with ExitStack() as stack:
        for name in names.values():
            stack.callback(_remove, name)
            run("ip", "netns", "add", name)
        found = Network(names, stack)
        for role in ROLES:  # else addresses of links wait for a second until they are used
            found.write(role, "ipv6/conf/default/accept_dad", 0)
            found.write(role, "ipv6/conf/default/disable_ipv6", int(quiet))
        run("ip", "-batch", "-", given=LINKS.format(**names))
        ports = {"client": ("eth0",), "router": ("tap-in", "tap-out"), "server": ("eth0",)}
        for role, links in ports.items():
            found.configure(role, "".join(f"link set {link} up\n" for link in ("lo", *links)))
            for link in links:
                switches = [word for name in OFFLOADS for word in (name, "off")]
                found.run(role, "ethtool", "-K", link, *switches)
        yield found


def _remove(name: str) -> None:
    """End what still runs in a namespace, and remove it."""
    listed = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True)
    for pid in listed.stdout.split():
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    subprocess.run(["ip", "netns", "delete", name], capture_output=True)


@contextmanager
def routed_network(rules: str = "") -> Iterator[Network]:
    """The same, with addresses, and a router that forwards by rules of nftables."""
    with network() as found:
        for role, commands in (*ADDRESSES.items(), *ROUTES.items()):
            found.configure(role, commands)
        found.write("router", "ipv4/ip_forward", 1)
        found.write("router", "ipv6/conf/all/forwarding", 1)
        if rules:
            found.run("router", "nft", "-f", "-", given=rules)
        yield found
