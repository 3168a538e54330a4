"""Taking the single packets out of a run that is kept for its figures, its tail and its stalls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from tailscope.store import layout
from tailscope.store.atomic import write_text
from tailscope.store.reader import read_info
from tailscope.store.records.base import encode

if TYPE_CHECKING:
    from pathlib import Path


def leave_out_packets(path: Path) -> bool:
    """Remove the single packets of a run; ``run.json`` says so.

    Figures, histograms, the worst packets, stalls and kernel events stay.
    """
    info = read_info(path)
    if layout.LATENCY not in info.files:
        return False
    files = {name: file for name, file in info.files.items() if name != layout.LATENCY}
    left_out = (*(info.left_out or ()), layout.LATENCY)
    # What run.json does not name is not missed: it goes first.
    write_text(path / layout.RUN, encode(replace(info, files=files, left_out=left_out)))
    (path / layout.LATENCY).unlink(missing_ok=True)
    return True
