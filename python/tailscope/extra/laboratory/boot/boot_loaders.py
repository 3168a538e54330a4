"""Boot loaders, which boot a machine once with another kernel and keep its default."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailscope.extra.laboratory.remote import Machine
    from tailscope.host.boot_line import Booted, BootLine

_GRUB = "/boot/grub"
_GRUBENV = f"{_GRUB}/grubenv"
_ENTRY = "tailscope"
_BEGIN, _END = "### BEGIN tailscope ###\n", "### END tailscope ###\n"
_LINUX = re.compile(r"^\s*linux(?:efi|16)?\s+(\S+)(.*)$")
_RESCUE = re.compile(r"\b(single|rescue|emergency|recovery)\b")
_SYSTEMD = "/run/systemd"
_EFI_VARIABLES = "/sys/firmware/efi/efivars"
_SYSTEMD_ENTRY = "-tailscope.conf"
"""Name that sorts after all other entries, which come first if there is no default."""


class BootLoader(ABC):
    """A boot loader of a machine."""

    @abstractmethod
    def prepare(self, machine: Machine, wanted: BootLine, running: Booted) -> Sequence[str]:
        """Prepare the next boot alone, and return the command that reboots."""

    @abstractmethod
    def settle(self, machine: Machine) -> None:
        """Undo `prepare`, so that the next boot is the default one."""


class Grub(BootLoader):
    """GRUB, by an entry in ``custom.cfg`` that is booted once (``next_entry``)."""

    def prepare(
        self,
        machine: Machine,
        wanted: BootLine,
        running: Booted,  # noqa: ARG002
    ) -> Sequence[str]:
        """Add a copy of the machine's entry for that kernel, with more parameters."""
        menu = machine.read(f"{_GRUB}/grub.cfg")
        if menu is None:
            raise machine.error(
                f"{_GRUB}/grub.cfg: there is no such file", "boot: how: kexec", "no-boot-menu"
            )
        for part, hint in (
            ("custom.cfg", "`chmod +x /etc/grub.d/41_custom` and `update-grub` there"),
            ("next_entry", "`update-grub` there"),
        ):
            if part not in menu:
                text = f"{_GRUB}/grub.cfg: expected that it reads {part}"
                raise machine.error(text, hint, "boot-menu")
        entry = _grub_entry(machine, menu, wanted)
        path = f"{_GRUB}/custom.cfg"
        machine.write(path, _without_ours(machine.read(path) or "") + _BEGIN + entry + _END)
        machine.run(["grub-editenv", _GRUBENV, "set", f"next_entry={_ENTRY}"])
        return ["reboot"]

    def settle(self, machine: Machine) -> None:
        """Remove the entry, which GRUB cannot do on a disk that it cannot write to."""
        path = f"{_GRUB}/custom.cfg"
        custom = machine.read(path)
        if custom is not None and _BEGIN in custom:
            rest = _without_ours(custom)
            if rest:
                machine.write(path, rest)
            else:
                machine.remove(path)
        if machine.read(_GRUBENV) is None:
            return
        [listed] = machine.run(["grub-editenv", _GRUBENV, "list"])
        # GRUB itself leaves the name without a value.
        if not {f"next_entry={_ENTRY}", "next_entry="}.isdisjoint(listed.splitlines()):
            machine.run(["grub-editenv", _GRUBENV, "unset", "next_entry"])


def _without_ours(custom: str) -> str:
    before, begin, rest = custom.partition(_BEGIN)
    return before + rest.partition(_END)[2] if begin else custom


def _grub_entry(machine: Machine, menu: str, wanted: BootLine) -> str:
    """Return a copy of the machine's entry for a release, with more parameters."""
    lines: list[str] = []
    inside = False
    for line in menu.splitlines():
        if re.match(r"\s*menuentry\s", line):
            lines, inside = [], True
        elif inside and line.strip() == "}":
            inside = False
            changed = [_with_parameters(entry_line, wanted) for entry_line in lines]
            if changed != lines:
                head = f"menuentry '{_ENTRY}' --id {_ENTRY} --unrestricted {{"
                return "\n".join([head, *changed, "}\n"])
        elif inside:
            lines.append(line)
    raise machine.error(
        f"{_GRUB}/grub.cfg: no entry boots vmlinuz-{wanted.release}",
        "install that kernel there, or name another release in boot.kernels",
        "no-boot-entry",
    )


