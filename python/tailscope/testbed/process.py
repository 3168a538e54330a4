"""A process of the data plane, from its start to its result."""

from __future__ import annotations

import contextlib
import queue
import signal
import subprocess
import time
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from tailscope.exceptions import DataplaneError
from tailscope.host import remedies
from tailscope.testbed.waiting import LOOK_S, Countdown, Watchdog

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tailscope.store.records.messages import ProgressEvent, ReadyEvent, ResultEvent
    from tailscope.testbed.messages import Program
    from tailscope.testbed.places import Place, Process

_BINARY = Path(__file__).parents[1] / "bin" / "tailscope-dp"
_EAL = ("--no-telemetry", "--log-level=warning")
_READY_S = 30.0
_LAST_WORDS_S = 1.0
_HARMLESS = "Failed to register mp action callback"
"""What the driver of memif says wherever DPDK shares its memory with no other process."""

P = TypeVar("P", bound="ProgressEvent")
R = TypeVar("R", bound="ResultEvent")


def find_binary() -> tuple[Path, str]:
    """Return the path and version of the data plane beside the package."""
    if not _BINARY.is_file():
        raise DataplaneError(
            "the data plane, tailscope-dp, was not built: no DPDK",
            code="dataplane-missing",
            remedy=remedies.DATAPLANE,
        )
    return _BINARY, _version_of(_BINARY, _BINARY.stat().st_mtime_ns)


@lru_cache(maxsize=1)
def _version_of(binary: Path, _changed_ns: int) -> str:
    """Ask a program for its version, once until the file changes."""
    import tailscope._engine as _engine

    try:
        version = subprocess.run(  # noqa: S603
            [binary, "--version"], capture_output=True, text=True, timeout=_READY_S, check=True
        ).stdout.strip()
    except BlockingIOError:  # No further process may be started, whatever it is.
        raise
    except (OSError, subprocess.SubprocessError) as error:
        raise DataplaneError(
            f"tailscope-dp does not start: {error}",
            code="dataplane-broken",
            remedy=remedies.DATAPLANE,
        ) from None
    if version.split()[1:2] != [_engine.VERSION]:
        raise DataplaneError(
            f"tailscope-dp: expected version {_engine.VERSION}, got {version!r}",
            code="dataplane-version",
            remedy=remedies.BUILD,
        )
    return version


class Dataplane(Generic[P, R]):
    """A process of ``tailscope-dp``, killed at the end of its context."""

    def __init__(
        self,
        role: str,
        program: Program[P, R],
        eal: Sequence[str],
        options: Sequence[str],
        *,
        place: Place,
        lcores: Sequence[int],
        housekeeping: Iterable[int] = (),
        pinned: bool = True,
    ) -> None:
        binary, self.version = find_binary()
        self.role = role
        self.command = [
            str(binary),
            program.name,
            _lcores(lcores, () if pinned else {*lcores, *housekeeping}),
            *_EAL,
            *eal,
            "--",
            "--die-with-parent",
            *options,
        ]
        self._program, self._place = program, place
        self._cpus = {*lcores, *housekeeping}
        self._process: Process | None = None
        self.ready: ReadyEvent | None = None
        self.result: R | None = None
        self._refused: DataplaneError | None = None
        self._watchdog: Watchdog | None = None

    def __enter__(self) -> Self:
        self._process = self._place.start(self.role, self.command, cpus=self._cpus, urgent=True)
        return self

    def __exit__(self, *_error: object) -> None:
        self.process.kill()

    @property
    def process(self) -> Process:
        """Return the process that runs the program."""
        assert self._process is not None, "it is a context"
        return self._process

    @property
    def is_running(self) -> bool:
        """Return True if the process still runs."""
        return self.process.is_running

    def wait_ready(self, timeout_s: float = _READY_S) -> None:
        """Wait until the ports are up."""
        countdown = Countdown(timeout_s)
        while self.ready is None:
            with contextlib.suppress(queue.Empty):
                if self.next_event(countdown.pause_s) is None:
                    raise self.failure()
            if self.ready is None and countdown.is_over():
                raise DataplaneError(
                    f"{self.role}: not ready within {timeout_s:g} s{self._last_words()}",
                    code="not-ready",
                )

    def next_event(self, timeout_s: float | None) -> ReadyEvent | P | R | None:
        """Wait for the next event; None when the process has ended."""
        from tailscope.store.records.messages import ErrorEvent, ReadyEvent, ResultEvent

        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = None if deadline_s is None else deadline_s - time.monotonic()
            line = self.process.next_line(left_s)
            if line is None:
                return None
            try:
                event = self._program.read(self.role, line)
            except DataplaneError as error:
                self._refused = error
                raise
            if event is None:
                continue
            if isinstance(event, ErrorEvent):
                # DPDK writes to standard error, which may arrive later.
                self.process.wait_end(_LAST_WORDS_S)
                raise DataplaneError(
                    f"{self.role}: {event.message}{self._last_words()}",
                    code=event.code,
                    hint=event.hint,
                )
            if isinstance(event, ReadyEvent):
                self.ready = event
            elif isinstance(event, ResultEvent):
                self.result = event
            return event

    def stop(self) -> None:
        """Ask the program to end with a result."""
        self.process.signal(signal.SIGTERM)

    def finish(self) -> R | None:
        """Wait for the end as long as the program works, and return its result, if there is one."""
        with contextlib.suppress(DataplaneError):
            while True:
                try:
                    if self.next_event(LOOK_S) is None:
                        break
                except queue.Empty:
                    self.check_progress()
        return self.result

    def check_progress(self) -> None:
        """Check that the program works; call this every `LOOK_S`."""
        if self._watchdog is None:
            self._watchdog = Watchdog(self.process.work)
        if self._watchdog.is_stuck():
            text = f"{self.role}: given up: {self._watchdog.why}"
            self._refused = DataplaneError(text, code="program-stuck")
            raise self._refused

    def failure(self) -> DataplaneError:
        """Make the error that says how the program ended, or which message was wrong."""
        return self._refused or DataplaneError(
            f"{self.role}: {self.process.how_it_ended()}{self._last_words()}", code="program-ended"
        )

    def _last_words(self) -> str:
        lines = self.process.last_words().split(" | ")
        words = " | ".join(line for line in lines if _HARMLESS not in line)
        return f"; DPDK said: {words}" if words else ""


def _lcores(lcores: Sequence[int], anywhere: Iterable[int]) -> str:
    """Return DPDK's option for lcores, which are named by CPUs and run there or anywhere."""
    listed = ",".join(map(str, lcores))
    cpus = ",".join(map(str, sorted(anywhere)))
    return f"--lcores=({listed})@({cpus})" if cpus else f"--lcores={listed}"
