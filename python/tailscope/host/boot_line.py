"""How a machine is to be booted, and whether it was."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from tailscope.exceptions import UsageError
from tailscope.host.kernel import NOHZ

_PARAMETER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*(=[A-Za-z0-9_.,:/@%+=-]*)?")
_MARK = "tailscope.boot="
"""A parameter that no kernel reads: it tells a boot of ours from all others."""


@dataclass(frozen=True)
class BootLine:
    """A kernel and its parameters; without both, the machine's default boot."""

    kernel: str | None
    """One of `tailscope.plan.fields.KERNELS`."""
    release: str | None
    """The release that stands for it; None where the user's command knows."""
    parameters: tuple[str, ...]
    """What the cell asks for, beside the parameters that the machine always has."""

    @property
    def is_default(self) -> bool:
        """Whether the machine boots as it does by itself."""
        return self.kernel is None and not self.parameters

    @property
    def name(self) -> str:
        """The kernel, for a user's command."""
        return self.release or self.kernel or "default"

    @property
    def mark(self) -> str:
        """The parameter that says which boot of ours it is."""
        words = "\n".join([self.name, *self.parameters])
        return _MARK + hashlib.sha256(words.encode()).hexdigest()[:12]

    @property
    def words(self) -> tuple[str, ...]:
        """All that is added to the parameters that the machine always has."""
        return () if self.is_default else (self.mark, *self.parameters)

    def __str__(self) -> str:
        if self.is_default:
            return "the default boot"
        kernel = self.kernel or "default kernel"
        named = f"{kernel} ({self.release})" if self.release else kernel
        return " ".join([named, *self.parameters])


@dataclass(frozen=True)
class Booted:
    """What a machine says of the kernel that it runs."""

    boot_id: str
    """Another one after each boot."""
    release: str
    version: str
    command_line: str
    nohz_full: str
    realtime: str
    """As ``/proc`` and ``/sys`` say; empty where there is none."""

    @property
    def flavour(self) -> str:
        """One of `tailscope.plan.fields.KERNELS`."""
        if self.realtime == "1" or "PREEMPT_RT" in self.version:
            return "rt"
        return "nohz" if self.nohz_full not in ("", "(null)") else "vanilla"

    @property
    def base(self) -> list[str]:
        """The parameters that the machine always has, without the boot loader's own."""
        words = self.command_line.split()
        marked = [number for number, word in enumerate(words) if word.startswith(_MARK)]
        kept = words[: marked[0]] if marked else words
        return [word for word in kept if not word.startswith(("BOOT_IMAGE=", "initrd="))]

    def lacks(self, wanted: BootLine) -> list[str]:
        """What is not as it should be, each as what was expected and what it is."""
        words = self.command_line.split()
        ours = next((word for word in words if word.startswith(_MARK)), None)
        if wanted.is_default:
            return [] if ours is None else [f"expected its default boot, got {ours}"]
        found = []
        if wanted.release is not None and self.release != wanted.release:
            found.append(f"expected the kernel {wanted.release}, got {self.release}")
        if wanted.kernel is not None and self.flavour != wanted.kernel:
            found.append(f"expected {wanted.kernel}, got {self.flavour} ({self.release})")
        missing = [word for word in wanted.parameters if word not in words]
        if missing:
            found.append(f"expected the parameters {' '.join(missing)}")
        elif ours not in (None, wanted.mark):
            found.append(f"expected {wanted.mark}, got {ours}: it was booted for another cell")
        return found


def boot_line(kernel: str | None, release: str | None, parameters: str) -> BootLine:
    """Read how a machine is to be booted."""
    words = tuple(dict.fromkeys(parameters.split()))
    for word in words:
        if not _PARAMETER.fullmatch(word) or word.startswith(_MARK):
            raise UsageError(
                f"boot: got {word!r}, expected a parameter such as isolcpus=2,3, of letters, digits"
                " and _ . - = , : / @ % +"
            )
    return BootLine(kernel, release, words)


def expanded(kernel: str | None, boot: str | None) -> str:
    """All parameters of a kernel and a boot line, ``{cpus}`` being still in them."""
    return " ".join([*([NOHZ] if kernel == "nohz" else []), *([boot] if boot else [])])
