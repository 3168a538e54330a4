"""A guest as a machine of a laboratory, with its own kernel, its sshd and a board controller."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from laboratory import ADDRESSES, SSHD
from msgspec.structs import replace

import tailscope
from tailscope.extra.laboratory.own_machine import described
from tailscope.extra.laboratory.protocol import CountsEvent, DutReady, as_line
from tailscope.extra.laboratory.recorded import MachineRecording
from tailscope.platforms.accelerator import find_accelerator, machine
from tailscope.platforms.initramfs import build_initramfs, guest_kernel
from tailscope.store.machine import this_host
from tailscope.store.records.dataplane import NoCounts
from tailscope.store.records.run import KernelNoise, PlatformRecord
from tailscope.store.tables import INTERRUPTS, NOISE, PAIRS, SIGHTINGS
from tailscope.testbed.places import Here

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laboratory import Laboratory

MEMORY_MB = 768
BOOT_S = 600
_TABLES = {"noise": NOISE, "interrupts": INTERRUPTS, "sightings": SIGHTINGS, "pairs": PAIRS}
_LINKS = {"mgmt": "mgmt", "pre-to": "in1", "post-from": "out1"}
"""Links of the hub and of the guest, in the order of the guest's slots (eth0 and so on)."""

_INIT = """\
#!/bin/sh
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mkdir -p /dev/pts /run/sshd /root {run}
mount -t devpts none /dev/pts
chmod 755 / /run/sshd
exec </dev/null >/dev/ttyS0 2>&1
while read -r module; do insmod "$module"; done </modules
echo 'root::0:0::/root:/bin/sh' >/etc/passwd
echo 'sshd:x:103:65534::/run/sshd:/bin/false' >>/etc/passwd
ip link set lo up
n=0
for name in {links}; do
    ip link set "eth$n" name "$name"
    ip link set "$name" up
    n=$((n + 1))
done
ip addr add {address}/24 dev mgmt
{sshd}
poweroff -f
"""

# The shell of busybox has its own ip, which cannot make bridges.
# Python and tailscope would take minutes to start in an emulated guest.
_AGENT = """\
#!/bin/sh
say() {{ sed "s|@RELEASE@|$(uname -r)|; s|@LINE@|$(cat /proc/cmdline)|" "$1"; }}
echo '{{"event":"hello","version":"{version}"}}'
while read -r order; do
    heard="${{EPOCHREALTIME/./}}000"
    case $order in
    *'"do":"play"'*)
        /bin/env ip link add name br0 type bridge
        /bin/env ip link set in1 master br0
        /bin/env ip link set out1 master br0
        /bin/env ip link set br0 up
        say {folder}/ready.json ;;
    *'"do":"ask"'*)
        number=${{order##*:}}
        printf '{{"event":"answer","number":%s,"heard_ns":%s,"said_ns":%s}}\\n' \\
            "${{number%?}}" "$heard" "${{EPOCHREALTIME/./}}000" ;;
    *'"do":"record"'*) echo '{{"event":"recording"}}' ;;
    *'"do":"stop"'*) say {folder}/counts.json ;;
    esac
done
/bin/env ip link del br0
"""

_CONTROLLER = """\
#!{python} -I
\"\"\"A board controller: power off, another kernel, power on.\"\"\"
import json, os, signal, subprocess, sys, time
how = json.load(open({how!r}))
with open(how["log"], "a") as log:
    log.write(" ".join(sys.argv[1:]) + "\\n")
try:
    pid = int(open(how["pid"]).read())
    os.kill(pid, signal.SIGKILL)
    while os.path.exists(f"/proc/{{pid}}"):
        time.sleep(0.1)
except OSError:
    pass
kernel = how["kernels"].get(sys.argv[1], how["kernels"]["default"])
words = " ".join([how["always"], *sys.argv[2:]])
command = [*how["command"], "-kernel", kernel["image"], "-initrd", kernel["root"], "-append", words]
with open(how["console"], "ab") as console:
    qemu = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=console, stderr=console,
                            start_new_session=True)
with open(how["pid"], "w") as file:
    file.write(str(qemu.pid))
"""


