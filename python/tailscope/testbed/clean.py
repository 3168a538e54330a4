"""What dead measurements left behind: their folders, and network namespaces of their names."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from tailscope.testbed.folder import PREFIX, find_leftovers

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
    for leftover in find_leftovers():
        dead.add(leftover.name)
        if not dry_run:
            leftover.remove()
        yield str(leftover.path)
    for namespace in _namespaces(dead):
        if not dry_run:
            from pyroute2 import netns

            with suppress(OSError):
                netns.remove(namespace)
        yield f"network namespace {namespace}"


def _namespaces(dead: set[str]) -> Iterator[str]:
    """Namespaces of dead measurements: root's, and nobody's whose folder is gone."""
    if os.geteuid() != 0:
        return
    from pyroute2 import netns

    from tailscope.testbed.folder import is_live

    for name in netns.listnetns():
        if name.startswith(PREFIX) and (name in dead or not is_live(name)):
            yield name
