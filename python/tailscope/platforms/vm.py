"""The platform ``vm``: guests of QEMU, as in noms2020 IV and limbo2022."""

from __future__ import annotations

import json
import os
import re
import socket
import time
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, TypedDict

from tailscope.exceptions import OtherKernelError, TestbedError, UsageError
from tailscope.host.kernel import NOHZ, check_kernel
from tailscope.platforms.accelerator import find_accelerator, machine
from tailscope.platforms.guest import Guest
from tailscope.platforms.initramfs import build_initramfs, guest_kernel
from tailscope.platforms.platform import OpenPlatform, Platform
from tailscope.testbed.places import Here
from tailscope.testbed.process import Dataplane
from tailscope.testbed.wires import Side
from tailscope.units import refuse_unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import IO

    from tailscope.duts.dut import Dut
    from tailscope.platforms.initramfs import GuestKernel
    from tailscope.testbed.folder import Folder
    from tailscope.testbed.places import Process

_ACCELERATORS = ("auto", "kvm", "tcg")
_BOOT_S = {"kvm": 30.0, "tcg": 120.0}
_START_S = 30.0
_HUGEPAGES = 96
_DPDK_MB = 160
_FIRST_SLOT = 0x10
_POLL_S = 0.05
_CARD_MODULES = ("ixgbe", "ixgbevf", "i40e", "iavf", "ice", "igb", "igc", "e1000e", "mlx5_core")
_EMULATED = (
    "the guest ran under TCG, which emulates its processor: its times are not representative of any"
    " machine"
)


_VirtualCpu = TypedDict("_VirtualCpu", {"cpu-index": int, "thread-id": int})


class Vm(Platform):
    """A guest of QEMU with its own kernel, whose root is made of this machine's programs."""

    name = "vm"
    about = "a QEMU virtual machine with its own kernel"
    options = {  # noqa: RUF012
        "accelerator": "auto (default: KVM where it boots), kvm or tcg",
        "memory": "memory of the guest in MiB",
        "host": "kernel and boot parameters of its host: any (default), or the same as its own",
    }
    wires = ("vhost", "pci")
    programs = {  # noqa: RUF012
        "qemu-system-x86_64": "qemu-system-x86",
        "busybox": "busybox-static",
        "cpio": "cpio",
    }

    def __init__(
        self, options: Mapping[str, str], kernel: str | None = None, boot: str | None = None
    ) -> None:
        super().__init__(options, kernel, boot)
        self._accelerator = self.given.get("accelerator", "auto")
        if self._accelerator not in _ACCELERATORS:
            raise UsageError(
                f"--platform-option accelerator: got {self._accelerator!r},"
                f" expected one of {', '.join(_ACCELERATORS)}",
                code="platform-option",
            )
        memory = self.given.get("memory", "1024")
        if not memory.isdecimal() or not 512 <= int(memory) <= 1 << 20:
            raise UsageError(
                f"--platform-option memory: got {memory!r}, expected at least 512 MiB",
                code="platform-option",
            )
        self._memory_mb = int(memory)
        host = self.given.get("host", "any")
        refuse_unknown("--platform-option host", host, ("any", "same"), "platform-option")

    @property
    def starts_in_s(self) -> float:
        """Return the time to boot, in seconds; TCG needs the most."""
        return 15.0

    def check(self) -> None:
        """Check the processor, the host's kernel, QEMU, and the kernel for guests."""
        if os.uname().machine != "x86_64":
            raise TestbedError(
                "platform vm: its guests are of x86-64 alone, which this processor is not",
                code="x86-alone",
                hint="use --platform bare, lxc or podman",
            )
        if self.given.get("host") == "same":
            try:
                check_kernel(self.kernel, self.boot)
            except OtherKernelError as error:
                hint = str(error.hint).partition("; or")[0]
                text = f"platform vm: the host's {error}"
                raise OtherKernelError(text, code=error.code, hint=hint) from None
        super().check()
        self._kernel()

    def _kernel(self) -> GuestKernel:
        flavour, _, release = (self.kernel or "vanilla").partition("-")
        return guest_kernel("rt" if flavour == "rt" else "vanilla", release)

    @contextmanager
    def open(
        self,
        folder: Folder,
        side: Side,
        dut: Dut,
        *,
        cpus: tuple[int, ...],
        housekeeping: tuple[int, ...],
        pinned: bool = True,
    ) -> Iterator[OpenPlatform]:
        """Boot a guest with one CPU for itself and the CPUs of the device."""
        kernel = self._kernel()
        here = Here(folder.path, mark=folder.name)
        accelerator = find_accelerator(self._accelerator, kernel, here)
        ports = _Ports(side, polled=dut.uses_dpdk)
        root = folder.path / "root.cpio"
        build_initramfs(
            root,
            kernel,
            modules=[*ports.modules, *dut.modules],
            programs=dut.guest_programs(),
            files=dut.guest_files(),
            dpdk=dut.uses_dpdk,
            cards=not side.sockets,
        )
        inner = tuple(range(1, len(cpus) + 1))
        parameters = _parameters(self.kernel, self.boot, inner, ports)
        command = [
            *machine(accelerator, cpus=len(cpus) + 1, memory_mb=self._memory_mb),
            *("-kernel", str(kernel.image), "-initrd", str(root), "-append", parameters),
            *_serial(folder.path),
            *ports.devices,
        ]
        everywhere = {*cpus, *housekeeping}
        with here.start("qemu", command, cpus=everywhere, merged=True, urgent=True) as process:
            held = ExitStack()
            guest = self._boot(folder, side, process, accelerator, housekeeping[0], held)
            if pinned:
                _pin(folder.path / "qmp", cpus, housekeeping)
            try:
                about: dict[str, str | bool] = {
                    "accelerator": accelerator,
                    "representative": accelerator == "kvm",
                    "version": here.run([command[0], "--version"]).splitlines()[0],
                    "kernel": guest.run(["uname", "-rv"]).strip(),
                    "parameters": guest.run(["cat", "/proc/cmdline"]).strip(),
                    "isolated_cpus": guest.run(["cat", "/sys/devices/system/cpu/isolated"]).strip(),
                    "nohz_full_cpus": guest.run(
                        ["cat", "/sys/devices/system/cpu/nohz_full"]
                    ).strip(),
                    "realtime": guest.read("/sys/kernel/realtime") is not None,
                }
                inside = ports.set_up(guest)
                warnings = () if accelerator == "kvm" else (_EMULATED,)
                yield OpenPlatform(guest, inside, inner, (0,), False, about, warnings, held.close)
            finally:
                held.close()
                guest.close()
                process.wait_end(5)

    def _boot(
        self,
        folder: Folder,
        side: Side,
        process: Process,
        accelerator: str,
        cpu: int,
        held: ExitStack,
    ) -> Guest:
        """Wait for the guest's agent.

        QEMU waits until some program has opened the sockets, and a guest's driver agrees with it
        on features: `held` keeps such a program on one of our CPUs until the device is ready.
        """

        def ended() -> str:
            console = Here(folder.path).read("console.log") or ""
            lines = [*process.last_words().split(" | "), *console.strip().splitlines()[-5:]]
            return " | ".join(line for line in lines if line) or "no output"

        sockets = (*side.sockets, folder.path / "qmp", folder.path / "agent")
        _wait_for(sockets, process, ended)
        held.enter_context(_held(folder, side, cpu))
        try:
            guest = Guest(folder.path / "agent", ended)
            guest.wait_ready(_BOOT_S[accelerator])
        except BaseException:
            held.close()
            raise
        return guest