class GuestHost:
    """The machine `dut` of a laboratory, as a guest with several kernels.

    Parameters
    ----------
    lab : Laboratory
        Built for a guest with that role.
    """

    def __init__(self, lab: Laboratory) -> None:
        self.path = lab.path / "guest"
        self.path.mkdir()
        self._lab = lab
        self.log = self.path / "boots"
        self.console = self.path / "console.log"
        self.releases = {kind: guest_kernel(kind).release for kind in ("vanilla", "rt")}
        self.controller = self.path / "controller"
        self.agent = self.path / "agent"
        self._write_agent()
        self._write_controller()

    @property
    def boots(self) -> list[list[str]]:
        """Return kernel and parameters of each boot so far."""
        return [line.split() for line in self.log.read_text().splitlines()]

    def host(self) -> dict[str, object]:
        """Return the machine as in an experiment."""
        boot = {
            "how": "command",
            "command": [str(self.controller)],
            "kernels": self.releases,
            "wait": "600s",
        }
        return {**self._lab.hosts["dut"], "command": str(self.agent), "cpus": "1", "boot": boot}

    def switch_on(self) -> None:
        """Boot the guest by default, and wait for its sshd."""
        in_hub = ["ip", "netns", "exec", self._lab.names["hub"]]
        serial = self.path / "serial.log"
        serial.touch()
        subprocess.run([*in_hub, str(self.controller), "default"], check=True)
        deadline_s = time.monotonic() + BOOT_S
        while "Server listening" not in serial.read_text(errors="replace"):
            assert time.monotonic() < deadline_s, serial.read_text(errors="replace")[-2000:]
            time.sleep(0.5)

    @property
    def _recorded(self) -> dict[str, Path]:
        """Return the paths of the agent's tables, which are empty."""
        return {name: self.path / f"{name}.parquet" for name in _TABLES}

    def _write_agent(self) -> None:
        for name, path in self._recorded.items():
            schema = pa.schema([(column.name, column.kind) for column in _TABLES[name].columns])
            pq.write_table(schema.empty_table(), path)
        host = replace(this_host(), kernel_release="@RELEASE@", kernel_command_line="@LINE@")
        ready = DutReady(
            host=host,
            boot_id="of the guest",
            knobs={},
            tuning=[],
            reports=[],
            version="bridge",
            configuration="ip link add name br0 type bridge",
            platform=PlatformRecord(name="bare"),
            warnings=[],
            cpus=[1],
        )
        (self.path / "ready.json").write_text(as_line(ready))
        noise = KernelNoise(
            events=None,
            events_missing_because="the guest has no tracer",
            interrupts={},
            counter_samples=0,
            steal_ns={},
        )
        recorded = MachineRecording(
            times_by="unix",
            noise=noise,
            warnings=[],
            own_work=[],
            power=None,
            clock_set_by_ns=0,
            files={name: described(path) for name, path in self._recorded.items()},
        )
        counts = CountsEvent(counts=NoCounts(), died=None, recorded=recorded)
        (self.path / "counts.json").write_text(as_line(counts))
        text = _AGENT.format(version=tailscope.__version__, folder=self.path)
        self.agent.write_text(text)
        self.agent.chmod(0o755)

    def _write_controller(self) -> None:
        init = self.path / "init"
        run = self._lab.path / "dut.run"
        server = f"{SSHD} -D -e -f {self._lab.path / 'dut.sshd'}"
        links = " ".join(_LINKS.values())
        init.write_text(_INIT.format(run=run, links=links, address=ADDRESSES["dut"], sshd=server))
        init.chmod(0o755)
        here = Here(self.path)
        kernels = {kind: guest_kernel(kind) for kind in self.releases}
        accelerator = find_accelerator("auto", kernels["vanilla"], here)
        roots = {}
        for kind, kernel in kernels.items():
            path = self.path / f"{kind}.cpio"
            build_initramfs(
                path,
                kernel,
                modules=["virtio_pci", "virtio_net", "bridge"],
                programs=[Path(SSHD)],
                files=self._files(init),
                dpdk=False,
                cards=False,
            )
            roots[kernel.release] = {"image": str(kernel.image), "root": str(path)}
        roots["default"] = roots[self.releases["vanilla"]]
        how = {
            "log": str(self.log),
            "pid": str(self.path / "pid"),
            "console": str(self.console),
            "always": f"console=ttyS0 quiet panic=-1 net.ifnames=0 rdinit={init}",
            "kernels": roots,
            "command": [
                *machine(accelerator, cpus=2, memory_mb=MEMORY_MB),
                *("-serial", f"file:{self.path / 'serial.log'}"),
                *_links(),
            ],
        }
        settings = self.path / "controller.json"
        settings.write_text(json.dumps(how))
        self.controller.write_text(
            _CONTROLLER.format(python=Path(sys.executable).resolve(), how=str(settings))
        )
        self.controller.chmod(0o755)

    def _files(self, init: Path) -> list[Path]:
        lab = self._lab.path
        names = [lab / "dut.key", lab / "dut.sshd", lab / "authorized", init, self.agent]
        names += [self.path / "ready.json", self.path / "counts.json", *self._recorded.values()]
        return names

    def switch_off(self) -> None:
        with suppress(OSError, ValueError):
            os.kill(int((self.path / "pid").read_text()), signal.SIGKILL)


def _links() -> Iterator[str]:
    # With MSI-X, QEMU 7.2 crashes when a kernel's driver starts under TCG.
    for number, link in enumerate(_LINKS):
        yield from ("-netdev", f"tap,id=n{number},ifname={link},script=no,downscript=no")
        card = f"virtio-net-pci,netdev=n{number},addr={number + 8:#x},vectors=0"
        yield from ("-device", f"{card},mac=52:54:00:98:00:{number + 1:02x}")


@contextmanager
def guest_host(lab: Laboratory) -> Iterator[GuestHost]:
    """Switch a guest on within a block."""
    guest = GuestHost(lab)
    try:
        guest.switch_on()
        yield guest
    finally:
        guest.switch_off()
