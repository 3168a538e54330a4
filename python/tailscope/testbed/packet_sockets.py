"""The program that records two links of the kernel: started, waited for, ended."""

from __future__ import annotations

import queue
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Literal, Self, TypeVar

import msgspec

from tailscope.exceptions import DataplaneError
from tailscope.store.records.base import Section
from tailscope.store.records.dataplane import SocketLinks
from tailscope.testbed.messages import ErrorEvent, what_is_wrong
from tailscope.testbed.process import find_binary

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from tailscope.testbed.places import Place, Process

__all__ = ["SocketReady", "SocketRecorder", "SocketResult"]

_READY_S = 10.0
_END_S = 60.0
_SHOWN = 200


class SocketReady(Section, frozen=True, kw_only=True, tag_field="event", tag="ready"):
    """Frames are recorded from now on."""

    program: Literal["socket"]
    version: str
    pid: int


class SocketResult(Section, frozen=True, kw_only=True, tag_field="event", tag="result"):
    """What was recorded; `partial` says why it is not all."""

    program: Literal["socket"]
    complete: bool
    partial: list[str]
    socket: SocketLinks


Event = TypeVar("Event", SocketReady, SocketResult)

_DECODER: msgspec.json.Decoder[SocketReady | SocketResult | ErrorEvent] = msgspec.json.Decoder(
    SocketReady | SocketResult | ErrorEvent
)


class SocketRecorder:
    """Records what comes in on two links; a context at whose end it is gone.

    Parameters
    ----------
    links : sequence of str
        Before the device, and behind it.
    captures : Path
        The folder for ``pre.pcapng.zst`` and ``post.pcapng.zst``.
    place : Place
        Where it runs.
    by_cards : bool
        Whether cards take times, which have been told so; else the kernel.
    probes : bool
        Whether only the packets of our generator are written.
    cpus : iterable of int
        Where it may run.
    """

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
        options = [f"--pre={pre}", f"--post={post}", f"--captures={captures}", "--die-with-parent"]
        options += ["--hardware"] if by_cards else []
        options += ["--probes"] if probes else []
        self._command = [str(find_binary()[0]), "socket", "--", *options]
        self._place, self._cpus = place, cpus
        self._process: Process | None = None

    def __enter__(self) -> Self:
        self._process = self._place.start("timestamper", self._command, cpus=self._cpus)
        try:
            self._hear(SocketReady, _READY_S)
        except BaseException:
            self._process.kill()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self.process.kill()

    @property
    def process(self) -> Process:
        """What runs it."""
        assert self._process is not None, "it is a context"
        return self._process

    def finish(self) -> SocketResult:
        """End it, and return what it has recorded.

        Raises
        ------
        DataplaneError
            If it says why not, or ends without a result.
        """
        self.process.signal(signal.SIGTERM)
        return self._hear(SocketResult, _END_S)

    def _hear(self, expected: type[Event], timeout_s: float) -> Event:
        deadline_s = time.monotonic() + timeout_s
        with suppress(queue.Empty):
            while (line := self.process.next_line(deadline_s - time.monotonic())) is not None:
                event = _read(line)
                if isinstance(event, ErrorEvent):
                    raise DataplaneError(f"timestamper: {event.message}", hint=event.hint)
                if isinstance(event, expected):
                    return event
            words = self.process.last_words()
            how = f"{self.process.how_it_ended()}{f'; it said: {words}' if words else ''}"
            raise DataplaneError(f"timestamper: {how}")
        raise DataplaneError(f"timestamper: no answer within {timeout_s:g} s")


def _read(line: str) -> SocketReady | SocketResult | ErrorEvent:
    try:
        return _DECODER.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        said = what_is_wrong(error) if isinstance(error, msgspec.ValidationError) else str(error)
        text = f"timestamper: tailscope-dp socket said: {said}: {line[:_SHOWN]}"
        raise DataplaneError(text) from None
