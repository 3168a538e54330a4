"""What dead measurements left behind: their folders, network namespaces, and who lives in those."""

from __future__ import annotations

import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tailscope.testbed.folder import find_leftovers, is_live, owner_of

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["clean"]


def clean(*, dry_run: bool = False) -> Iterator[str]:
    """Remove what dead measurements left behind; those that run are left alone.

    Parameters
    ----------
    dry_run : bool
        Only say what there is.

    Yields
    ------
    str
        Each thing that was removed.
    """
    dead = set()
    for path in find_leftovers():
        dead.add(path.name)
        if not dry_run:
            shutil.rmtree(path)
        yield str(path)
    if os.geteuid() == 0:
        yield from _clean_namespaces(dead, dry_run=dry_run)


def _clean_namespaces(dead: set[str], *, dry_run: bool) -> Iterator[str]:
    """Remove namespaces of `dead` measurements, and empty ones of those whose folder is gone."""
    from pyroute2 import netns

    for name in netns.listnetns():
        owner = owner_of(name)
        if owner is None or (owner not in dead and is_live(owner)):
            continue
        inside = _processes_in(name)
        if inside and owner not in dead:
            # Its folder may be where we do not look: it may run.
            continue
        for process in inside:
            if not dry_run:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            yield f"process {process} in network namespace {name}"
        if not dry_run:
            with suppress(OSError):
                netns.remove(name)
        yield f"network namespace {name}"


def _processes_in(namespace: str) -> list[int]:
    from pyroute2.netns import NETNS_RUN_DIR

    with suppress(OSError):
        here = Path(NETNS_RUN_DIR, namespace).stat()
        return [pid for pid in _processes() if _is_in(pid, here)]
    return []


def _processes() -> Iterator[int]:
    return (int(path.name) for path in Path("/proc").glob("[0-9]*"))


def _is_in(pid: int, namespace: os.stat_result) -> bool:
    with suppress(OSError):
        own = Path(f"/proc/{pid}/ns/net").stat()
        return (own.st_dev, own.st_ino) == (namespace.st_dev, namespace.st_ino)
    return False
