"""One-shot boots by GRUB, systemd-boot and kexec on simulated machines."""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING

import pytest
from errors import raises
from runs import needed

from tailscope.exceptions import HostError, OtherKernelError
from tailscope.extra.laboratory.boot.boot_loaders import BOOT_LOADERS
from tailscope.extra.laboratory.boot.booting import Rebooter
from tailscope.extra.laboratory.remote import Machine
from tailscope.host.boot_line import Booted, BootLine, boot_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

VANILLA, RT = "6.1.0-13-amd64", "6.1.0-13-rt-amd64"
ALWAYS = "root=UUID=0a1b ro quiet"
VERSIONS = {VANILLA: "Linux version 6.1 SMP PREEMPT_DYNAMIC", RT: "Linux version 6.1 PREEMPT_RT"}
DEFAULT = boot_line(None, None, "")
RT_LINE = boot_line("rt", RT, "isolcpus=2,3 nosmt")

ENTRY = """\
menuentry '{title}' --class debian $menuentry_id_option 'gnulinux-{title}' {{
    load_video
    insmod part_gpt
    search --no-floppy --fs-uuid --set=root 0a1b
    echo 'Loading Linux {release} ...'
    linux   /boot/vmlinuz-{release} root=UUID=0a1b ro {more}
    initrd  /boot/initrd.img-{release}
}}
"""


