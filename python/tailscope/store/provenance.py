"""What ``run.json`` says about where a run comes from."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tailscope
from tailscope.store.host import fingerprint

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["run_info"]


def run_info(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Collect everything that ``run.json`` keeps besides checksums.

    Parameters
    ----------
    plan : Mapping
        The resolved options; ``pre`` and ``post`` name the captures.
    """
    return {
        "tailscope_version": tailscope.__version__,
        "python_version": platform.python_version(),
        "plan": dict(plan),
        "inputs": {side: _input(plan[side]) for side in ("pre", "post")},
        "clock": {"source": "capture-file"},
        "floor": {"ns": None, "why": "captures carry none"},
        "host": fingerprint(),
    }


def _input(name: str) -> dict[str, str | int | None]:
    if name == "-":
        return {"file": name, "size_bytes": None, "modified_unix_ns": None}
    status = Path(name).stat()
    return {
        "file": str(Path(name).resolve()),
        "size_bytes": status.st_size,
        "modified_unix_ns": status.st_mtime_ns,
    }
