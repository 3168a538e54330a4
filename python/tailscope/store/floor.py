"""The floor of an instrument: what it measures with nothing in between, on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from tailscope.exceptions import RunError
from tailscope.host.state import state_folder
from tailscope.store.atomic import write_text
from tailscope.store.machine import this_host
from tailscope.store.records.base import encode, read_record
from tailscope.store.records.floor import FLOOR_FORMAT, FloorRecord

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tailscope.store.records.floor import FloorQuantile

FLOOR_GRID = (0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999)
_TIMES_THE_MEDIAN = 10
_SAME = ("cpu_model", "cpu_count", "kernel", "kernel_command_line")


def believed_up_to(quantiles: Sequence[FloorQuantile]) -> float | None:
    """Say up to which quantile an instrument with this floor can be believed.

    Up to the last one that its samples support and at which the instrument alone, outside of its
    stalls, takes no more than ten times its own median: beyond, what it shows of a device may be
    itself. How far its stalls reach is told by the bounds of each run.
    """
    believed = None
    for quantile in quantiles:
        within = quantile.least_ns <= _TIMES_THE_MEDIAN * quantiles[0].least_ns
        if not (quantile.supported and within):
            break
        believed = quantile.q
    return believed


def path_of(instrument: str) -> Path:
    """Return the place of an instrument's floor."""
    return state_folder() / f"floor-{instrument}.json"


def save(floor: FloorRecord) -> Path:
    """Keep a floor, with the fingerprint of this machine."""
    path = path_of(floor.instrument)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_text(path, encode(replace(floor, host=this_host())))
    return path


def load(instrument: str) -> FloorRecord | None:
    """The floor of an instrument; None when it was never measured on a machine like this one.

    One that cannot be read is as if it were not there: a run does not fail for it.
    """
    path = path_of(instrument)
    try:
        floor = read_record(path.read_bytes(), FloorRecord, path, newest=FLOOR_FORMAT)
    except (OSError, RunError):
        return None
    here = this_host()
    same = floor.host is not None and all(
        getattr(floor.host, name) == getattr(here, name) for name in _SAME
    )
    return floor if same else None
