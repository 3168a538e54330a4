"""The floor of an instrument: what it measures with nothing in between, on this machine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tailscope.host.fingerprint import fingerprint
from tailscope.host.state import state_folder
from tailscope.store.atomic import write_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tailscope.analysis import Quantile

__all__ = ["FLOOR_GRID", "believed_up_to", "load", "path_of", "save"]

FLOOR_GRID = (0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999)
_TIMES_THE_MEDIAN = 10
_SAME = ("cpu_model", "cpu_count", "kernel", "kernel_command_line")


def believed_up_to(quantiles: list[Quantile]) -> float | None:
    """Say up to which quantile an instrument with this floor can be believed.

    Up to the last one that its samples support and at which the instrument alone takes no more than
    ten times its own median: beyond, what it shows of a device may be itself.

    Parameters
    ----------
    quantiles : list of Quantile
        Of the floor, ascending.

    Returns
    -------
    float or None
        A quantile in [0, 1]; None when not even the first one is.
    """
    believed = None
    for quantile in quantiles:
        within = quantile.value_ns <= _TIMES_THE_MEDIAN * quantiles[0].value_ns
        if not (quantile.supported and within):
            break
        believed = quantile.q
    return believed


def path_of(instrument: str) -> Path:
    """Where the floor of an instrument is kept."""
    return state_folder() / f"floor-{instrument}.json"


def save(instrument: str, floor: Mapping[str, Any]) -> Path:
    """Keep a floor, with the fingerprint of this machine."""
    path = path_of(instrument)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_text(path, json.dumps({**floor, "host": fingerprint()}, indent=2) + "\n")
    return path


def load(instrument: str) -> dict[str, Any] | None:
    """The floor of an instrument; None when it was never measured on a machine like this one."""
    try:
        floor = json.loads(path_of(instrument).read_bytes())
        here = fingerprint()
        same = all(floor["host"][name] == here[name] for name in _SAME)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return floor if same else None