class Folder(Machine):
    """A machine whose disk is a folder, and whose boot loader is simulated."""

    def __init__(self, root: Path) -> None:
        self.where = "dut (lab2)"
        self.root, self.boots = root, 0
        self.loaded: str | None = None
        self.has_systemd = True
        self.line = f"BOOT_IMAGE=/boot/vmlinuz-{VANILLA} {ALWAYS}"
        self.release = VANILLA
        for release in (VANILLA, RT):
            self._add(f"/boot/vmlinuz-{release}", "")
            self._add(f"/boot/initrd.img-{release}", "")

    def _add(self, path: str, text: str) -> None:
        target = self._at(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def _at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def files(self) -> dict[str, str]:
        """Return the contents of the disk."""
        paths = (path for path in self.root.rglob("*") if path.is_file())
        return {str(path.relative_to(self.root)): path.read_text() for path in paths}

    def run(self, *commands: Sequence[str]) -> list[str]:
        return [self._run(list(command)) for command in commands]

    def _run(self, command: list[str]) -> str:
        if command[0] == "grub-editenv":
            command[1] = str(self._at(command[1]))
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise self.error(f"{command[0]}: {done.stderr}")
        return done.stdout

    def run_last(self, command: Sequence[str]) -> None:
        self.boots += 1
        if list(command) == ["reboot"]:
            self.power_cycle()
        else:
            self.kexec()

    def kexec(self) -> None:
        raise AssertionError("nothing was loaded")

    def power_cycle(self) -> None:
        """Boot the entry of the boot loader."""
        raise NotImplementedError

    def read(self, path: str) -> str | None:
        return self._at(path).read_text() if self._at(path).exists() else None

    def write(self, path: str, text: str) -> None:
        self._at(path).write_text(text)

    def remove(self, path: str) -> None:
        self._at(path).unlink(missing_ok=True)

    def names(self, folder: str) -> list[str]:
        if folder == "/run/systemd":
            return ["system"] if self.has_systemd else []
        return sorted(path.name for path in self._at(folder).iterdir())

    def contents(self, *paths: str) -> list[str]:
        facts = {
            "boot_id": f"boot {self.boots}",
            "osrelease": self.release,
            "version": VERSIONS[self.release],
            "cmdline": self.line,
        }
        return [facts.get(path.rpartition("/")[2], "") for path in paths]


class OfGrub(Folder):
    """A machine with Debian's GRUB menu; `grub-editenv` and `grub-script-check` are real."""

    disk_is_writable = True

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        entries = [
            ENTRY.format(title=title, release=release, more=more)
            for title, release, more in (
                ("Debian", VANILLA, "quiet"),
                ("Debian-rt-recovery", RT, "single"),
                ("Debian-rt", RT, "quiet"),
            )
        ]
        menu = _debians("00_header") + "".join(entries) + _debians("41_custom")
        self._add("/boot/grub/grub.cfg", menu)
        subprocess.run(["grub-editenv", self._at("/boot/grub/grubenv"), "create"], check=True)

    def power_cycle(self) -> None:
        """Boot the next entry once, or the first one, as the menu's header does."""
        menu = "".join(self.read(f"/boot/grub/{name}") or "" for name in ("grub.cfg", "custom.cfg"))
        subprocess.run(["grub-script-check"], input=menu, text=True, check=True)
        environment = self._run(["grub-editenv", "/boot/grub/grubenv", "list"])
        wanted = re.search(r"^next_entry=(.+)$", environment, re.MULTILINE)
        if wanted and self.disk_is_writable:
            self._run(["grub-editenv", "/boot/grub/grubenv", "set", "next_entry="])
        entries = re.findall(r"^menuentry '(\S+)'.*?\{\n(.*?)^\}", menu, re.MULTILINE | re.DOTALL)
        title, body = next(
            (entry for entry in entries if wanted is not None and entry[0] == wanted[1]),
            entries[0],
        )
        linux = re.search(r"^\s*linux\s+(\S+)(.*)$", body, re.MULTILINE)
        assert linux is not None, title
        self.release = linux[1].removeprefix("/boot/vmlinuz-")
        self.line = f"BOOT_IMAGE={linux[1]}{linux[2]}"


def _debians(name: str) -> str:
    """Return the part of the menu that a script of GRUB writes."""
    variables = {"pkgdatadir": "/usr/share/grub", "prefix": "/usr", "datarootdir": "/usr/share"}
    more = {"GRUB_TERMINAL": "console", "GRUB_TERMINAL_OUTPUT": "console", "GRUB_DEFAULT": "0"}
    return subprocess.run(
        ["sh", f"/etc/grub.d/{name}"],
        env={**os.environ, **variables, **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    ).stdout


class OfSystemd(Folder):
    """A machine with systemd-boot, whose firmware variable is an attribute."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.once: str | None = None
        self._add("/sys/firmware/efi/efivars/LoaderInfo", "")
        for release in (VANILLA, RT):
            text = f"title Debian\nversion {release}\nsort-key debian\noptions {ALWAYS}\n"
            text += f"linux /vmlinuz-{release}\ninitrd /initrd.img-{release}\n"
            self._add(f"/boot/loader/entries/0a1b-{release}.conf", text)

    def _run(self, command: list[str]) -> str:
        if command == ["bootctl", "--print-boot-path"]:
            return "/boot\n"
        assert command[:3] == ["bootctl", "set-oneshot", "--"]
        self.once = command[3]
        return ""

    def power_cycle(self) -> None:
        name, self.once = self.once or f"0a1b-{VANILLA}.conf", None
        lines = (self.read(f"/boot/loader/entries/{name}") or "").splitlines()
        pairs = [tuple(line.split(" ", 1)) for line in lines]
        self.release = next(value for key, value in pairs if key == "version")
        self.line = " ".join(value for key, value in pairs if key == "options")


class OfKexec(Folder):
    """A machine without a boot loader of ours, whose firmware boots the vanilla kernel."""

    def _run(self, command: list[str]) -> str:
        assert command[:2] == ["kexec", "-l"], command
        image, initrd, line = command[2:]
        self.loaded = line.removeprefix("--command-line=")
        self.next_release = image.removeprefix("/boot/vmlinuz-")
        assert initrd == f"--initrd=/boot/initrd.img-{self.next_release}"
        return ""

    def kexec(self) -> None:
        assert self.loaded is not None
        self.line, self.release, self.loaded = self.loaded, self.next_release, None

    def power_cycle(self) -> None:
        self.line, self.release = f"BOOT_IMAGE=/boot/vmlinuz-{VANILLA} {ALWAYS}", VANILLA


MACHINES = {"grub": OfGrub, "systemd-boot": OfSystemd, "kexec": OfKexec}


@pytest.fixture(params=MACHINES)
def how(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if name == "grub":
        needed("grub-editenv", "grub-script-check")
    return name


@pytest.fixture
def machine(how: str, tmp_path: Path) -> Folder:
    return MACHINES[how](tmp_path)


@pytest.fixture
def boot(how: str, machine: Folder) -> Callable[[BootLine], Booted]:
    """Return a function that boots the machine."""
    loader = BOOT_LOADERS[how]()

    def boot(wanted: BootLine) -> Booted:
        say: list[str] = []
        rebooter = Rebooter(
            machine, loader, None, wait_s=5, power_cycle=None, say=say.append, show=say.append
        )
        return rebooter.boot(wanted, rebooter.running())

    return boot


def test_a_boot_is_for_once_and_leaves_nothing(
    machine: Folder, boot: Callable[[BootLine], Booted]
) -> None:
    before = machine.files()
    found = boot(RT_LINE)
    assert (found.release, found.flavour) == (RT, "rt")
    words = found.command_line.split()
    # By which the next boot can be chosen on an rt kernel, too.
    assert ("efi=runtime" in words) == isinstance(machine, OfSystemd)
    assert "ro" in words and "root=UUID=0a1b" in words and "single" not in words
    assert words[-2:] == ["isolcpus=2,3", "nosmt"]
    after = machine.files()
    for files in (before, after):
        files["boot/grub/grubenv"] = files.get("boot/grub/grubenv", "").rstrip("#")
    assert after == before
    machine.power_cycle()
    assert machine.release == VANILLA and "isolcpus" not in machine.line


def test_parameters_of_one_boot_are_not_those_of_the_next(
    machine: Folder, boot: Callable[[BootLine], Booted]
) -> None:
    boot(RT_LINE)
    found = boot(boot_line("vanilla", VANILLA, "idle=poll"))
    words = found.command_line.split()
    assert "idle=poll" in words and not any(word.startswith("isolcpus") for word in words)
    assert len([word for word in words if word.startswith("tailscope.boot=")]) == 1
    assert boot(DEFAULT).lacks(DEFAULT) == []
    assert "tailscope" not in machine.line


def test_a_kernel_that_is_not_installed_is_named_before_anything_changes(
    machine: Folder, boot: Callable[[BootLine], Booted]
) -> None:
    before = machine.files()
    with raises(HostError, "no-boot-entry") as error:
        boot(boot_line("rt", "6.6.6-rt", "nosmt"))
    assert str(error.value).startswith("dut (lab2): /boot")
    assert "6.6.6-rt" in str(error.value) and error.value.hint
    assert machine.boots == 0 and machine.files() == before


def test_grub_that_cannot_forget_is_made_to(tmp_path: Path) -> None:
    """On a read-only disk, GRUB would boot the next entry every time."""
    needed("grub-editenv", "grub-script-check")
    machine = OfGrub(tmp_path)
    machine.disk_is_writable = False
    rebooter = Rebooter(
        machine, BOOT_LOADERS["grub"](), None, wait_s=5, power_cycle=None, say=print, show=print
    )
    rebooter.boot(RT_LINE, rebooter.running())
    machine.power_cycle()
    assert machine.release == VANILLA


def test_what_grub_has_of_its_user_stays(tmp_path: Path) -> None:
    needed("grub-editenv", "grub-script-check")
    machine = OfGrub(tmp_path)
    own = "menuentry 'memtest' {\n    linux16 /boot/memtest86+.bin\n}\n"
    machine.write("/boot/grub/custom.cfg", own)
    rebooter = Rebooter(
        machine, BOOT_LOADERS["grub"](), None, wait_s=5, power_cycle=None, say=print, show=print
    )
    rebooter.boot(RT_LINE, rebooter.running())
    assert machine.read("/boot/grub/custom.cfg") == own


@pytest.mark.parametrize("lacking", ["custom.cfg", "next_entry"])
def test_a_menu_that_would_not_boot_it_is_refused(tmp_path: Path, lacking: str) -> None:
    needed("grub-editenv", "grub-script-check")
    machine = OfGrub(tmp_path)
    menu = machine.read("/boot/grub/grub.cfg") or ""
    machine.write("/boot/grub/grub.cfg", menu.replace(lacking, "other"))
    rebooter = Rebooter(
        machine, BOOT_LOADERS["grub"](), None, wait_s=5, power_cycle=None, say=print, show=print
    )
    with raises(HostError, "boot-menu") as error:
        rebooter.boot(RT_LINE, rebooter.running())
    assert lacking in str(error.value)
    assert machine.boots == 0


def test_a_loader_that_boots_something_else_is_noticed(tmp_path: Path) -> None:
    machine = OfKexec(tmp_path)
    machine.kexec = machine.power_cycle  # type: ignore[method-assign]
    rebooter = Rebooter(
        machine, BOOT_LOADERS["kexec"](), None, wait_s=5, power_cycle=None, say=print, show=print
    )
    with raises(OtherKernelError, "booted-otherwise") as error:
        rebooter.boot(RT_LINE, rebooter.running())
    text = str(error.value)
    assert text.startswith("dut (lab2): ")
    assert f"{RT}, got {VANILLA}" in text and "isolcpus=2,3 nosmt" in text
    assert f"BOOT_IMAGE=/boot/vmlinuz-{VANILLA} {ALWAYS}" in text


def test_a_kernel_without_the_firmwares_variables_is_refused(tmp_path: Path) -> None:
    """An rt kernel has none unless it is told to; systemd-boot could be told nothing."""
    machine = OfSystemd(tmp_path)
    (tmp_path / "sys/firmware/efi/efivars/LoaderInfo").unlink()
    before = machine.files()
    rebooter = Rebooter(
        machine,
        BOOT_LOADERS["systemd-boot"](),
        None,
        wait_s=5,
        power_cycle=None,
        say=print,
        show=print,
    )
    with raises(HostError, "no-firmware-variables") as error:
        rebooter.boot(RT_LINE, rebooter.running())
    assert "efi=runtime" in str(error.value.hint)
    assert machine.boots == 0 and machine.files() == before