def _with_parameters(line: str, wanted: BootLine) -> str:
    kernel = _LINUX.match(line)
    if kernel is None or _RESCUE.search(kernel[2]):
        return line
    if kernel[1].rpartition("/")[2] != f"vmlinuz-{wanted.release}":
        return line
    return " ".join([line, *wanted.words])


class SystemdBoot(BootLoader):
    """The loader systemd-boot, by an entry of its specification that is booted once."""

    def prepare(
        self,
        machine: Machine,
        wanted: BootLine,
        running: Booted,  # noqa: ARG002
    ) -> Sequence[str]:
        """Add a copy of the machine's entry for that kernel, with more options."""
        folder = _systemd_folder(machine)
        if not machine.names(_EFI_VARIABLES):
            raise machine.error(
                f"{_EFI_VARIABLES}: there are no variables of the firmware, by which systemd-boot"
                " is told what to boot next",
                "an rt kernel has them with efi=runtime on its command line alone",
                "no-firmware-variables",
            )
        for name in machine.names(folder):
            text = machine.read(f"{folder}/{name}") if name.endswith(".conf") else None
            if text is not None and name != _SYSTEMD_ENTRY and _boots(text, wanted.release):
                machine.write(f"{folder}/{_SYSTEMD_ENTRY}", _systemd_entry(text, wanted))
                machine.run(["bootctl", "set-oneshot", "--", _SYSTEMD_ENTRY])
                return ["reboot"]
        raise machine.error(
            f"{folder}: no entry boots {wanted.release}",
            "`bootctl list` there shows the entries; name another release in boot.kernels",
            "no-boot-entry",
        )

    def settle(self, machine: Machine) -> None:
        """Remove the entry."""
        machine.remove(f"{_systemd_folder(machine)}/{_SYSTEMD_ENTRY}")


def _systemd_folder(machine: Machine) -> str:
    [folder] = machine.run(["bootctl", "--print-boot-path"])
    return f"{folder.strip()}/loader/entries"


def _boots(entry: str, release: str | None) -> bool:
    """Return True if an entry is for a release, by its version or the path of its kernel."""
    for line in entry.splitlines():
        key, _, value = line.strip().partition(" ")
        value = value.strip()
        if key == "version" and value == release:
            return True
        if key == "linux" and release in (*value.split("/"), value.rpartition("vmlinuz-")[2]):
            return True
    return False


def _systemd_entry(entry: str, wanted: BootLine) -> str:
    """Return a copy of an entry that sorts after all others, with more options."""
    dropped = ("title", "sort-key")
    lines = [line for line in entry.splitlines() if line.strip().partition(" ")[0] not in dropped]
    # Otherwise an rt kernel could not say what to boot next.
    words = " ".join(["efi=runtime", *wanted.words])
    return "\n".join([f"title {_ENTRY}", *lines, f"options {words}\n"])


class Kexec(BootLoader):
    """The running kernel, which starts another one without firmware and boot loader."""

    def prepare(self, machine: Machine, wanted: BootLine, running: Booted) -> Sequence[str]:
        """Load the kernel."""
        line = " ".join([*running.base, *wanted.words])
        image, initrd = f"/boot/vmlinuz-{wanted.release}", f"/boot/initrd.img-{wanted.release}"
        names = machine.names("/boot")
        for path in (image, initrd):
            if path.removeprefix("/boot/") not in names:
                raise machine.error(
                    f"{path}: there is no such file",
                    "install that kernel there, or name another release in boot.kernels",
                    "no-boot-entry",
                )
        machine.run(["kexec", "-l", image, f"--initrd={initrd}", f"--command-line={line}"])
        has_systemd = "system" in machine.names(_SYSTEMD)
        return ["systemctl", "kexec"] if has_systemd else ["kexec", "-e"]

    def settle(self, machine: Machine) -> None:
        """Do nothing: nothing is left behind."""


BOOT_LOADERS: dict[str, type[BootLoader]] = {
    "grub": Grub,
    "systemd-boot": SystemdBoot,
    "kexec": Kexec,
}
