"""Connections to the agents that play the roles of a laboratory on its machines."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import queue
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self, TypedDict, TypeVar

import tailscope
from tailscope.exceptions import HostError, OtherKernelError
from tailscope.extra.laboratory.protocol import (
    AgentError,
    AnswerEvent,
    AskOrder,
    HelloEvent,
    as_line,
    read_message,
)
from tailscope.testbed.waiting import Countdown

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable, Coroutine

    from asyncssh import SSHClientConnection, SSHClientProcess

    from tailscope.extra.laboratory.protocol import AgentMessage, Order, Role
    from tailscope.store.records.run import TimestampedFile

_CONNECT_S = 20.0
_HELLO_S = 60.0
"""Timeout for an agent's first word, in seconds: a machine that has just booted reads all of Python
from its disk."""
_END_S = 20.0
_ALIVE_EVERY_S = 5
_NOT_FOUND = 127
"""Exit status of a shell that does not find a program."""
_ANSWER_S = 20.0
_LAST_WORDS_S = 2.0

M = TypeVar("M", bound="AgentMessage")


class _How(TypedDict, total=False):
    """Settings that are not in the user's ssh configuration."""

    username: str
    port: int


@dataclass
class Answers:
    """Times of queries for an agent's clock, and of its answers, in nanoseconds."""

    asked_ns: list[int] = field(default_factory=list)
    """Times at which queries left, on this machine's monotonic clock."""
    heard_ns: list[int] = field(default_factory=list)
    """Times at which queries arrived, on the agent's clock."""
    said_ns: list[int] = field(default_factory=list)
    """Times at which answers left, on the agent's clock."""
    answered_ns: list[int] = field(default_factory=list)
    """Times at which answers arrived, on this machine's monotonic clock."""


class Agent(ABC):
    """An agent on a machine, which cleans up and ends with its context.

    Both sides speak `tailscope.extra.laboratory.protocol`. On end of file the agent tears down
    whatever it set up.
    """

    def __init__(self, role: Role, where: str) -> None:
        self.role, self.where = role, where
        self._events: queue.Queue[AgentMessage | HostError | None] = queue.Queue()
        self._errors: list[str] = []
        self.answers = Answers()
        self._hint: str | None = None
        self.bell: queue.SimpleQueue[None] | None = None

    def __enter__(self) -> Self:
        self._open()
        try:
            theirs = self.wait_for(HelloEvent, _HELLO_S).version
            ours = tailscope.__version__
            if theirs != ours:
                raise self.error(
                    f"expected tailscope {ours}, got {theirs}",
                    "install the same version on all machines",
                    code="agent-version",
                )
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self._close()

    def say(self, order: Order) -> None:
        """Send the agent an order."""
        self._write(as_line(order))

    def hear(self, timeout_s: float) -> AgentMessage:
        """Wait for the next event."""
        event = self._events.get(timeout=max(0.0, timeout_s))
        if event is None:
            self._events.put(None)
            words = " | ".join(self._errors[-5:])
            text = f"the connection ended{f'; it said: {words}' if words else ''}"
            raise self.error(text, self._hint, code="connection-ended")
        if isinstance(event, HostError):
            raise event
        if isinstance(event, AgentError):
            error = self.error(event.message, event.hint, code=event.code)
            if event.other_kernel:
                raise OtherKernelError(str(error), code=error.code, hint=error.hint)
            raise error
        return event

    def wait_for(self, kind: type[M], timeout_s: float) -> M:
        """Wait for an event of a kind, and ignore others."""
        countdown = Countdown(timeout_s)
        while True:
            with contextlib.suppress(queue.Empty):
                event = self.hear(countdown.pause_s)
                if isinstance(event, kind):
                    return event
            if countdown.is_over():
                name = kind.__struct_config__.tag
                raise self.error(f"no {name} within {timeout_s} s", code="agent-silent")

    def ask(self, times: int) -> None:
        """Query the agent's clock several times, while the agent sends nothing else."""
        for number in range(times):
            asked_ns = time.monotonic_ns()
            self.say(AskOrder(number=number))
            answer = self.wait_for(AnswerEvent, _ANSWER_S)
            # A late reading only widens the bounds.
            answered_ns = time.monotonic_ns()
            for column, value in (
                (self.answers.asked_ns, asked_ns),
                (self.answers.heard_ns, answer.heard_ns),
                (self.answers.said_ns, answer.said_ns),
                (self.answers.answered_ns, answered_ns),
            ):
                column.append(value)

    def error(self, message: str, hint: str | None = None, code: str = "host") -> HostError:
        """Make an error of this machine."""
        return HostError(f"{self.role} ({self.where}): {message}", code=code, hint=hint)

    def fetch(self, remote: TimestampedFile, folder: Path) -> Path:
        """Copy a file from the machine, and verify its checksum."""
        name = Path(remote.path).name
        if name in ("", ".."):
            raise self.error(
                f"it said: files: expected the path of a file, got {remote.path!r}",
                code="agent-message",
            )
        target = folder / name
        self._copy(remote.path, target)
        with target.open("rb") as file:
            got = hashlib.file_digest(file, "sha256").hexdigest()
        if got != remote.sha256:
            raise self.error(
                f"{remote.path}: sha256: expected {remote.sha256}, got {got}", code="file-changed"
            )
        return target

    def _receive(self, line: str) -> None:
        try:
            event = read_message(self.role, line)
        except HostError as error:
            self._put(self.error(str(error), code=error.code))
            return
        if event is not None:
            self._put(event)
        elif line.strip():
            self._errors.append(line.strip())

    def _gone(self) -> None:
        self._put(None)

    def _put(self, event: AgentMessage | HostError | None) -> None:
        self._events.put(event)
        if self.bell is not None:
            self.bell.put(None)

    @abstractmethod
    def _open(self) -> None: ...

    @abstractmethod
    def _write(self, line: str) -> None: ...

    @abstractmethod
    def _copy(self, remote: str, target: Path) -> None: ...

    @abstractmethod
    def _close(self) -> None:
        """Close the agent's input, and wait for its end."""


