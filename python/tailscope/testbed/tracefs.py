"""The kernel's file system of tracing, and private instances in it."""

from __future__ import annotations

import ctypes
import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tailscope.exceptions import TestbedError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["instances", "remove_instance", "tracefs"]

_STANDARD = Path("/sys/kernel/tracing")
_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432
_CMD_CREATE = 6


@contextmanager
def tracefs() -> Iterator[Path]:
    """Find the file system; where nobody has mounted it, mount it for this process alone.

    Yields
    ------
    Path
        Its root.

    Raises
    ------
    TestbedError
        If this is not root, or the kernel has none.
    """
    if os.geteuid() != 0:
        raise TestbedError(
            "kernel events: only root may record them",
            hint="run as root, or without them: --noise stalls",
        )
    if (_STANDARD / "instances").is_dir():
        yield _STANDARD
        return
    mount = _detached()
    try:
        yield Path(f"/proc/self/fd/{mount}")
    finally:
        os.close(mount)


def instances(root: Path) -> list[str]:
    """The names of all instances."""
    with suppress(OSError):
        return sorted(path.name for path in (root / "instances").iterdir())
    return []


def remove_instance(root: Path, name: str) -> None:
    """Stop an instance, and remove it with its buffers.

    Raises
    ------
    OSError
        If somebody reads from it.
    """
    path = root / "instances" / name
    with suppress(OSError):
        (path / "tracing_on").write_text("0")
    path.rmdir()


def _detached() -> int:
    """Mount it nowhere: it goes with the descriptor, however this process ends."""
    libc = ctypes.CDLL(None, use_errno=True)

    def call(number: int, *arguments: object) -> int:
        result: int = libc.syscall(number, *arguments)
        if result < 0:
            reason = os.strerror(ctypes.get_errno())
            raise TestbedError(
                f"kernel events: tracefs cannot be mounted: {reason}",
                hint="boot a kernel with CONFIG_FTRACE, or run without events: --noise stalls",
            )
        return result

    context = call(_FSOPEN, b"tracefs", 0)
    try:
        call(_FSCONFIG, context, _CMD_CREATE, None, None, 0)
        return call(_FSMOUNT, context, 1, 0)
    finally:
        os.close(context)
