"""Commands and processes inside a guest, by its agent."""

from __future__ import annotations

import base64
import queue
import signal
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tailscope.exceptions import TestbedError
from tailscope.testbed.places import Place, Process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_RUN_S = 60.0
_FOLDER = Path("/tmp")  # noqa: S108 - of a guest that is ours alone


class Guest(Place):
    """The inside of a guest, reached by the port of its agent."""

    def __init__(self, port: Path, ended: Callable[[], str]) -> None:
        self.folder = _FOLDER
        self._ended = ended
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(port))
        self._number = 0
        self._answers: queue.Queue[tuple[int, int, str] | None] = queue.Queue()
        self._processes: dict[int, _GuestProcess] = {}
        self._ready: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def wait_ready(self, timeout_s: float) -> str:
        """Wait until the agent answers, and return the release of the guest's kernel."""
        try:
            release = self._ready.get(timeout=timeout_s)
        except queue.Empty:
            release = None
        if release is None:
            text = f"platform vm: the guest did not boot: {self._ended()}"
            raise TestbedError(text, code="guest-boot")
        return release

    def close(self) -> None:
        """Ask the guest to shut down."""
        try:
            self._send("off")
            self._socket.close()
        except OSError:
            pass

    def run(self, command: Sequence[str], *, timeout_s: float = _RUN_S) -> str:
        """Run a command to its end, and return its output."""
        status, output = self._ask("run", command, timeout_s)
        if status != 0:
            reason = output.strip() or f"ended with status {status}"
            raise TestbedError(f"{' '.join(command)}: {reason}", code="command-failed")
        return output

    def start(
        self,
        name: str,  # noqa: ARG002 - the log stays in the guest
        command: Sequence[str],
        *,
        cpus: Iterable[int] = (),
        merged: bool = False,
        urgent: bool = False,
    ) -> Process:
        """Start a process."""
        mask = f"{sum(1 << cpu for cpu in cpus):x}"
        words = ["taskset", mask, *command] if mask != "0" else list(command)
        if urgent:
            words = ["nice", "-n", "-20", *words]
        if merged:
            # The words are arguments of the shell, not part of its script.
            words = ["sh", "-c", 'exec /bin/env "$@" 2>&1', "sh", *words]
        number = self._next()
        process = _GuestProcess(self, number, merged=merged, urgent=urgent)
        self._processes[number] = process
        self._send("start", number, words)
        return process

    def write(self, name: str, content: str) -> Path:
        """Write a file into the folder."""
        path = self.folder / name
        self._ask("write", [str(path), content], _RUN_S)
        return path

    def read(self, name: str) -> str | None:
        """Read a file of the folder."""
        status, content = self._ask("run", ["cat", str(self.folder / name)], _RUN_S)
        return content if status == 0 else None

    def send_signal(self, number: int, name: str) -> None:
        """Send a signal to a process."""
        self._send("signal", number, [name])

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _ask(self, verb: str, words: Sequence[str], timeout_s: float) -> tuple[int, str]:
        number = self._next()
        self._send(verb, number, words)
        deadline_s = time.monotonic() + timeout_s
        while True:
            try:
                answer = self._answers.get(timeout=max(0.0, deadline_s - time.monotonic()))
            except queue.Empty:
                text = f"{' '.join(words)}: not done within {timeout_s:g} s in the guest"
                raise TestbedError(text, code="command-timeout") from None
            if answer is None:
                self._answers.put(None)
                raise self._gone()
            if answer[0] == number:
                return answer[1:]

    def _gone(self) -> TestbedError:
        return TestbedError(f"platform vm: the guest ended: {self._ended()}", code="guest-ended")

    def _send(self, verb: str, number: int = 0, words: Sequence[str] = ()) -> None:
        encoded = (base64.b64encode(word.encode()).decode() for word in words)
        line = " ".join([verb, str(number), *encoded])
        try:
            self._socket.sendall(f"{line}\n".encode())
        except OSError:
            raise self._gone() from None

    def _listen(self) -> None:
        try:
            with self._socket.makefile("r", encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    self._receive(line.rstrip("\n"))
        except (OSError, ValueError):
            pass
        self._ready.put(None)
        self._answers.put(None)
        for process in self._processes.values():
            process.over("went with the guest", "")

    def _receive(self, line: str) -> None:
        verb, _, rest = line.partition(" ")
        if verb == "ready":
            self._ready.put(rest)
            return
        number, _, rest = rest.partition(" ")
        if not number.isdecimal():
            return
        process = self._processes.get(int(number))
        if verb == "line" and process is not None:
            process.heard(rest)
            return
        status, _, encoded = rest.partition(" ")
        if not status.isdecimal():
            return
        output = base64.b64decode(encoded).decode(errors="replace")
        if verb == "done":
            self._answers.put((int(number), int(status), output))
        elif verb == "end" and process is not None:
            process.over(_how(int(status)), output)


class _GuestProcess(Process):
    """A process of a guest."""

    def __init__(self, guest: Guest, number: int, *, merged: bool, urgent: bool) -> None:
        super().__init__()
        self.urgent = urgent
        self._merged = merged
        self._guest, self._number = guest, number
        self._ended: str | None = None
        self._errors = ""
        self._last_lines: list[str] = []

    @property
    def is_running(self) -> bool:
        return self._ended is None

    def signal(self, number: signal.Signals) -> None:
        if self.is_running:
            self._guest.send_signal(self._number, number.name.removeprefix("SIG"))

    def how_it_ended(self) -> str:
        return self._ended or "is still running"

    def last_words(self) -> str:
        lines = [*self._last_lines, *self._errors.strip().splitlines()]
        return " | ".join(lines[-8:])

    def next_line(self, timeout_s: float | None) -> str | None:
        line = super().next_line(timeout_s)
        if line is not None and self._merged:
            self._last_lines = [*self._last_lines[-7:], line]
        return line

    def kill(self) -> None:
        self.signal(signal.SIGKILL)

    def over(self, how: str, errors: str) -> None:
        """Record that the process has ended."""
        if self._ended is None:
            self._ended, self._errors = how, errors
            self.heard(None)


def _how(status: int) -> str:
    if status > 128:
        return f"was ended by {signal.Signals(status - 128).name}"
    return f"ended with status {status}"
