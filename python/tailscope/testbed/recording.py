"""A program of the data plane that records until it is asked to end."""

from __future__ import annotations

import queue
import signal
from typing import TYPE_CHECKING, Generic, Self, TypeVar

import msgspec

from tailscope.exceptions import DataplaneError
from tailscope.store.records.base import Section
from tailscope.store.records.messages import ErrorEvent, RecordingReady
from tailscope.testbed.messages import what_is_wrong
from tailscope.testbed.process import find_binary
from tailscope.testbed.waiting import LOOK_S, Countdown, Watchdog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import UnionType

    from tailscope.testbed.places import Place, Process

_READY_S = 10.0
_SHOWN = 200


Result = TypeVar("Result", bound=Section)
Event = TypeVar("Event", bound=Section)


class RecordingProgram(Generic[Result]):
    """A program that reports when it starts to record, killed at the end of its context."""

    _meanwhile: UnionType | type = ErrorEvent
    """The types of what it tells beside start, result and error."""

    def __init__(
        self,
        role: str,
        program: str,
        options: Sequence[str],
        result: type[Result],
        *,
        place: Place,
        cpus: Iterable[int] = (),
    ) -> None:
        self._role, self._program, self._result = role, program, result
        self._command = [str(find_binary()[0]), program, "--", *options, "--die-with-parent"]
        self._place, self._cpus = place, cpus
        self._process: Process | None = None

    def __enter__(self) -> Self:
        self._process = self._place.start(self._role, self._command, cpus=self._cpus)
        try:
            ready = Countdown(_READY_S)
            late = DataplaneError(
                f"{self._role}: not ready within {_READY_S:g} s", code="not-ready"
            )
            self.ready = self._wait_event(RecordingReady, ready.is_over, late)
        except BaseException:
            self._process.kill()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self.process.kill()

    @property
    def process(self) -> Process:
        """Return the process that runs the program."""
        assert self._process is not None, "it is a context"
        return self._process

    def finish(self) -> Result:
        """Stop the program, wait as long as it works, and return its result."""
        self.process.signal(signal.SIGTERM)
        watchdog = Watchdog(self.process.work)
        stuck = DataplaneError(f"{self._role}: given up: {watchdog.why}", code="program-stuck")
        return self._wait_event(self._result, watchdog.is_stuck, stuck)

    def _wait_event(
        self, expected: type[Event], is_over: Callable[[], bool], error: DataplaneError
    ) -> Event:
        while True:
            try:
                line = self.process.next_line(LOOK_S)
            except queue.Empty:
                if is_over():
                    raise error from None
                continue
            if line is None:
                break
            event = self._read(line)
            if isinstance(event, ErrorEvent):
                raise DataplaneError(
                    f"{self._role}: {event.message}", code=event.code, hint=event.hint
                )
            if isinstance(event, expected):
                return event
        words = self.process.last_words()
        how = f"{self.process.how_it_ended()}{f'; it said: {words}' if words else ''}"
        raise DataplaneError(f"{self._role}: {how}", code="program-ended")

    def _read(self, line: str) -> object:
        try:
            known = RecordingReady | self._result | ErrorEvent | self._meanwhile
            return msgspec.json.decode(line, type=known)
        except (msgspec.DecodeError, RecursionError) as error:
            problem = what_is_wrong(error) if isinstance(error, msgspec.ValidationError) else error
            text = f"{self._role}: tailscope-dp {self._program} said: {problem}: {line[:_SHOWN]}"
            raise DataplaneError(text, code="dataplane-message") from None