@contextmanager
def _held(folder: Folder, side: Side, cpu: int) -> Iterator[None]:
    """Hold the other ends of vhost-user within a block, until the generator starts."""
    from tailscope.testbed.messages import GENERATOR

    if not side.sockets:
        yield
        return
    vdevs = [
        f"--vdev=net_vhost{number},iface={path},client=1"
        for number, path in enumerate(side.sockets)
    ]
    eal = ["--no-huge", "--no-shconf", "-m", "128", "--no-pci", *vdevs]
    patience = ["--rate=1", "--link-timeout=600s", "--warm-up=0s", "--duration=600s"]
    here = Here(folder.path, mark=folder.name)
    with Dataplane("holder", GENERATOR, eal, patience, place=here, lcores=[cpu]):
        yield


class _Ports:
    """The ports of a guest: virtio cards on vhost-user, or real cards handed over."""

    def __init__(self, side: Side, *, polled: bool) -> None:
        self._side, self._polled = side, polled
        self._addresses = [
            f"0000:00:{_FIRST_SLOT + number:02x}.0"
            for number in range(len(side.sockets or side.devices))
        ]

    @property
    def modules(self) -> list[str]:
        """Return the modules that the ports need in the guest's kernel."""
        if self._side.sockets:
            return ["uio_pci_generic"] if self._polled else ["virtio_pci", "virtio_net"]
        if not self._side.devices:
            return []
        return ["vfio_pci"] if self._polled else list(_CARD_MODULES)

    @property
    def parameters(self) -> str:
        """Return those of an IOMMU, which only cards need."""
        return "intel_iommu=on iommu=pt" if self._side.devices else ""

    @property
    def devices(self) -> list[str]:
        """Return QEMU's options for the ports."""
        options: list[str] = []
        if self._side.devices:
            options += ["-device", "intel-iommu,intremap=on,caching-mode=on"]
            for number, address in enumerate(self._side.devices):
                slot = f"{_FIRST_SLOT + number:#x}"
                options += ["-device", f"vfio-pci,host={address},addr={slot}"]
            return options
        # With MSI-X, QEMU 7.2 crashes when a kernel's driver starts under TCG.
        vectors = "" if self._polled else ",vectors=0"
        for number, path in enumerate(self._side.sockets):
            name, slot = f"net{number}", f"{_FIRST_SLOT + number:#x}"
            options += ["-chardev", f"socket,id={name}c,path={_quoted(path)},server=on,wait=off"]
            options += ["-netdev", f"vhost-user,id={name},chardev={name}c"]
            options += ["-device", f"virtio-net-pci,netdev={name},addr={slot}{vectors}"]
        return options

    def set_up(self, guest: Guest) -> Side:
        """Give the ports to DPDK or to the kernel, and return them as a side of the wire."""
        if not self._polled:
            links = [_link_of(guest, address) for address in self._addresses]
            for link in links:
                guest.run(["ip", "link", "set", "dev", link, "up"])
            return Side(links=tuple(links))
        driver = "uio_pci_generic" if self._side.sockets else "vfio-pci"
        for address in self._addresses:
            device = f"/sys/bus/pci/devices/{address}"
            # In some kernels virtio's driver is built in, and already bound.
            away = '[ ! -e "$1/driver" ] || printf %s "$2" >"$1/driver/unbind"'
            guest.run(["sh", "-c", away, "sh", device, address])
            _put(guest, f"{device}/driver_override", driver)
            _put(guest, "/sys/bus/pci/drivers_probe", address)
        _put(guest, "/proc/sys/vm/nr_hugepages", str(_HUGEPAGES))
        allowed = [f"-a{address}" for address in self._addresses]
        return Side(("--in-memory", "-m", str(_DPDK_MB), *allowed), tuple(self._addresses))


