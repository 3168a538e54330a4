"""Room on disks, before anything is sent: a measurement that does not fit is lost."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from tailscope.exceptions import TestbedError
from tailscope.units import quantity_text

if TYPE_CHECKING:
    from pathlib import Path

    from tailscope.experiment.packets import Volume

RECORDED_BYTES = 32
"""Size of a packet in the generator's recording."""

_KEPT_BYTES = 8
"""Size of a packet in a run directory, compressed: 7 to 8 were measured."""

_CAPTURED_BYTES = 16
"""Size of a packet's header in a capture, on either side."""

_STAGED_BYTES, _STAGED_KEPT_BYTES = 128, 24
"""Size of a packet that is looked at in the device: four events, and a row of stages."""

_OTHERS_BYTES = 8 << 20
"""Size of everything that does not grow with the number of packets."""


def check_room(volume: Volume, folder: Path, out: Path | None) -> None:
    """See that the recordings of a run will fit, and its directory, where packets are recorded."""
    packets = volume.packets * RECORDED_BYTES
    others = _captures(volume) + volume.staged * _STAGED_BYTES
    recorded = others if out is not None else others + packets
    _check(folder, recorded, "recordings", "set XDG_RUNTIME_DIR or TMPDIR to a folder that has it")
    if out is not None:
        check_room_to_keep(volume, out, recorded=packets)


def check_room_to_keep(volume: Volume, out: Path, *, recorded: int = 0) -> None:
    """See that the directory of a run will fit; as `check_room`."""
    kept = volume.packets * _KEPT_BYTES + _captures(volume) + volume.staged * _STAGED_KEPT_BYTES
    _check(out, kept + recorded + _OTHERS_BYTES, "the run", "make room, or choose another --out")


def _captures(volume: Volume) -> int:
    """The size of the captures of both sides."""
    return int(2 * volume.captured * (volume.frame_bytes + _CAPTURED_BYTES))


def _check(path: Path, needed: int, what: str, hint: str) -> None:
    there = next(each for each in (path.absolute(), *path.absolute().parents) if each.exists())
    free = shutil.disk_usage(there).free
    if free < needed:
        needed_text, free_text = (quantity_text(size, "B") for size in (needed, free))
        raise TestbedError(
            f"{path}: expected room for {what}, about {needed_text}, got {free_text}",
            code="no-room",
            hint=f"{hint}, or send fewer packets",
        )
