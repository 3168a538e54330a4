"""Room on disks, before anything is sent: a measurement that does not fit is lost."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from tailscope.exceptions import TestbedError
from tailscope.experiment.run.packets import mean_size_bytes, replayed
from tailscope.units import quantity_text

if TYPE_CHECKING:
    from tailscope.experiment.plan import RunPlan

_RECORDED_BYTES = 32
"""Of a packet, in the generator's recording."""

_KEPT_BYTES = 8
"""Of a packet in a run directory, compressed: 7 to 8 were measured."""

_CAPTURED_BYTES = 16
"""Of a packet's header in a capture, on either side."""

_STAGED_BYTES, _STAGED_KEPT_BYTES = 128, 24
"""Of a packet that is looked at in the device: four events, and its row of ``stages.parquet``."""

_OTHERS_BYTES = 8 << 20
"""Of everything that does not grow with the number of packets."""


def check_room(plan: RunPlan, folder: Path, out: Path | None) -> None:
    """See that the recordings of a run will fit, and its directory."""
    packets, captured, staged = _sizes(plan)
    recorded = packets * _RECORDED_BYTES + captured + staged * _STAGED_BYTES
    _check(folder, recorded, "recordings", "set XDG_RUNTIME_DIR or TMPDIR to a folder that has it")
    if out is not None:
        check_room_to_keep(plan, out)


def check_room_to_keep(plan: RunPlan, out: Path) -> None:
    """See that the directory of a run will fit; as `check_room`."""
    packets, captured, staged = _sizes(plan)
    kept = packets * _KEPT_BYTES + captured + staged * _STAGED_KEPT_BYTES + _OTHERS_BYTES
    _check(out, kept, "the run", "make room, or choose another --out")


def _sizes(plan: RunPlan) -> tuple[int, int, int]:
    """The number of packets, the size of their captures, and how many stages are recorded of."""
    packets, frame_bytes = _sent(plan)
    captured = int(2 * packets * (frame_bytes + _CAPTURED_BYTES)) if plan.captures else 0
    staged = 0 if plan.stages == "off" else packets // plan.stages_every
    return packets, captured, staged


def _sent(plan: RunPlan) -> tuple[int, float]:
    """How many packets there are in all directions, and the mean size of their frames."""
    if plan.replay is not None:
        found = replayed(Path(plan.replay))
        return found.packets * plan.loaded, Path(plan.replay).stat().st_size / max(1, found.packets)
    packets = plan.rate_pps * plan.duration_ns // 1_000_000_000 * plan.runs
    return packets, mean_size_bytes(plan)


def _check(path: Path, needed: int, what: str, hint: str) -> None:
    there = next(each for each in (path.absolute(), *path.absolute().parents) if each.exists())
    free = shutil.disk_usage(there).free
    if free < needed:
        needed_text, free_text = (quantity_text(size, "B") for size in (needed, free))
        raise TestbedError(
            f"{path}: expected room for {what}, about {needed_text}, got {free_text}",
            hint=f"{hint}, or send fewer packets",
        )
