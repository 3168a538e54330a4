"""A guest that boots from a disk by a real boot loader, and answers by its own sshd."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from laboratory import SSHD
from runs import needed

from tailscope.exceptions import TestbedError
from tailscope.extra.laboratory.boot.boot_loaders import BOOT_LOADERS
from tailscope.extra.laboratory.boot.booting import Rebooter
from tailscope.extra.laboratory.remote import SshMachine
from tailscope.platforms.accelerator import machine
from tailscope.platforms.initramfs import build_initramfs, guest_kernel
from tailscope.testbed.programs import which

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tailscope.platforms.initramfs import GuestKernel

LOADERS = Path(sys.prefix, "share", "tailscope", "loaders")
"""Packages that nobody installs, because they would change how the machine boots."""
LIMIT_S = 600
# With MSI-X, QEMU 7.2 crashes when a kernel's driver starts under TCG.
CARD = "virtio-net-pci,vectors=0,romfile="
_MIB = 1 << 20
_ESP_MIB, _ROOT_MIB = 64, 640
_MODULES = (
    "virtio_pci",
    "virtio_blk",
    "virtio_net",
    "crc32c_generic",
    "ext4",
    "vfat",
    "af_packet",
    "bridge",
    "nls_cp437",
    "nls_ascii",
)
_MODULES_OF_UEFI = ("efivarfs",)
_ALWAYS = "console=ttyS0 panic=0 no_timer_check tsc=reliable"
_INSTALL = "tailscope.install"

_INITRD_INIT = """\
#!/bin/sh
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
exec </dev/null >/dev/ttyS0 2>&1
while read -r module; do insmod "$module"; done </modules
for word in $(cat /proc/cmdline); do
    case $word in root=*) disk=${word#root=} ;; esac
done
mkdir /disk
mount -t ext4 "$disk" /disk
for folder in dev proc sys; do mount -o move /$folder /disk/$folder; done
exec switch_root /disk /bin/init
"""

_INITTAB = f"""\
::sysinit:/etc/rc
::respawn:{SSHD} -D -e -f /etc/sshd
::shutdown:/bin/umount -a -r
"""

_RC = """\
#!/bin/sh
mkdir -p /dev/pts
mount -t tmpfs -o mode=755 none /run
mkdir -m 755 /run/sshd
mount -t devpts none /dev/pts
if [ -d /sys/firmware/efi ]; then
    mount -t vfat /dev/vda1 /boot
    mount -t efivarfs none /sys/firmware/efi/efivars
fi
ip link set lo up
{links}
case $(cat /proc/cmdline) in *{install}*)
    grub-install --target=i386-pc /dev/vda
    grub-mkconfig -o /boot/grub/grub.cfg
    poweroff
esac
"""

_PASSWD = """\
root::0:0::/root:/bin/sh
sshd:x:103:65534::/run/sshd:/bin/false
tcpdump:x:104:65534::/run:/bin/false
"""

_DEFAULT_GRUB = f"""\
GRUB_DEFAULT=0
GRUB_TIMEOUT=0
GRUB_DISTRIBUTOR=Debian
GRUB_TERMINAL=console
GRUB_DISABLE_OS_PROBER=true
GRUB_CMDLINE_LINUX="{_ALWAYS}"
"""

# As kernel-install writes it.
_ENTRY = """\
# Boot Loader Specification type#1 entry
title      Debian GNU/Linux 12 (bookworm)
version    {release}
machine-id {token}
sort-key   debian
options    root=/dev/vda2 ro {always}
linux      /{token}/{release}/linux
initrd     /{token}/{release}/initrd.img-{release}
"""
_TOKEN = "0123456789abcdef0123456789abcdef"


@dataclass(frozen=True)
class Network:
    """The links of a guest, and who may enter it."""

    address: str
    """Name by which ssh reaches it."""
    port: int
    """Where its sshd listens."""
    host_key: Path
    authorized: Path
    qemu: list[str]
    """Options of QEMU."""
    set_up: str
    """Lines of its shell that set up links."""
    inside: tuple[str, ...] = ()
    """Words that start QEMU where the links are."""


@dataclass
class DiskGuest:
    """A machine with two kernels and a boot loader on its disk."""

    path: Path
    machine: SshMachine
    releases: dict[str, str]
    command: list[str]
    process: subprocess.Popen[bytes] | None = None

    @property
    def console(self) -> str:
        """Return what the machine printed since it was switched on."""
        return (self.path / "console.log").read_text(errors="replace")

    def rebooter(self, how: str) -> Rebooter:
        return Rebooter(
            self.machine,
            BOOT_LOADERS[how](),
            None,
            wait_s=LIMIT_S,
            power_cycle=None,
            say=print,
            show=lambda _text: None,
        )

    def switch_on(self) -> None:
        with (self.path / "qemu.log").open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def switch_off(self) -> None:
        """Take the power away."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def files(self) -> dict[str, str]:
        """Return what the boot loader reads, without how long its environment is."""
        listed = "find /boot -type f -not -name 'vmlinuz*' -not -name 'initrd*' -not -name '*.mod'"
        [found] = self.machine.run(["sh", "-c", f"{listed} | sort | xargs md5sum"])
        sums = {name: digest for digest, name in map(str.split, found.splitlines())}
        environment = "/boot/grub/grubenv"
        if environment in sums:
            sums[environment] = (self.machine.read(environment) or "").rstrip("#\n")
        return sums


