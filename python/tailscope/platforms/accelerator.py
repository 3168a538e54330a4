"""Choice between KVM and emulation for guests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tailscope.exceptions import RunError, TestbedError
from tailscope.host import remedies
from tailscope.host.state import state_folder
from tailscope.platforms.initramfs import build_initramfs
from tailscope.store.atomic import write_text
from tailscope.store.machine import this_host
from tailscope.store.records.base import encode, read_record
from tailscope.store.records.kvm import KVM_FORMAT, KvmRecord

if TYPE_CHECKING:
    from tailscope.platforms.initramfs import GuestKernel
    from tailscope.testbed.places import Here

_KVM = Path("/dev/kvm")
_PROBE_S = 20.0


def find_accelerator(wanted: str, kernel: GuestKernel, here: Here) -> str:
    """Choose ``kvm`` if it boots a guest, otherwise ``tcg``."""
    if wanted == "tcg":
        return "tcg"
    has_kvm = _remembered(kernel)
    if has_kvm is None:
        has_kvm = _may_use_kvm() and boots("kvm", kernel, here)
        _remember(kernel, has_kvm=has_kvm)
    if wanted == "kvm" and not has_kvm:
        raise TestbedError(
            f"platform vm: KVM does not boot {kernel.release} within {_PROBE_S:g} s here",
            code="kvm-boot",
            remedy=remedies.KVM,
            hint="under a nested hypervisor use --platform-option accelerator=tcg, whose times mean"
            " nothing",
        )
    return "kvm" if has_kvm else "tcg"


def boots(
    accelerator: str, kernel: GuestKernel, here: Here, *, timeout_s: float = _PROBE_S
) -> bool:
    """Boot a guest that ends itself: ``/dev/kvm`` may not work under a nested hypervisor."""
    root = here.folder / "probe.cpio"
    build_initramfs(root, kernel, modules=(), programs=(), files=(), dpdk=False, cards=False)
    command = [*machine(accelerator, cpus=1, memory_mb=512), "-serial", "stdio"]
    command += ["-kernel", str(kernel.image), "-initrd", str(root)]
    command += ["-append", "console=ttyS0 quiet panic=-1 rdinit=/bin/poweroff -- -f"]
    with here.start("probe", command, merged=True) as process:
        if not process.wait_end(timeout_s):
            return False
        ended_well = process.how_it_ended() == "ended with status 0"
    return ended_well and "panic" not in (here.read("probe.log") or "panic")


def machine(accelerator: str, *, cpus: int, memory_mb: int) -> list[str]:
    """Return QEMU's command for a machine without ports."""
    kinds = {"kvm": ["-accel", "kvm", "-cpu", "host"]}
    # The default processor lacks instructions that DPDK uses.
    emulated = ["-accel", "tcg,thread=multi", "-cpu", "max"]
    split = ",kernel-irqchip=split" if accelerator == "kvm" else ""
    return [
        "qemu-system-x86_64",
        *kinds.get(accelerator, emulated),
        *("-machine", f"q35{split}", "-smp", str(cpus), "-m", str(memory_mb)),
        *("-object", f"memory-backend-memfd,id=mem,size={memory_mb}M,share=on"),
        *("-numa", "node,memdev=mem", "-nodefaults", "-no-user-config"),
        *("-display", "none", "-no-reboot"),
    ]


def _may_use_kvm() -> bool:
    return os.access(_KVM, os.R_OK | os.W_OK)


def _remembered(kernel: GuestKernel) -> bool | None:
    path = _path()
    try:
        record = read_record(path.read_bytes(), KvmRecord, path, newest=KVM_FORMAT)
    except (OSError, RunError):
        return None
    return record.has_kvm if record == _tried(kernel, has_kvm=record.has_kvm) else None


def _remember(kernel: GuestKernel, *, has_kvm: bool) -> None:
    path = _path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_text(path, encode(_tried(kernel, has_kvm=has_kvm)))


def _tried(kernel: GuestKernel, *, has_kvm: bool) -> KvmRecord:
    host = this_host()
    return KvmRecord(
        guest=kernel.release,
        may_use_kvm=_may_use_kvm(),
        cpu_model=host.cpu_model,
        kernel=host.kernel,
        has_kvm=has_kvm,
    )


def _path() -> Path:
    return state_folder() / "kvm.json"
