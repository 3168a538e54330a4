"""The program that records two links of the kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailscope.store.records.messages import SocketResult
from tailscope.testbed.recording import RecordingProgram

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from tailscope.testbed.places import Place


class SocketRecorder(RecordingProgram[SocketResult]):
    """A recorder of the frames that arrive at two links, killed at the end of its context."""

    def __init__(
        self,
        links: Sequence[str],
        captures: Path,
        *,
        place: Place,
        by_cards: bool,
        probes: bool = True,
        cpus: Iterable[int] = (),
    ) -> None:
        pre, post = links
        options = [f"--pre={pre}", f"--post={post}", f"--captures={captures}"]
        options += ["--hardware"] if by_cards else []
        options += ["--probes"] if probes else []
        super().__init__("timestamper", "socket", options, SocketResult, place=place, cpus=cpus)
