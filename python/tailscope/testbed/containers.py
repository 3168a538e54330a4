"""Groups of the kernel that containers of LXC are in."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["container_names", "remove_cgroups"]

_GROUPS = Path("/sys/fs/cgroup")
_KINDS = ("lxc.payload.", "lxc.monitor.")


def container_names() -> set[str]:
    """Names of containers that have groups: those that run, and those that died badly."""
    return {group.name.removeprefix(kind) for kind in _KINDS for group in _groups(f"{kind}*")}


def remove_cgroups(name: str) -> None:
    """Remove the groups of a container that is dead."""
    for kind in _KINDS:
        for group in list(_groups(f"{kind}{name}")):
            for path in sorted(group.glob("**/"), key=lambda path: -len(path.parts)):
                with suppress(OSError):
                    path.rmdir()


def _groups(pattern: str) -> Iterator[Path]:
    """Of the one hierarchy of version 2, or of each controller's in version 1."""
    yield from _GROUPS.glob(pattern)
    yield from _GROUPS.glob(f"*/{pattern}")
