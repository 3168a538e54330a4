"""What is kept for a container outside of its folder: groups of the kernel, and LXC's locks."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tailscope.testbed.folder import owner_of
from tailscope.testbed.removal import remove_tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_GROUPS = Path("/sys/fs/cgroup")
_KINDS = ("lxc.payload.", "lxc.monitor.", "podman.payload.")
_LOCKS = Path("/run/lxc/lock")


def cgroup_version() -> int:
    """The version of the hierarchy in which the kernel assigns CPUs to groups: 1 or 2."""
    try:
        return 2 if "cpuset" in (_GROUPS / "cgroup.controllers").read_text().split() else 1
    except OSError:
        return 1


def hidden_paths(paths: Iterable[Path], folders: Iterable[str]) -> list[Path]:
    """Find the paths that a container would not see, and what they are links to."""
    known = {form for path in paths for form in (path.absolute(), path.resolve())}
    own = [Path("/", name) for name in folders]
    return sorted(path for path in known if any(map(path.is_relative_to, own)))


def container_names() -> set[str]:
    """Names of containers that have groups: those that run, and those that died badly."""
    return {
        group.name.removeprefix(kind)
        for group in _groups()
        for kind in _KINDS
        if group.name.startswith(kind)
    }


def remove_cgroups(name: str) -> bool:
    """Remove the groups of a container that is dead; whether there were any."""
    found = False
    for group in _groups():
        if group.name in {f"{kind}{name}" for kind in _KINDS}:
            for path in reversed(_with_all_within(group)):
                with suppress(FileNotFoundError):
                    path.rmdir()
                    found = True
    return found


def lock_folders() -> Iterator[Path]:
    """Find the folders of LXC's own locks that are of measurements, one for each of these."""
    waiting = [_LOCKS]
    while waiting:
        for path in _folders(waiting.pop()):
            if owner_of(path.name) == path.name:
                yield path
            else:
                waiting.append(path)


def remove_locks(folder: Path) -> None:
    """Remove LXC's locks of a container whose own folder this is, which LXC leaves.

    Folders that other containers may share are left to LXC, which may be about to use them.
    """
    path = Path(f"{_LOCKS}/{folder}")
    with suppress(OSError):
        remove_tree(path)
        for parent in path.parents:
            if any(map(owner_of, parent.parts)):
                parent.rmdir()


def _groups() -> Iterator[Path]:
    """Of the one hierarchy of version 2, or of each controller's in version 1."""
    for group in _folders(_GROUPS):
        yield group
        yield from _folders(group)


def _with_all_within(group: Path) -> list[Path]:
    found = [group]
    for path in found:
        found += _folders(path)
    return found


def _folders(path: Path) -> list[Path]:
    with suppress(OSError), os.scandir(path) as entries:
        return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    return []
