"""Traces of a container outside its folder: control groups, and LXC's locks."""

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
    """Return the version of the control groups that assign CPUs: 1 or 2."""
    try:
        return 2 if "cpuset" in (_GROUPS / "cgroup.controllers").read_text().split() else 1
    except OSError:
        return 1


def hidden_paths(paths: Iterable[Path], folders: Iterable[str]) -> list[Path]:
    """Return the paths, and their link targets, that a container's own folders hide."""
    forms = {form for path in paths for form in (path.absolute(), path.resolve())}
    own = [Path("/", name) for name in folders]
    return sorted(path for path in forms if any(map(path.is_relative_to, own)))


def container_names() -> set[str]:
    """Return the names of containers that have control groups, running or crashed."""
    return {
        group.name.removeprefix(kind)
        for group in _groups()
        for kind in _KINDS
        if group.name.startswith(kind)
    }


def remove_cgroups(name: str) -> bool:
    """Remove the control groups of a dead container, and return True if there were any."""
    has_removed = False
    for group in _groups():
        if group.name in {f"{kind}{name}" for kind in _KINDS}:
            for path in reversed(_with_all_within(group)):
                with suppress(FileNotFoundError):
                    path.rmdir()
                    has_removed = True
    return has_removed


def lock_folders() -> Iterator[Path]:
    """Find the folders of LXC's locks that belong to measurements."""
    waiting = [_LOCKS]
    while waiting:
        for path in _folders(waiting.pop()):
            if owner_of(path.name) == path.name:
                yield path
            else:
                waiting.append(path)


def remove_locks(folder: Path) -> None:
    """Remove the locks that LXC leaves of a container in this folder.

    Folders that other containers may share are left to LXC, which may be about to use them.
    """
    path = Path(f"{_LOCKS}/{folder}")
    with suppress(OSError):
        remove_tree(path)
        for parent in path.parents:
            if any(map(owner_of, parent.parts)):
                parent.rmdir()


def _groups() -> Iterator[Path]:
    """Find groups of version 2, and those of each controller of version 1."""
    for group in _folders(_GROUPS):
        yield group
        yield from _folders(group)


def _with_all_within(group: Path) -> list[Path]:
    groups = [group]
    for path in groups:
        groups += _folders(path)
    return groups


def _folders(path: Path) -> list[Path]:
    with suppress(OSError), os.scandir(path) as entries:
        return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    return []