@contextmanager
def switched_on(
    folder: Path, firmware: str, network: Network, files: Sequence[Path] = ()
) -> Iterator[DiskGuest]:
    """Install a guest with a firmware, ``bios`` or ``uefi``, and switch it on within a block."""
    kernels = _kernels()
    boot = _boot_folder(folder / "boot", kernels.values())
    root = _root(folder, kernels["vanilla"], network, files)
    command = [*network.inside, *_qemu(folder), *network.qemu]
    if firmware == "bios":
        shutil.copytree(boot, root / "boot")
        _write_disk(folder, "label: dos\nstart=2048, type=83, bootable\n", [_ext4(folder, root)])
        _install(folder, command, boot, kernels["vanilla"].release)
    else:
        (root / "boot").mkdir()
        table = f"label: gpt\nstart=2048, size={_ESP_MIB}MiB, type=uefi\ntype=linux\n"
        _write_disk(folder, table, [_esp(folder, boot, kernels.values()), _ext4(folder, root)])
        command += _uefi(folder)
    releases = {kind: kernel.release for kind, kernel in kernels.items()}
    machine_of_it = SshMachine("dut", network.address, None)
    guest = DiskGuest(folder, machine_of_it, releases, command)
    try:
        guest.switch_on()
        yield guest
    finally:
        guest.switch_off()


def _kernels() -> dict[str, GuestKernel]:
    """Return the kernels of the guest, if what boots it is there, too."""
    needed("sshd", "ssh-keygen", "qemu-system-x86_64", "busybox", "cpio", "sfdisk", "mke2fs")
    try:
        assert LOADERS.exists(), f"no {LOADERS}: make setup-ci installs it"
        return {kind: guest_kernel(kind) for kind in ("vanilla", "rt")}
    except (AssertionError, TestbedError) as error:
        assert not os.environ.get("CI"), error
        pytest.skip(str(error))


def forwarded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Network:
    """Return a network that reaches this machine alone, which enters it with a key of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ssh = folder / "home" / ".ssh"
    ssh.mkdir(parents=True, mode=0o700)
    for key in (ssh / "id_ed25519", folder / "host_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    public = (folder / "host_key.pub").read_text().split()
    (ssh / "known_hosts").write_text(f"[127.0.0.1]:{port} {public[0]} {public[1]}\n")
    (ssh / "config").write_text(f"Host dut\n  HostName 127.0.0.1\n  Port {port}\n  User root\n")
    monkeypatch.setenv("HOME", str(ssh.parent))
    return Network(
        address="dut",
        port=22,
        host_key=folder / "host_key",
        authorized=ssh / "id_ed25519.pub",
        qemu=[
            *("-netdev", f"user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:22"),
            *("-device", f"{CARD},netdev=net"),
        ],
        set_up="ip link set eth0 up\nip addr add 10.0.2.15/24 dev eth0",
    )


def _tree(
    path: Path,
    kernel: GuestKernel,
    *,
    modules: Sequence[str] = (),
    programs: Sequence[Path] = (),
    files: Iterable[Path] = (),
) -> Path:
    """Unpack a guest's root as the platform makes it."""
    archive = path.with_suffix(".cpio")
    build_initramfs(
        archive, kernel, modules=modules, programs=programs, files=files, dpdk=False, cards=False
    )
    path.mkdir()
    with archive.open("rb") as content:
        subprocess.run(["cpio", "-idm", "--quiet"], cwd=path, stdin=content, check=True)
    archive.unlink()
    return path


