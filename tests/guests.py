"""Guests of QEMU as tests boot them: a kernel of Debian, and programs of this machine."""

from __future__ import annotations

import base64
import gzip
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from foreign.frames import SERVER
from runs import needed

from tailscope.exceptions import TestbedError
from tailscope.platforms.accelerator import machine
from tailscope.platforms.guest import Guest
from tailscope.platforms.initramfs import build_initramfs, guest_kernel
from tailscope.platforms.vm import _serial
from tailscope.testbed.places import Here

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tailscope.platforms.initramfs import GuestKernel

NETWORK = f"""
set -e
# The shell has a smaller one of its own.
ip() {{ /bin/env ip "$@"; }}
for name in client router server; do
    ip netns add $name
    ip netns exec $name sh -c 'echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6'
    ip -n $name link set lo up
done
ip link add eth0 netns client address 02:aa:00:00:00:02 type veth \\
    peer name tap-in netns router address 02:aa:00:00:00:01
ip link add eth0 netns server address 02:bb:00:00:00:01 type veth \\
    peer name tap-out netns router address 02:bb:00:00:00:02
ip -n client address add 10.1.0.2/24 dev eth0
ip -n router address add 10.1.0.1/24 dev tap-in
ip -n router address add 10.2.0.1/24 dev tap-out
ip -n server address add {SERVER}/24 dev eth0
for link in "client eth0" "router tap-in" "router tap-out" "server eth0"; do
    ip -n ${{link% *}} link set ${{link#* }} up
    ip netns exec ${{link% *}} ethtool -K ${{link#* }} tso off gso off gro off tx off
done
ip -n client route add default via 10.1.0.1
ip -n server route add default via 10.2.0.1
ip netns exec router sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'
ip -n client neighbour add 10.1.0.1 lladdr 02:aa:00:00:00:01 dev eth0 nud permanent
ip -n router neighbour add 10.1.0.2 lladdr 02:aa:00:00:00:02 dev tap-in nud permanent
ip -n router neighbour add {SERVER} lladdr 02:bb:00:00:00:01 dev tap-out nud permanent
ip -n server neighbour add 10.2.0.1 lladdr 02:bb:00:00:00:02 dev eth0 nud permanent
ip netns exec client ping -c 1 {SERVER}
echo root:x:0:0::/:/bin/sh > /etc/passwd
"""
"""A client, a router and a server of the kernel, for the shell of a guest."""
BOOT_S = 120.0
FETCH_S = 300.0


def kernel(kind: str) -> GuestKernel:
    """Return a kernel for guests, which continuous integration must have."""
    needed("qemu-system-x86_64", "busybox", "cpio")
    try:
        return guest_kernel(kind)
    except TestbedError as error:
        assert not os.environ.get("CI"), error
        pytest.skip(str(error))


@contextmanager
def booted(
    kernel: GuestKernel,
    folder: Path,
    *,
    modules: Sequence[str] = (),
    programs: Sequence[Path],
    files: Sequence[Path] = (),
    archive: bytes = b"",
    devices: Sequence[str] = (),
    dpdk: bool = False,
    memory_mb: int = 512,
    counted: bool = False,
) -> Iterator[Guest]:
    """Boot an emulated guest; what a further archive of cpio holds becomes part of its root.

    In a counted one, time passes by instructions: what else this machine does delays nothing there.
    """
    here, root = Here(folder), folder / "root.cpio"
    build_initramfs(
        root, kernel, modules=modules, programs=programs, files=files, dpdk=dpdk, cards=False
    )
    with root.open("ab") as more:
        # The kernel unpacks both archives, one after the other.
        more.write(archive)
    command = [*machine("tcg", cpus=1, memory_mb=memory_mb), "-kernel", str(kernel.image)]
    if counted:
        command[command.index("tcg,thread=multi")] = "tcg,thread=single"
        command += ["-icount", "shift=2,sleep=off"]
    command += [*devices, "-initrd", str(root), "-append", "console=ttyS0 quiet panic=-1"]
    with here.start("qemu", [*command, *_serial(folder)], merged=True) as process:
        while not (folder / "qmp").exists():
            assert process.is_running, process.last_words()
            time.sleep(0.05)
        guest = Guest(folder / "agent", process.last_words)
        guest.wait_ready(BOOT_S)
        yield guest
        guest.close()
        process.wait_end(5)


def fetch(guest: Guest, path: str) -> bytes:
    """The content of a file in a guest."""
    encoded = guest.run(["sh", "-c", 'gzip -1c "$1" | base64', "sh", path], timeout_s=FETCH_S)
    return gzip.decompress(base64.b64decode(encoded))
