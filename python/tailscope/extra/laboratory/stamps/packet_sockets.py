"""The program that records two links of the kernel: started, waited for, ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tailscope.store.records.base import Section
from tailscope.store.records.dataplane import SocketLinks
from tailscope.testbed.recording import RecordingProgram

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from tailscope.testbed.places import Place


class SocketResult(Section, frozen=True, kw_only=True, tag_field="event", tag="result"):
    """What was recorded; `partial` says why it is not all."""

    program: Literal["socket"]
    complete: bool
    partial: list[str]
    socket: SocketLinks


class SocketRecorder(RecordingProgram[SocketResult]):
    """Records what comes in on two links; a context at whose end it is gone."""

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
