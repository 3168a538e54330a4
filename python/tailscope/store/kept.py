"""Conclusions kept beside the figures that they were drawn from.

A run directory is never changed. What was concluded from it later lies beside ``run.json``, outside
of its checksums, and names the figures that it is of, so that no report shows it beside others.
"""

from __future__ import annotations

import hashlib
import json
import time
from typing import TYPE_CHECKING, Any

import tailscope
from tailscope.exceptions import RunCorruptError
from tailscope.store import layout
from tailscope.store.atomic import write_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["keep", "kept"]

_ORIGIN = "kept"


def keep(
    path: Path,
    info: Mapping[str, Any],
    name: str,
    content: Mapping[str, Any],
    *,
    command: Sequence[str],
) -> None:
    """Write a conclusion into a run directory; an older one of this name is replaced.

    Parameters
    ----------
    path : Path
        The run directory.
    info : Mapping
        Its ``run.json``.
    name : str
        One of `layout.KEPT`.
    content : Mapping
        As ``--json`` has it.
    command : sequence of str
        What was called.
    """
    origin = {
        "summary_sha256": _figures(info),
        "tailscope_version": tailscope.__version__,
        "command": list(command),
        "written_unix_ns": time.time_ns(),
    }
    record = {**content, _ORIGIN: {**origin, "content_sha256": _digest(content)}}
    write_text(path / name, json.dumps(record, indent=2, allow_nan=False) + "\n")


def kept(path: Path, info: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """Read a conclusion that was kept; None where there is none.

    Parameters
    ----------
    path : Path
        The run directory.
    info : Mapping
        Its ``run.json``.
    name : str
        One of `layout.KEPT`.

    Raises
    ------
    RunCorruptError
        If it is not as it was written, or was drawn from other figures than the run holds.
    """
    file = path / name
    try:
        found = json.loads(file.read_bytes())
        origin = found.pop(_ORIGIN)
        drawn_from, expected = origin["summary_sha256"], origin["content_sha256"]
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunCorruptError(f"{file}: not as it was written: {error!r}") from None
    if (got := _digest(found)) != expected:
        raise RunCorruptError(f"{file}: content: sha256: expected {expected}, got {got}")
    if origin["tailscope_version"] != tailscope.__version__:
        raise RunCorruptError(
            f"{file}: written by tailscope: expected {tailscope.__version__},"
            f" got {origin['tailscope_version']}",
            hint="call again the command that kept it, or remove it",
        )
    if drawn_from != _figures(info):
        raise RunCorruptError(
            f"{file}: drawn from other figures: {layout.SUMMARY}: sha256:"
            f" expected {_figures(info)}, got {drawn_from}",
            hint="call again the command that kept it, or remove it",
        )
    return {**found, _ORIGIN: origin}


def _digest(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _figures(info: Mapping[str, Any]) -> str:
    return str(info["files"][layout.SUMMARY]["sha256"])
