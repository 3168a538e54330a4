"""What must hold of logs of clocks, whatever bytes they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuzz.python.files import write_input

from tailscope.extra.witness.doubts import read_log
from tailscope.extra.witness.samples import doubts_of

if TYPE_CHECKING:
    from pathlib import Path

    from fuzz.python.targets import Target

NEAR_NS = 1_795_659_900 * 10**9


def clock_log(content: bytes, folder: Path) -> None:
    """A log of whatever program: its times end in doubt on either side."""
    found = read_log(write_input(folder, "x.log", content), NEAR_NS)
    for samples in found.clocks.values():
        doubts = doubts_of(samples, 100_000, found.resolution_ns) if samples else []
        assert all(doubt.start_ns <= doubt.end_ns for doubt in doubts)


TARGETS: dict[str, Target] = {"clock-log": clock_log}
