"""What ``run.json`` says about where a run comes from."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tailscope
from tailscope.store.host import fingerprint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailscope.analysis import Figure

__all__ = ["run_info"]


def run_info(plan: Mapping[str, Any], summary: Mapping[str, Figure]) -> dict[str, Any]:
    """Collect everything that ``run.json`` keeps besides checksums.

    Parameters
    ----------
    plan : Mapping
        The resolved options; ``pre`` and ``post`` name the captures.
    summary : Mapping
        Every figure by its flat name.
    """
    return {
        "tailscope_version": tailscope.__version__,
        "python_version": platform.python_version(),
        "plan": dict(plan),
        "inputs": {side: _input(plan[side]) for side in ("pre", "post")},
        "clock": {
            "source": summary["clock"],
            "pre_resolution": summary["pre_resolution"],
            "post_resolution": summary["post_resolution"],
        },
        "floor": {"ns": summary["floor_ns"], "why": "captures carry none"},
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