def _boot_folder(boot: Path, kernels: Iterable[GuestKernel]) -> Path:
    """Make ``/boot`` as Debian has it: kernels, each with its initial root."""
    boot.mkdir()
    for kernel in kernels:
        shutil.copy(kernel.image, boot)
        initrd = boot / f"initrd.img-{kernel.release}"
        tree = _tree(boot / "tree", kernel, modules=(*_MODULES, *_MODULES_OF_UEFI))
        _write(tree / "init", _INITRD_INIT, executable=True)
        names = subprocess.run(["find", "."], cwd=tree, capture_output=True, check=True).stdout
        archive = ["cpio", "-o", "-H", "newc", "--quiet", "-R", "0:0"]
        with initrd.open("wb") as out:
            subprocess.run(archive, cwd=tree, input=names, stdout=out, check=True)
        shutil.rmtree(tree)
    return boot


def _root(folder: Path, kernel: GuestKernel, network: Network, files: Iterable[Path]) -> Path:
    """Make the root of the disk, with the boot loaders' programs where their packages have them."""
    ours = [
        path
        for name in ("sbin", "bin", "usr/sbin", "usr/bin")
        for path in LOADERS.glob(f"{name}/*")
    ]
    system = [
        which(name)
        for name in (
            "grub-probe",
            "grub-mkconfig",
            "grub-editenv",
            "grub-mkrelpath",
            "grub-script-check",
            "grub-file",
        )
    ]
    files = [
        *files,
        *_libraries([path for path in ours if path.is_file()]),
        Path("/etc/grub.d"),
        Path("/usr/share/grub"),
    ]
    root = _tree(
        folder / "root",
        kernel,
        programs=[Path(SSHD), *(path for path in system if path is not None)],
        files=files,
    )
    shutil.copytree(
        LOADERS, root, dirs_exist_ok=True, symlinks=True, ignore=shutil.ignore_patterns("OVMF")
    )
    sshd = {
        "Port": network.port,
        "HostKey": "/etc/host_key",
        "AuthorizedKeysFile": "/etc/authorized",
        "PidFile": "none",
        "StrictModes": "no",
        "UsePAM": "no",
        "PermitRootLogin": "prohibit-password",
        "Subsystem": "sftp internal-sftp",
        "SetEnv": "XDG_RUNTIME_DIR=/run",
    }
    _write(root / "etc/sshd", "".join(f"{name} {value}\n" for name, value in sshd.items()))
    _write(root / "etc/passwd", _PASSWD)
    _write(root / "etc/inittab", _INITTAB)
    rc = _RC.format(links=network.set_up, install=_INSTALL)
    _write(root / "etc/rc", rc, executable=True)
    _write(root / "etc/default/grub", _DEFAULT_GRUB)
    shutil.copy(network.host_key, root / "etc/host_key")
    shutil.copy(network.authorized, root / "etc/authorized")
    (root / "root").mkdir(exist_ok=True)
    (root / "var").mkdir(exist_ok=True)
    (root / "var/run").symlink_to("/run")
    return root


def _write(path: Path, text: str, *, executable: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_text(text)
    path.chmod(0o755 if executable else 0o644)


def _libraries(programs: Iterable[Path]) -> list[Path]:
    """Return the system's libraries that programs of the packages are linked with."""
    folders = {str(path.parent) for path in LOADERS.rglob("*.so*")}
    environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(sorted(folders))}
    listed = subprocess.run(
        ["ldd", *programs], env=environment, capture_output=True, text=True, check=False
    ).stdout
    paths = {Path(path) for path in re.findall(r"(/\S+) \(0x", listed)}
    paths = {path for path in paths if LOADERS not in path.parents}
    return sorted(paths | {path.resolve() for path in paths})


