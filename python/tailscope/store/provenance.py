"""What ``run.json`` says about where a run comes from."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tailscope
from tailscope.host.fingerprint import fingerprint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailscope.analysis import Figure

__all__ = ["measurement_info", "run_info"]


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
        **_common(plan),
        "inputs": {side: _input(plan[side]) for side in ("pre", "post")},
        "clock": {
            "source": summary["clock"],
            "pre_resolution": summary["pre_resolution"],
            "post_resolution": summary["post_resolution"],
        },
        "floor": None,
    }


def measurement_info(plan: Mapping[str, Any], instrument: Mapping[str, Any]) -> dict[str, Any]:
    """Collect everything that ``run.json`` keeps of a measurement besides checksums.

    Parameters
    ----------
    plan : Mapping
        The resolved options.
    instrument : Mapping
        ``clock``, ``floor``, ``partial``, and under ``instrument`` all else that it says of itself.
    """
    return {**_common(plan), "inputs": {}, **instrument}


def _common(plan: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "tailscope_version": tailscope.__version__,
        "python_version": platform.python_version(),
        "plan": dict(plan),
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
