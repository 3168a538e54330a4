"""Places where commands run: this machine, its namespaces and containers, and guests."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import threading
from abc import ABC, abstractmethod
from typing import IO, TYPE_CHECKING, Self

from tailscope.exceptions import TestbedError
from tailscope.testbed.cores import staying_on
from tailscope.testbed.programs import search_path, which
from tailscope.testbed.tasks import work_of_session
from tailscope.testbed.waiting import Countdown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

MARK = "TAILSCOPE_MEASUREMENT"
"""Environment variable that marks processes of a measurement by the name of its folder."""

FOLDER = "RUNTIME_DIRECTORY"
"""Environment variable with the private folder of these processes, which DPDK reads, too."""

_RUN_S = 30.0
_URGENT = -20
_LOG_LINES = 8


class Process(ABC):
    """A process in a place, killed at the end of its context.

    `next_line` returns its standard output.
    """

    def __init__(self) -> None:
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._line_count = 0
        self.urgent = False
        self.bell: queue.SimpleQueue[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.kill()

    def heard(self, line: str | None) -> None:
        """Take a line of output; None at the end of the output."""
        self._line_count += 1
        self._lines.put(line)
        if self.bell is not None:
            self.bell.put(None)

    def next_line(self, timeout_s: float | None) -> str | None:
        """Wait for the next line; None when the process has ended."""
        line = self._lines.get(timeout=None if timeout_s is None else max(0.0, timeout_s))
        if line is None:
            self._lines.put(None)
        return line

    def wait_end(self, timeout_s: float) -> bool:
        """Wait for the end of the output, and return True if it came in time."""
        countdown = Countdown(timeout_s)
        while True:
            with contextlib.suppress(queue.Empty):
                if self.next_line(countdown.pause_s) is None:
                    return True
            if countdown.is_over():
                return False

    def work(self) -> tuple[int, ...]:
        """Return counts that grow as long as the process works."""
        return (self._line_count,)

    @property
    @abstractmethod
    def is_running(self) -> bool:
        """Return True if the process still runs."""

    @abstractmethod
    def signal(self, number: signal.Signals) -> None:
        """Send the process a signal, if it still runs."""

    @abstractmethod
    def how_it_ended(self) -> str:
        """Return how the process ended, such as ``ended with status 1``."""

    @abstractmethod
    def last_words(self) -> str:
        """Return the last lines of standard error, or of both outputs if they are merged."""

    @abstractmethod
    def kill(self) -> None:
        """Kill the process, and wait for its end."""


class Place(ABC):
    """A place for commands and files of a measurement."""

    folder: Path
    """Private folder, as processes in the place see it."""

    @abstractmethod
    def run(self, command: Sequence[str], *, timeout_s: float = _RUN_S) -> str:
        """Run a command to its end, and return its output."""

    @abstractmethod
    def start(
        self,
        name: str,
        command: Sequence[str],
        *,
        cpus: Iterable[int] = (),
        merged: bool = False,
        urgent: bool = False,
    ) -> Process:
        """Start a process."""

    @abstractmethod
    def write(self, name: str, content: str) -> Path:
        """Write a file into the folder, and return its path in the place."""

    @abstractmethod
    def read(self, name: str) -> str | None:
        """Read a file of the folder; None if there is none."""


class Here(Place):
    """A place on this machine, perhaps in a namespace or container.

    Its processes are killed when their parent ends, whatever they block or ignore. A container, and
    what is asked to stop through a parent that entered one, is ended by SIGTERM.
    """

    def __init__(
        self,
        folder: Path,
        command: Sequence[str] = (),
        *,
        mark: str = "",
        ended_by: signal.Signals = signal.SIGKILL,
    ) -> None:
        self.folder, self._ended_by = folder, ended_by
        self.command = tuple(command)
        self.ran: list[int] = []
        self._mark = mark or folder.name

    def run(self, command: Sequence[str], *, timeout_s: float = _RUN_S) -> str:
        """Run a command to its end, and return its output."""
        try:
            process = subprocess.Popen(  # noqa: S603
                [*self.command, *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env=self._environment(),
            )
        except FileNotFoundError as error:
            raise TestbedError(f"no program {error.filename}", code="no-program") from None
        self.ran.append(process.pid)
        with process:
            try:
                output, errors = process.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
                text = f"{' '.join(command)}: not done within {timeout_s:g} s"
                raise TestbedError(text, code="command-timeout") from None
            except BaseException:
                process.kill()
                raise
        if process.returncode != 0:
            reason = (errors or output).strip() or f"ended with status {process.returncode}"
            raise TestbedError(f"{' '.join(command)}: {reason}", code="command-failed")
        return output

    def start(
        self,
        name: str,
        command: Sequence[str],
        *,
        cpus: Iterable[int] = (),
        merged: bool = False,
        urgent: bool = False,
    ) -> Process:
        """Start a process, which ends with this one."""
        has_setpriv = which("setpriv") is not None
        # The program that enters a container stays outside of it, as the parent.
        outside = (*_ended(signal.SIGKILL, has_setpriv), *self.command) if self.command else ()
        return Child(
            [*outside, *_ended(self._ended_by, has_setpriv), *command],
            log=self.folder / f"{name}.log",
            cpus=set(cpus) or os.sched_getaffinity(0),
            environment=self._environment(),
            merged=merged,
            urgent=urgent,
        )

    def write(self, name: str, content: str) -> Path:
        """Write a file into the folder."""
        path = self.folder / name
        path.write_text(content)
        return path

    def read(self, name: str) -> str | None:
        """Read a file of the folder."""
        try:
            return (self.folder / name).read_text(errors="replace")
        except FileNotFoundError:
            return None

    def _environment(self) -> Mapping[str, str]:
        return {
            "PATH": search_path(),
            "LANG": "C.UTF-8",
            FOLDER: str(self.folder),
            MARK: self._mark,
        }


def _ended(by: signal.Signals, has_setpriv: bool) -> Sequence[str]:
    """Return the words before a command that end it with its parent."""
    return ("setpriv", f"--pdeathsig={by.name}") if has_setpriv else ()


class Child(Process):
    """A process of this machine."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        cpus: Iterable[int],
        environment: Mapping[str, str],
        merged: bool,
        urgent: bool,
    ) -> None:
        super().__init__()
        self._log = log
        with log.open("wb") as errors, staying_on(cpus):
            try:
                self._process = subprocess.Popen(  # noqa: S603
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT if merged else errors,
                    text=True,
                    errors="replace",
                    env=environment,
                    start_new_session=True,
                )
            except FileNotFoundError as error:
                raise TestbedError(f"no program {error.filename}", code="no-program") from None
        if urgent:
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, self._process.pid, _URGENT)
                self.urgent = True
        assert self._process.stdout is not None
        listener = [self._process.stdout, merged]
        threading.Thread(target=self._listen, args=listener, daemon=True).start()

    @property
    def pid(self) -> int:
        """Return the number of the process."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Return True if the process still runs."""
        return self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        """Send the process a signal."""
        self._process.send_signal(number)

    def work(self) -> tuple[int, ...]:
        """Return lines, CPU time and bytes written of the process and of its children."""
        return (*super().work(), *work_of_session(self.pid))

    def how_it_ended(self) -> str:
        """Return how the process ended."""
        try:
            status = self._process.wait(_RUN_S)
        except subprocess.TimeoutExpired:
            return "closed its output and is still running"
        if status < 0:
            return f"was ended by {signal.Signals(-status).name}"
        return f"ended with status {status}"

    def last_words(self) -> str:
        """Return the last lines of the log."""
        try:
            lines = self._log.read_text(errors="replace").strip().splitlines()
        except OSError:
            return ""
        return " | ".join(lines[-_LOG_LINES:])

    def kill(self) -> None:
        """Kill the process and its session, and wait for its end."""
        if self.is_running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _listen(self, output: IO[str], merged: bool) -> None:
        with self._log.open("a") if merged else contextlib.nullcontext() as log:
            for line in output:
                if log is not None:
                    log.write(line)
                    log.flush()
                self.heard(line.rstrip("\n"))
        self.heard(None)