def _ext4(folder: Path, root: Path) -> Path:
    image = folder / "root.img"
    # GRUB 2.06 does not read disks with the left-out feature.
    command = ["mke2fs", "-q", "-t", "ext4", "-O", "^metadata_csum_seed", "-d", root, image]
    subprocess.run([*command, f"{_ROOT_MIB}M"], check=True)
    return image


def _esp(folder: Path, boot: Path, kernels: Iterable[GuestKernel]) -> Path:
    """Make the EFI system partition as `bootctl install` and `kernel-install` do."""
    needed("mcopy")
    esp, image = folder / "esp", folder / "esp.img"
    loader = LOADERS / "usr/lib/systemd/boot/efi/systemd-bootx64.efi"
    for target in ("EFI/BOOT/BOOTX64.EFI", "EFI/systemd/systemd-bootx64.efi"):
        (esp / target).parent.mkdir(parents=True)
        shutil.copy(loader, esp / target)
    _write(esp / "loader/loader.conf", f"timeout 0\ndefault {_TOKEN}-*[0-9]-amd64.conf\n")
    for kernel in kernels:
        release = kernel.release
        place = esp / _TOKEN / release
        place.mkdir(parents=True)
        shutil.copy(kernel.image, place / "linux")
        shutil.copy(boot / f"initrd.img-{release}", place)
        entry = _ENTRY.format(release=release, token=_TOKEN, always=_ALWAYS)
        _write(esp / f"loader/entries/{_TOKEN}-{release}.conf", entry)
    sectors = _ESP_MIB * _MIB // 512
    subprocess.run(["mformat", "-i", image, "-C", "-F", "-T", str(sectors), "::"], check=True)
    subprocess.run(["mcopy", "-i", image, "-s", *esp.iterdir(), "::"], check=True)
    return image


def _write_disk(folder: Path, table: str, parts: Sequence[Path]) -> None:
    """Write partitions one after the other into a disk with that table."""
    disk = folder / "disk.img"
    with disk.open("wb") as out:
        out.truncate(sum(part.stat().st_size for part in parts) + 2 * _MIB)
        at = _MIB
        for part in parts:
            out.seek(at)
            with part.open("rb") as content:
                shutil.copyfileobj(content, out)
            at += part.stat().st_size
            part.unlink()
    sfdisk = which("sfdisk")
    assert sfdisk is not None
    subprocess.run([sfdisk, "--quiet", disk], input=table, text=True, check=True)


def _qemu(folder: Path) -> list[str]:
    command = machine("tcg", cpus=2, memory_mb=1024)
    command.remove("-no-reboot")
    command += ["-serial", f"file:{folder / 'console.log'}"]
    command += ["-drive", f"file={folder / 'disk.img'},format=raw,if=none,id=disk"]
    return [*command, "-device", "virtio-blk-pci,drive=disk,bootindex=1"]


def _uefi(folder: Path) -> list[str]:
    firmware, variables = LOADERS / "usr/share/OVMF", folder / "variables.fd"
    shutil.copy(firmware / "OVMF_VARS_4M.fd", variables)
    flash = "if=pflash,format=raw,unit"
    code = f"{flash}=0,readonly=on,file={firmware / 'OVMF_CODE_4M.fd'}"
    return ["-drive", code, "-drive", f"{flash}=1,file={variables}"]


def _install(folder: Path, command: Sequence[str], boot: Path, release: str) -> None:
    """Install GRUB from within the guest, as a user does on her machine."""
    kernel = ["-kernel", boot / f"vmlinuz-{release}", "-initrd", boot / f"initrd.img-{release}"]
    words = f"root=/dev/vda1 rw {_ALWAYS} {_INSTALL}"
    subprocess.run([*command, *kernel, "-append", words], check=True, timeout=LIMIT_S)
    said = (folder / "console.log").read_text(errors="replace")
    assert "Installation finished. No error reported." in said, said[-3000:]
