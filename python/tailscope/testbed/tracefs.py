"""The kernel's file system of tracing, and private instances in it."""

from __future__ import annotations

import ctypes
import fcntl
import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tailscope.exceptions import TestbedError, UsageError
from tailscope.host.cpus import parse_cpus
from tailscope.testbed.rights import Capability, may_write, require

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_WHAT = "kernel events"
_STANDARD = Path("/sys/kernel/tracing")
_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432
_CMD_CREATE = 6
_OSNOISE = "osnoise"
_WORKLOAD = "OSNOISE_WORKLOAD"


@contextmanager
def tracefs() -> Iterator[Path]:
    """Find the file system; where nobody has mounted it, mount it for this process alone."""
    if os.path.ismount(_STANDARD):
        # Whoever was given the instances needs no more.
        if not may_write(_STANDARD / "instances"):
            _require(Capability.DAC_OVERRIDE)
        yield _STANDARD
        return
    _require(Capability.DAC_OVERRIDE, Capability.SYS_ADMIN)
    mount = _detached()
    try:
        yield Path(f"/proc/self/fd/{mount}")
    finally:
        os.close(mount)


def _require(*capabilities: Capability) -> None:
    require(_WHAT, *capabilities, otherwise="without events: --noise stalls", of_machine=True)


def instances(root: Path) -> list[str]:
    """The names of all instances."""
    with suppress(OSError):
        return sorted(path.name for path in (root / "instances").iterdir())
    return []


@contextmanager
def osnoise(root: Path, owner: str, cpus: Iterable[int]) -> Iterator[bool]:
    """Have the kernel's osnoise tracer time what happens on CPUs, without its threads.

    That it starts none is an option of the whole kernel. An instance of the tracer stands for the
    change, from before it is made until it is taken back: `remove_instance` does both.
    """
    if not _has_unused_osnoise(root, set(cpus)):
        yield False
        return
    name = f"{owner}-{_OSNOISE}"
    instance = root / "instances" / name
    instance.mkdir()
    try:
        does = False
        with suppress(OSError):
            (root / "osnoise/options").write_text(f"NO_{_WORKLOAD}")
            (instance / "current_tracer").write_text(_OSNOISE)
            does = True
        yield does
    finally:
        with suppress(OSError):
            remove_instance(root, name)


def _has_unused_osnoise(root: Path, cpus: set[int]) -> bool:
    """Whether it is there, as it is after booting, and idle."""
    try:
        options = (root / "osnoise/options").read_text().split()
        timed = parse_cpus((root / "osnoise/cpus").read_text())
        tracers = [root / "current_tracer", *root.glob("instances/*/current_tracer")]
        running = {tracer.read_text().strip() for tracer in tracers}
    except (OSError, UsageError):
        return False
    return _WORKLOAD in options and cpus <= set(timed) and not running & {_OSNOISE, "timerlat"}


def remove_instance(root: Path, name: str) -> None:
    """Stop an instance, and remove it with its buffers and with what it stands for."""
    path = root / "instances" / name
    with suppress(OSError):
        (path / "tracing_on").write_text("0")
    if name.endswith(f"-{_OSNOISE}"):
        (path / "current_tracer").write_text("nop")
        (root / "osnoise/options").write_text(_WORKLOAD)
    path.rmdir()


def remove_leftover(root: Path, name: str) -> bool:
    """Remove an instance of a dead measurement; whether it was still there.

    One who removes it after another would take back what a third has meanwhile changed: they wait
    for each other.
    """
    folder = os.open(root / "instances", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        if not (root / "instances" / name).is_dir():
            return False
        remove_instance(root, name)
        return True
    except OSError as error:
        # Where it is mounted is nobody's business.
        raise OSError(error.errno, error.strerror) from None
    finally:
        os.close(folder)


def _detached() -> int:
    """Mount it nowhere: it goes with the descriptor, however this process ends."""
    libc = ctypes.CDLL(None, use_errno=True)

    def call(number: int, *arguments: object) -> int:
        result: int = libc.syscall(number, *arguments)
        if result < 0:
            reason = os.strerror(ctypes.get_errno())
            raise TestbedError(
                f"{_WHAT}: tracefs cannot be mounted: {reason}",
                hint="boot a kernel with CONFIG_FTRACE, or run without events: --noise stalls",
            )
        return result

    context = call(_FSOPEN, b"tracefs", 0)
    try:
        call(_FSCONFIG, context, _CMD_CREATE, None, None, 0)
        return call(_FSMOUNT, context, 1, 0)
    finally:
        os.close(context)