class LocalAgent(Agent):
    """An agent on this machine."""

    def __init__(self, role: Role) -> None:
        super().__init__(role, "local")
        self._process: subprocess.Popen[str] | None = None

    def _open(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tailscope", "agent"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        for stream, receive in (
            (self._process.stdout, self._receive),
            (self._process.stderr, self._errors.append),
        ):
            assert stream is not None
            threading.Thread(target=self._listen, args=[stream, receive], daemon=True).start()

    def _listen(self, stream: IO[str], receive: Callable[[str], None]) -> None:
        for line in stream:
            receive(line.rstrip("\n"))
        if receive == self._receive:
            self._gone()

    def _write(self, line: str) -> None:
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except OSError:
            raise self.error("the connection ended", code="connection-ended") from None

    def _copy(self, remote: str, target: Path) -> None:
        shutil.copyfile(remote, target)

    def _close(self) -> None:
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class SshAgent(Agent):
    """An agent on another machine, reached as by the user's own ssh."""

    def __init__(self, role: Role, address: str, *, port: int | None, command: str) -> None:
        super().__init__(role, address)
        self._address, self._port, self._command = address, port, command
        self._loop, self._ends = asyncio.new_event_loop(), asyncio.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._connection: SSHClientConnection | None = None
        self._process: SSHClientProcess[str] | None = None

    def _open(self) -> None:
        self._thread.start()
        try:
            self._wait(self._connect(), _CONNECT_S)
        except BaseException:
            self._close()
            raise

    def _run(self) -> None:
        """Run the event loop until the end, and cancel all tasks that still wait."""
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._ends.wait())

    async def _connect(self) -> None:
        self._connection = await ssh_connection(self._address, self._port, self.error)
        # The path of the program is one word, even with spaces.
        command = f"{shlex.quote(self._command)} agent"
        self._process = await self._connection.create_process(command, errors="replace")
        self._tasks = [
            asyncio.ensure_future(self._listen(self._process.stdout, self._receive, last=True)),
            asyncio.ensure_future(self._listen(self._process.stderr, self._errors.append)),
        ]

    async def _listen(
        self, stream: AsyncIterable[str], receive: Callable[[str], None], *, last: bool = False
    ) -> None:
        try:
            async for line in stream:
                receive(line.rstrip("\n"))
            if last:
                self._hint = await self._why_not_found()
        finally:
            if last:
                self._gone()

    async def _why_not_found(self) -> str | None:
        """Return a hint with the search path if the agent's program was not found."""
        import asyncssh

        assert self._process is not None and self._connection is not None
        with contextlib.suppress(OSError, asyncssh.Error):
            async with asyncio.timeout(_LAST_WORDS_S):
                await self._process.wait_closed()
                if self._process.exit_status == _NOT_FOUND:
                    path = (await self._connection.run("printenv PATH")).stdout
                    return (
                        f"hosts.{self.role}.command: {self._command!r} was not found there; ssh"
                        f" looks for programs in {str(path or '').strip()}"
                    )
        return None

    def _write(self, line: str) -> None:
        def write() -> None:
            assert self._process is not None
            # The reading side reports that the machine is gone.
            with contextlib.suppress(OSError):
                self._process.stdin.write(line)

        self._loop.call_soon_threadsafe(write)

    def _copy(self, remote: str, target: Path) -> None:
        async def get() -> None:
            assert self._connection is not None
            async with self._connection.start_sftp_client() as sftp:
                await sftp.get(remote, str(target))

        import asyncssh

        try:
            self._wait(get(), None)
        except (OSError, asyncssh.Error) as error:
            raise self.error(f"{remote}: {error}", code="copy-failed") from None

    def _close(self) -> None:
        async def end() -> None:
            if self._process is not None:
                self._process.stdin.write_eof()
                await asyncio.wait_for(self._process.wait_closed(), _END_S)
            if self._connection is not None:
                self._connection.close()
                await self._connection.wait_closed()

        try:
            self._wait(end(), _END_S + 5)
        except Exception:  # noqa: BLE001 - the machine may be gone
            if self._connection is not None:
                self._loop.call_soon_threadsafe(self._connection.abort)
        self._loop.call_soon_threadsafe(self._ends.set)
        self._thread.join(_END_S)

    def _wait(self, work: Coroutine[object, None, None], timeout_s: float | None) -> None:
        try:
            asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)
        except TimeoutError:
            raise self.error(f"ssh: no answer within {timeout_s} s", code="ssh") from None


