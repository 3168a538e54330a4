"""Commands that are carried out with a fault: each is forked, and so are those it meets."""

from __future__ import annotations

import ctypes
import os
import shlex
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from forked import become

from tailscope.store.directory import RunWriter

from .commands import environment, furnish

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .commands import Command
    from .shim import Fault, Operation, Shim

PATIENCE_S = 90
_NEVER_BEGAN = 70
_CHILD_SUBREAPER = 36
_LOOK_S = 0.002


class Try(NamedTuple):
    """A command, its fault and where that is; several at once are counted."""

    command: str
    fault: str
    number: int
    operation: str


class Ended(NamedTuple):
    """What came of a command; its status is None where it did not end."""

    status: int | None
    errors: str
    output: str


class _Started(NamedTuple):
    pid: int
    output: Path
    errors: Path


class Bench:
    """Where commands are tried: a folder with all they need, and one that each works in.

    Attributes
    ----------
    commands : int
        How many were started.
    """

    def __init__(self, folder: Path, shim: Shim) -> None:
        self.workshop, self.work, self._said = (folder / each for each in ("shop", "work", "said"))
        for path in (self.workshop, self._said):
            path.mkdir()
        self.shim = shim
        self.commands = 0
        ctypes.CDLL(None).prctl(_CHILD_SUBREAPER, 1, 0, 0, 0)

    def reference(self, command: Command) -> list[Operation]:
        """Carry out a command without a fault; what it makes stays in the folder of work."""
        furnish(self.workshop, self.work, command)
        self.shim.set(self.work)
        ended = self._ends([self._start(self.work, command.words, counts=True)])[0]
        assert ended.status == command.status, (command.words, ended)
        return self.shim.operations()

    def run(
        self, command: Command, fault: Fault | None = None, at: int = 0, *, step_ns: int = 0
    ) -> Ended:
        """Carry out a command, with a fault."""
        self.shim.set(self.work, fault, at, step_ns=step_ns)
        return self._ends([self._start(self.work, command.words, counts=fault is not None)])[0]

    def again(self, words: str) -> Ended:
        """Carry out a command without a fault, in what is there."""
        self.shim.arm(armed=False)
        return self._ends([self._start(self.work, words)])[0]

    def together(self, command: Command, count: int) -> list[Ended]:
        """Carry out several of a command at once."""
        self.shim.set(self.work)
        return self._ends([self._start(self.work, command.words) for _ in range(count)])

    def beside(self, command: Command, fault: Fault, at: int) -> list[Ended]:
        """Stop a command at an operation until another one has ended."""
        self.shim.set(self.work, fault, at)
        first = self._start(self.work, command.words, counts=True)
        status = self._stopped(first.pid)
        if status is not None:
            return [_ended(first, status)]
        self.shim.arm(armed=False)
        second = self._start(self.work, command.words)
        # It may wait for the first one.
        patience_s = time.monotonic() + 1
        other = self._waited(second.pid, patience_s)
        os.kill(first.pid, signal.SIGCONT)
        ends_s = time.monotonic() + PATIENCE_S
        ended = [_ended(first, self._waited(first.pid, ends_s))]
        ended.append(_ended(second, self._waited(second.pid, ends_s) if other is None else other))
        self._end_others()
        return ended

    def cut_short(self, folder: Path, words: str) -> None:
        """Carry out a measurement, and kill it before its figures are written."""
        pid = os.fork()
        if pid == 0:
            RunWriter.finish = _end_at_once  # type: ignore[method-assign]
            self._become(_Started(0, Path(os.devnull), Path(os.devnull)), folder, words)
        status = self._waited(pid, time.monotonic() + PATIENCE_S)
        assert status == -signal.SIGKILL, status
        self._end_others()

    def _start(self, folder: Path, words: str, *, counts: bool = False) -> _Started:
        self.commands += 1
        number = time.monotonic_ns()
        started = _Started(0, self._said / f"{number}.out", self._said / f"{number}.err")
        pid = os.fork()
        if pid:
            return started._replace(pid=pid)
        try:
            self._become(started, folder, words, counts=counts)
        finally:
            os._exit(_NEVER_BEGAN)

    def _become(
        self, started: _Started, folder: Path, words: str, *, counts: bool = False
    ) -> NoReturn:
        flags = os.O_RDWR | os.O_CREAT
        files = [os.open(os.devnull, os.O_RDONLY)]
        files += [os.open(path, flags, 0o600) for path in (started.output, started.errors)]
        variables = environment(folder, {**os.environ, "TERM": "dumb"})
        if counts:
            self.shim.arm()
        become(files, shlex.split(words), variables, str(folder))

    def _ends(self, started: Iterable[_Started]) -> list[Ended]:
        ends_s = time.monotonic() + PATIENCE_S
        ended = [_ended(each, self._waited(each.pid, ends_s)) for each in started]
        self.shim.arm(armed=False)
        self._end_others()
        return ended

    def _stopped(self, pid: int) -> int | None:
        """Wait until a process has stopped; its exit status if it ends before."""
        _, status = os.waitpid(pid, os.WUNTRACED)
        return None if os.WIFSTOPPED(status) else os.waitstatus_to_exitcode(status)

    def _waited(self, pid: int, ends_s: float) -> int | None:
        while time.monotonic() < ends_s:
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                return os.waitstatus_to_exitcode(status)
            time.sleep(_LOOK_S)
        return None

    def _end_others(self) -> None:
        """Wait for what commands have left; it must end by itself."""
        ends_s = time.monotonic() + PATIENCE_S
        with suppress(ChildProcessError):
            while True:
                pid, _ = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    if time.monotonic() > ends_s:
                        self._kill()
                    time.sleep(_LOOK_S)

    def _kill(self) -> None:
        for path in Path(f"/proc/{os.getpid()}/task").glob("*/children"):
            for pid in path.read_text().split():
                os.kill(int(pid), signal.SIGKILL)


def _end_at_once(*_arguments: object, **_options: object) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def _ended(started: _Started, status: int | None) -> Ended:
    if status is None:
        os.kill(started.pid, signal.SIGKILL)
        os.waitpid(started.pid, 0)
    output, errors = (
        path.read_text(errors="replace") if path.exists() else ""
        for path in (started.output, started.errors)
    )
    for path in (started.output, started.errors):
        path.unlink(missing_ok=True)
    return Ended(status, errors, output)
