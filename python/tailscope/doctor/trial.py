"""Trials of single things: each is used for a moment, or at least started."""

from __future__ import annotations

import fcntl
import os
import subprocess
import tempfile
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from tailscope.exceptions import TestbedError, said
from tailscope.host import remedies
from tailscope.store.records.doctor import Finding
from tailscope.testbed.programs import find_program

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tailscope.registry import Extra
    from tailscope.store.records.doctor import State

    Trial: TypeAlias = Callable[[], tuple[State, str | None]]

_START_S = 3.0
_BROKEN = ("error while loading shared libraries", "symbol lookup error")
"""Messages of the dynamic linker, which has started no program."""
_KVM = Path("/dev/kvm")
_KVM_GET_API_VERSION, _KVM_CREATE_VM = 0xAE00, 0xAE01
_KVM_API = 12


def examined(name: str, about: str, trial: Trial, what: str = "") -> Finding:
    """Make a trial, and say what came of it; `what` is what errors begin with."""
    try:
        state, detail = trial()
    except TestbedError as error:
        detail, remedy = str(error).removeprefix(f"{what}: "), error.remedy or error.hint
        return Finding(name=name, about=about, state="missing", detail=detail, remedy=remedy)
    except OSError as error:
        return Finding(name=name, about=about, state="missing", detail=said(error), remedy=None)
    return Finding(name=name, about=about, state=state, detail=detail, remedy=None)


def start_programs(what: str, programs: Mapping[str, str]) -> None:
    """Start each program; raise an error for one that is missing or does not start."""
    for program, package in programs.items():
        path = find_program(what, program, package)
        if (why_not := _refusal(path)) is not None:
            raise TestbedError(
                f"{what}: {program} does not start: {why_not}",
                code="program-broken",
                remedy=remedies.package(package),
            )


@cache
def _refusal(path: Path) -> str | None:
    """Return why a program does not start; None if it does, whatever it says to ``--version``.

    What a program keeps while it runs, as podman does even then, goes where it is removed.
    """
    try:
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(  # noqa: S603
                [path, "--version"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_START_S,
                check=False,
                env={**os.environ, "XDG_RUNTIME_DIR": folder},
            )
    except subprocess.TimeoutExpired:
        return None
    except OSError as error:
        return error.strerror
    if done.returncode < 0:
        return f"signal {-done.returncode}"
    lines = done.stderr.splitlines()
    return next((line for line in lines if any(words in line for words in _BROKEN)), None)


def kvm() -> tuple[State, str | None]:
    """Make an empty virtual machine; whether a guest boots in one, its first guest finds out."""
    try:
        device = os.open(_KVM, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise TestbedError(said(error), code="no-kvm", remedy=remedies.KVM) from None
    try:
        version = fcntl.ioctl(device, _KVM_GET_API_VERSION)
        if version != _KVM_API:
            raise TestbedError(f"expected API {_KVM_API}, got {version}", code="no-kvm")
        os.close(fcntl.ioctl(device, _KVM_CREATE_VM))
    except OSError as error:
        raise TestbedError(said(error), code="no-kvm", remedy=remedies.KVM) from None
    finally:
        os.close(device)
    return "tried", "the first guest finds out whether it boots"


def hugepages() -> tuple[State, str | None]:
    """Count the hugepages that DPDK could take."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    sizes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    free = sizes.get("HugePages_Free", 0)
    if not free:
        raise TestbedError(
            "none are free: DPDK takes ordinary pages",
            code="no-hugepages",
            remedy=remedies.HUGEPAGES,
        )
    return "found", f"{free} of {sizes['Hugepagesize'] // 1024} MiB free"


def packages(needed: Extra) -> tuple[State, str | None]:
    """Ask which versions of its packages are installed."""
    versions = []
    for package in dict.fromkeys(needed.packages.values()):
        name = package.partition("[")[0]
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            raise TestbedError(
                f"{name} is not installed",
                code="not-installed",
                remedy=needed.remedy,
            ) from None
    return "found", ", ".join(versions)