def _put(guest: Guest, path: str, text: str) -> None:
    guest.run(["sh", "-c", 'printf %s "$1" >"$2"', "sh", text, path])


def _link_of(guest: Guest, address: str) -> str:
    """Return the name of a card's link in the guest's kernel."""
    listed = guest.run(["find", f"/sys/bus/pci/devices/{address}/", "-path", "*/net/*"])
    link = re.search(r"/net/([^/\s]+)", listed)
    if link is None:
        raise TestbedError(
            f"platform vm: the guest's kernel has no driver for the card {address}",
            code="guest-driver",
        )
    return link[1]


def _serial(folder: Path) -> list[str]:
    """Return the options for a recorded console, the agent's port, and QEMU's own port."""
    port = "server=on,wait=off"
    return [
        *("-chardev", f"file,id=console,path={_quoted(folder / 'console.log')}"),
        *("-serial", "chardev:console"),
        *("-chardev", f"socket,id=agent,path={_quoted(folder / 'agent')},{port}"),
        *("-serial", "chardev:agent"),
        *("-qmp", f"unix:{_quoted(folder / 'qmp')},{port}"),
    ]


def _quoted(path: Path) -> str:
    """Quote a path for QEMU's options."""
    return str(path).replace(",", ",,")


def _parameters(kernel: str | None, boot: str | None, cpus: Sequence[int], ports: _Ports) -> str:
    # A late timer fails its check on a busy host.
    parts = ["console=ttyS0 quiet panic=-1 net.ifnames=0 no_timer_check", ports.parameters]
    if kernel is not None and kernel.startswith("nohz"):
        parts.append(NOHZ)
    listed = ",".join(map(str, cpus))
    return " ".join(part for part in (*parts, boot) if part).replace("{cpus}", listed)


def _wait_for(sockets: Sequence[Path], process: Process, ended: Callable[[], str]) -> None:
    deadline_s = time.monotonic() + _START_S
    while not all(path.exists() for path in sockets):
        if not process.is_running or time.monotonic() > deadline_s:
            process.wait_end(_POLL_S)
            raise TestbedError(f"platform vm: QEMU did not start: {ended()}", code="qemu-start")
        time.sleep(_POLL_S)


def _pin(port: Path, cpus: Sequence[int], housekeeping: Sequence[int]) -> None:
    """Pin each CPU of the guest to one of ours; the first one is for its housekeeping."""
    with socket.socket(socket.AF_UNIX) as qmp:
        qmp.settimeout(_START_S)
        qmp.connect(str(port))
        with qmp.makefile("rw") as lines:
            threads = {
                cpu["cpu-index"]: cpu["thread-id"]
                for cpu in _ask(lines, "qmp_capabilities", "query-cpus-fast")
            }
    for number, thread in threads.items():
        own = set(housekeeping) if number == 0 else {cpus[number - 1]}
        with suppress(OSError):
            os.sched_setaffinity(thread, own)


def _ask(lines: IO[str], *commands: str) -> list[_VirtualCpu]:
    """Run commands of QEMU, and return the answer to the last one."""
    lines.readline()
    cpus: list[_VirtualCpu] = []
    for command in commands:
        lines.write(json.dumps({"execute": command}) + "\n")
        lines.flush()
        while "return" not in (answer := json.loads(lines.readline())):
            if "error" in answer:
                text = f"platform vm: QEMU: {command}: {answer['error']}"
                raise TestbedError(text, code="qemu-command")
        cpus = answer["return"]
    return cpus
