"""The running kernel, and the check that an experiment's kernel is running."""

from __future__ import annotations

import os
import platform
import re
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from tailscope.exceptions import OtherKernelError
from tailscope.plan.fields import KERNELS
from tailscope.units import refuse_unknown

NOHZ = "nohz_full={cpus} isolcpus={cpus} rcu_nocbs={cpus} rcu_nocb_poll"
"""Parameters that keep ticks off CPUs (limbo2022 Table 1, in the kernel's own spelling)."""

_CLOCK_MONOTONIC_COARSE = 6
_BOOT = {
    "vanilla": "boot the distribution's kernel, without nohz_full"
    " (Debian: apt install linux-image-amd64)",
    "rt": "boot a PREEMPT_RT kernel (Debian: apt install linux-image-rt-amd64)",
    "nohz": "boot a kernel with CONFIG_NO_HZ_FULL (Debian's have it) and the parameters "
    + NOHZ.format(cpus="CPUS")
    + ", where CPUS are those that poll",
}


@dataclass(frozen=True)
class Kernel:
    """The properties of a kernel."""

    release: str
    preemption: str
    """One of ``rt``, ``full``, ``voluntary``, ``none``, ``lazy``, and ``unknown``."""
    nohz_full: str
    isolated: str
    """CPUs without ticks while one task runs, and CPUs isolated from the scheduler: lists such as
    ``1,3-5``, empty for none."""
    hz: int
    """Frequency of the tick, in hertz."""
    tick: str
    """One of ``periodic``, ``idle`` (stopped on idle CPUs), and ``full`` (on busy CPUs, too)."""

    @property
    def flavour(self) -> str:
        """Return the one of `KERNELS` that is running."""
        if self.preemption == "rt":
            return "rt"
        return "nohz" if self.nohz_full else "vanilla"

    def record(self) -> dict[str, str | int]:
        """Return the kernel's properties as ``run.json`` stores them."""
        return {"flavour": self.flavour, **asdict(self)}


def running_kernel(root: Path = Path("/")) -> Kernel:
    """Describe the running kernel; a file that cannot be read counts as missing."""
    cpus = root / "sys/devices/system/cpu"
    nohz_full = _list(cpus / "nohz_full")
    return Kernel(
        release=platform.release(),
        preemption=_preemption(root),
        nohz_full=nohz_full,
        isolated=_list(cpus / "isolated"),
        hz=round(1 / time.clock_getres(_CLOCK_MONOTONIC_COARSE)),
        tick="full" if nohz_full else _tick(root),
    )


def check_kernel(wanted: str | None, boot: str | None = None) -> None:
    """Raise `OtherKernelError` unless this machine runs the wanted kernel and parameters."""
    lacking = " ".join(_not_booted_with(boot or ""))
    parameters = f"{lacking.replace('{cpus}', 'CPUS')}, where CPUS are those that poll"
    flavour, _, release = (wanted or "").partition("-")
    if wanted is not None:
        refuse_unknown("--kernel", flavour, KERNELS, "kernel-unknown")
        running = running_kernel()
        if running.flavour != flavour or not is_release(running.release, release):
            also = f" and the parameters {lacking}" if lacking else ""
            then = f", with {parameters}" if lacking else ""
            raise OtherKernelError(
                f"kernel: expected {wanted}{also}, got {running.flavour} ({running.release})",
                code="kernel-flavour",
                hint=f"{_BOOT[flavour]}{then}; or use --platform vm, which boots it in a guest",
            )
    if lacking:
        raise OtherKernelError(
            f"kernel: expected the parameters {lacking}",
            code="kernel-parameters",
            hint=f"boot with {parameters}",
        )


def is_release(release: str, beginning: str) -> bool:
    """Return True if a release begins so, and no number of it goes on.

    >>> is_release("6.1.0-56-amd64", "6.1"), is_release("6.12.9", "6.1"), is_release("6.1", "")
    (True, False, True)
    """
    rest = release.removeprefix(beginning)
    return not beginning or (rest != release and not rest[:1].isalnum())


def _not_booted_with(parameters: str) -> list[str]:
    """List those of `parameters` that this machine was not booted with."""
    booted = _text(Path("/proc/cmdline")).split()
    names = {parameter.partition("=")[0] for parameter in booted}

    def is_there(parameter: str) -> bool:
        name = parameter.partition("=")[0]
        return name in names if "{cpus}" in parameter else parameter in booted

    return [parameter for parameter in parameters.split() if not is_there(parameter)]


def _preemption(root: Path) -> str:
    if _text(root / "sys/kernel/realtime") == "1" or "PREEMPT_RT" in os.uname().version:
        return "rt"
    # The preemption model that was chosen at boot; only root may read it.
    dynamic = re.search(r"\((\w+)\)", _text(root / "sys/kernel/debug/sched/preempt"))
    if dynamic:
        return dynamic[1]
    chosen = re.search(r"\bpreempt=(\w+)", _text(root / "proc/cmdline"))
    if chosen:
        return chosen[1]
    version = os.uname().version
    if "PREEMPT_DYNAMIC" in version:
        return "unknown"
    return "full" if "PREEMPT" in version else "none"


def _tick(root: Path) -> str:
    return "periodic" if re.search(r"\bnohz=off\b", _text(root / "proc/cmdline")) else "idle"


def _list(path: Path) -> str:
    text = _text(path)
    return "" if text == "(null)" else text


def _text(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(errors="replace").strip()
    return ""
