"""One process of the data plane: started, listened to, ended."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

import tailscope
from tailscope.exceptions import DataplaneError
from tailscope.testbed.cores import staying_on

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["Dataplane", "find_binary"]

_BINARY = Path(tailscope.__file__).with_name("bin") / "tailscope-dp"
_INSTALL = "install DPDK (Debian, Ubuntu: apt install libdpdk-dev), then run `make setup`"
_EAL = ("--no-telemetry", "--log-level=warning")
_READY_S = 30.0
_END_S = 20.0
_LOG_LINES = 8


def find_binary() -> tuple[Path, str]:
    """Find the data plane beside the package.

    Returns
    -------
    path : Path
    version : str
        What it says of itself, DPDK's version included.

    Raises
    ------
    DataplaneError
        If there is none, it does not start, or it is of another version.
    """
    if not _BINARY.is_file():
        raise DataplaneError("the data plane, tailscope-dp, was not built: no DPDK", hint=_INSTALL)
    try:
        said = subprocess.run(  # noqa: S603
            [_BINARY, "--version"], capture_output=True, text=True, timeout=_READY_S, check=True
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError) as error:
        raise DataplaneError(f"tailscope-dp does not start: {error}", hint=_INSTALL) from None
    if said.split()[1:2] != [tailscope.__version__]:
        raise DataplaneError(
            f"tailscope-dp: expected version {tailscope.__version__}, got {said!r}",
            hint="run `make setup`",
        )
    return _BINARY, said


class Dataplane:
    """A process of ``tailscope-dp``; a context at whose end it is gone.

    Parameters
    ----------
    role : str
        What it is called in errors: ``generator`` or ``dut``.
    program : str
        What it runs: ``gen``, ``l2fwd``, ...
    eal : sequence of str
        DPDK's options for memory and ports.
    options : sequence of str
        The program's own options.
    folder : Path
        The private folder of the measurement.
    lcores : sequence of int
        The CPUs that poll.
    housekeeping : iterable of int
        CPUs for its other threads, which share the lcores where there are none.
    command : sequence of str
        What to start it with, such as ``ip netns exec NAME``.
    """

    def __init__(
        self,
        role: str,
        program: str,
        eal: Sequence[str],
        options: Sequence[str],
        *,
        folder: Path,
        lcores: Sequence[int],
        housekeeping: Iterable[int] = (),
        command: Sequence[str] = (),
    ) -> None:
        binary, self.version = find_binary()
        self.role = role
        self._cpus = {*lcores, *housekeeping}
        self._folder = folder
        self._arguments = [
            *command,
            str(binary),
            program,
            "-l",
            ",".join(map(str, lcores)),
            *_EAL,
            *eal,
            "--",
            "--die-with-parent",
            *options,
        ]
        self._log = folder / f"{role}.log"
        self._process: subprocess.Popen[str] | None = None
        self._events: queue.Queue[Mapping[str, Any] | None] = queue.Queue()
        self.ready: Mapping[str, Any] = {}
        self.result: Mapping[str, Any] | None = None
        self.niced = False

    def __enter__(self) -> Self:
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "LANG": "C.UTF-8",
            "RUNTIME_DIRECTORY": str(self._folder),
        }
        with self._log.open("wb") as log, staying_on(self._cpus):
            self._process = subprocess.Popen(  # noqa: S603
                self._arguments,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
                start_new_session=True,
            )
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, self._process.pid, -20)
            self.niced = True
        assert self._process.stdout is not None
        threading.Thread(target=self._listen, args=[self._process.stdout], daemon=True).start()
        return self

    def __exit__(self, *_error: object) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    @property
    def pid(self) -> int:
        """The process's number."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    def wait_ready(self, timeout_s: float = _READY_S) -> None:
        """Wait until the ports are there.

        Raises
        ------
        DataplaneError
            If the process says why not, ends, or says nothing.
        """
        deadline_s = time.monotonic() + timeout_s
        while not self.ready:
            try:
                event = self.next_event(max(0.0, deadline_s - time.monotonic()))
            except queue.Empty:
                raise DataplaneError(
                    f"{self.role}: not ready within {timeout_s:g} s{self._last_words()}"
                ) from None
            if event is None:
                raise self.failure()

    def next_event(self, timeout_s: float) -> Mapping[str, Any] | None:
        """Wait for the next event; None when the process has ended.

        Raises
        ------
        queue.Empty
            If nothing is said in that time.
        DataplaneError
            If the process says that it cannot go on.
        """
        event = self._events.get(timeout=timeout_s)
        if event is None:
            self._events.put(None)
            return None
        if event["event"] == "ready":
            self.ready = event
        elif event["event"] == "result":
            self.result = event
        elif event["event"] == "error":
            raise DataplaneError(
                f"{self.role}: {event['message']}{self._last_words()}", hint=event["hint"]
            )
        return event

    def stop(self) -> None:
        """Ask it to end with a result."""
        if self.is_running:
            os.kill(self.pid, signal.SIGTERM)

    def finish(self, timeout_s: float = _END_S) -> Mapping[str, Any] | None:
        """Wait for its end, and return its result; None when there is none."""
        deadline_s = time.monotonic() + timeout_s
        with contextlib.suppress(queue.Empty, DataplaneError):
            while self.next_event(max(0.0, deadline_s - time.monotonic())) is not None:
                pass
        return self.result

    def failure(self) -> DataplaneError:
        """Say how it ended."""
        assert self._process is not None
        try:
            status = self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            return DataplaneError(f"{self.role}: closed its output and goes on")
        how = (
            f"was ended by {signal.Signals(-status).name}"
            if status < 0
            else f"ended with status {status}"
        )
        return DataplaneError(f"{self.role}: {how}{self._last_words()}")

    def _listen(self, output: IO[str]) -> None:
        for line in output:
            try:
                event = json.loads(line)
            except ValueError:
                event = None
            if isinstance(event, dict) and isinstance(event.get("event"), str):
                self._events.put(event)
        self._events.put(None)

    def _last_words(self) -> str:
        try:
            lines = self._log.read_text(errors="replace").strip().splitlines()[-_LOG_LINES:]
        except OSError:
            return ""
        return f"; DPDK said: {' | '.join(lines)}" if lines else ""
