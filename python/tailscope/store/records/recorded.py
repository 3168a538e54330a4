"""``recording/recorded.json``: a measurement whose recordings are kept and not yet analysed."""

from __future__ import annotations

from typing import Final, Literal

from tailscope.store.records.base import Count, Record
from tailscope.store.records.run import RunInfo

RECORDED_FORMAT: Final = 1


class RecordedRun(Record, frozen=True, kw_only=True):
    """The facts that `tailscope runs finish` needs beside the arrays of the recording."""

    format: Literal[1] = RECORDED_FORMAT
    """Version of the format."""
    info: RunInfo
    """The content of `run.json`; the packets that were lost are counted when it is analysed."""
    lost_in_instrument: Count
    """Packets that the instrument counts as lost, those of the warm-up left out."""
    warm_up_lost: Count
    """Packets of the warm-up, and others that were not recorded, that never came back: counters of
    the device have them, too."""
    others_lost: Count = 0
    """Packets of the other direction that never came back: the counters have them, too."""
    came: Count
    """Packets that came back, changed ones and those that could be several included."""
    foreign: Count
    """Frames that came and are none of them."""
    cut_off: bool = False
    """True if packets were recorded until something ended it before its time. Of counts there is
    what was known when it began."""
