"""The kernel and parameters that a machine should boot with, and those that it booted with."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from tailscope.exceptions import UsageError
from tailscope.host.kernel import NOHZ, is_release

_PARAMETER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*(=[A-Za-z0-9_.,:/@%+=-]*)?")
_MARK = "tailscope.boot="
"""Parameter that no kernel reads; it distinguishes tailscope's boots from all others."""


@dataclass(frozen=True)
class BootLine:
    """A kernel and its parameters; without both, the machine's default boot."""

    kernel: str | None
    """One of `tailscope.plan.fields.KERNELS`, with the beginning of a release if a cell has it."""
    release: str | None
    """Release of that kernel; None if the user's boot command chooses it."""
    parameters: tuple[str, ...]
    """Parameters that the cell requests in addition to the machine's own."""

    @property
    def is_default(self) -> bool:
        """Return True if the machine boots its default kernel without extra parameters."""
        return self.kernel is None and not self.parameters

    @property
    def name(self) -> str:
        """Return the name of the kernel for the user's boot command."""
        return self.release or self.kernel or "default"

    @property
    def mark(self) -> str:
        """Return the parameter that identifies this boot."""
        words = "\n".join([self.name, *self.parameters])
        return _MARK + hashlib.sha256(words.encode()).hexdigest()[:12]

    @property
    def words(self) -> tuple[str, ...]:
        """Return all parameters that are added to the machine's own."""
        return () if self.is_default else (self.mark, *self.parameters)

    def __str__(self) -> str:
        if self.is_default:
            return "the default boot"
        kernel = self.kernel or "default kernel"
        named = f"{kernel} ({self.release})" if self.release else kernel
        return " ".join([named, *self.parameters])


@dataclass(frozen=True)
class Booted:
    """The running kernel as the machine describes it."""

    boot_id: str
    """Identifier that changes with each boot."""
    release: str
    version: str
    command_line: str
    nohz_full: str
    realtime: str
    """Texts of files in ``/proc`` and ``/sys``; empty for a file that is missing."""

    @property
    def flavour(self) -> str:
        """Return the one of `tailscope.plan.fields.KERNELS` that is running."""
        if self.realtime == "1" or "PREEMPT_RT" in self.version:
            return "rt"
        return "nohz" if self.nohz_full not in ("", "(null)") else "vanilla"

    @property
    def base(self) -> list[str]:
        """Return the machine's own parameters, without those of the boot loader."""
        words = self.command_line.split()
        marked = [number for number, word in enumerate(words) if word.startswith(_MARK)]
        own = words[: marked[0]] if marked else words
        return [word for word in own if not word.startswith(("BOOT_IMAGE=", "initrd="))]

    def lacks(self, wanted: BootLine) -> list[str]:
        """List the differences from the wanted boot line: expected and actual values."""
        words = self.command_line.split()
        ours = next((word for word in words if word.startswith(_MARK)), None)
        if wanted.is_default:
            return [] if ours is None else [f"expected its default boot, got {ours}"]
        differences = []
        if wanted.release is not None and self.release != wanted.release:
            differences.append(f"expected the kernel {wanted.release}, got {self.release}")
        flavour, _, release = (wanted.kernel or self.flavour).partition("-")
        if self.flavour != flavour or not is_release(self.release, release):
            differences.append(f"expected {wanted.kernel}, got {self.flavour} ({self.release})")
        missing = [word for word in wanted.parameters if word not in words]
        if missing:
            differences.append(f"expected the parameters {' '.join(missing)}")
        elif ours not in (None, wanted.mark):
            differences.append(
                f"expected {wanted.mark}, got {ours}: it was booted for another cell"
            )
        return differences


def boot_line(kernel: str | None, release: str | None, parameters: str) -> BootLine:
    """Parse the parameters that a machine should boot with."""
    words = tuple(dict.fromkeys(parameters.split()))
    for word in words:
        if not _PARAMETER.fullmatch(word) or word.startswith(_MARK):
            raise UsageError(
                f"boot: got {word!r}, expected a parameter such as isolcpus=2,3, of letters, digits"
                " and _ . - = , : / @ % +",
                code="boot-parameter",
            )
    return BootLine(kernel, release, words)


def expanded(kernel: str | None, boot: str | None) -> str:
    """Return all parameters of a kernel and a boot line; ``{cpus}`` is not expanded yet."""
    return " ".join(
        [*([NOHZ] if kernel and kernel.startswith("nohz") else []), *([boot] if boot else [])]
    )