async def ssh_connection(
    address: str, port: int | None, error_of: Callable[[str, str, str], HostError]
) -> SSHClientConnection:
    """Connect to a machine as the user's own ssh would; `error_of` gets text, hint and code."""
    import asyncssh

    user, at, name = address.rpartition("@")
    how: _How = {"username": user} if at else {}
    if port is not None:
        how["port"] = port
    try:
        return await asyncssh.connect(
            name,
            keepalive_interval=_ALIVE_EVERY_S,
            connect_timeout=_CONNECT_S,
            preferred_auth="publickey",
            **how,
        )
    except asyncssh.HostKeyNotVerifiable as error:
        raise error_of(
            f"ssh: {error.reason}",
            f"`ssh {address}` once by hand shows its key, and asks whether to trust it",
            "ssh-host-key",
        ) from None
    except (OSError, asyncssh.Error) as error:
        reason = getattr(error, "reason", None) or str(error)
        if isinstance(error, socket.gaierror):
            reason = error.strerror
        elif isinstance(error, OSError) and error.errno:
            reason = os.strerror(error.errno)
        raise error_of(
            f"ssh: {reason or 'no answer'}",
            f"`ssh {address}` has to work without a password",
            "ssh",
        ) from None


def agent_on(role: Role, ssh: str | None, *, port: int | None, command: str) -> Agent:
    """Return an agent on a machine, which is this one if `ssh` is None."""
    if ssh is None:
        return LocalAgent(role)
    return SshAgent(role, ssh, port=port, command=command)
