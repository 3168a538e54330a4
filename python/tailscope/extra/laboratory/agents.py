"""Machines of a laboratory: on each an agent of ours, which plays a role."""

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
_END_S = 20.0
_ALIVE_EVERY_S = 5
_NOT_FOUND = 127
"""The status of a shell that does not find a program."""
_ANSWER_S = 20.0
_LAST_WORDS_S = 2.0

M = TypeVar("M", bound="AgentMessage")


class _How(TypedDict, total=False):
    """What the user's ssh configuration does not say."""

    username: str
    port: int


@dataclass
class Answers:
    """What an agent said the time is, and when it was asked."""

    asked_ns: list[int] = field(default_factory=list)
    heard_ns: list[int] = field(default_factory=list)
    said_ns: list[int] = field(default_factory=list)
    """When they came and left there, by the agent's."""
    answered_ns: list[int] = field(default_factory=list)
    """When questions left and answers were there, by this machine's monotonic clock."""


class Agent(ABC):
    """An agent on a machine; a context at whose end it has cleaned up and is gone.

    Both sides say what `tailscope.extra.laboratory.protocol` has. When the agent's input ends,
    however that came, it takes down what it has put up.
    """

    def __init__(self, role: Role, where: str) -> None:
        self.role, self.where = role, where
        self._heard: queue.Queue[AgentMessage | HostError | None] = queue.Queue()
        self._errors: list[str] = []
        self.answers = Answers()
        self._hint: str | None = None
        self.bell: queue.SimpleQueue[None] | None = None

    def __enter__(self) -> Self:
        self._open()
        try:
            theirs = self.wait_for(HelloEvent, _CONNECT_S).version
            ours = tailscope.__version__
            if theirs != ours:
                raise self.error(
                    f"expected tailscope {ours}, got {theirs}",
                    "install the same version on all machines",
                )
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self._close()

    def say(self, order: Order) -> None:
        """Tell the agent what to do."""
        self._write(as_line(order))

    def hear(self, timeout_s: float) -> AgentMessage:
        """Wait for the next event."""
        event = self._heard.get(timeout=max(0.0, timeout_s))
        if event is None:
            self._heard.put(None)
            said = " | ".join(self._errors[-5:])
            text = f"the connection ended{f'; it said: {said}' if said else ''}"
            raise self.error(text, self._hint)
        if isinstance(event, HostError):
            raise event
        if isinstance(event, AgentError):
            error = self.error(event.message, event.hint)
            if event.other_kernel:
                raise OtherKernelError(str(error), hint=error.hint)
            raise error
        return event

    def wait_for(self, kind: type[M], timeout_s: float) -> M:
        """Wait for an event of a kind; others are passed over."""
        countdown = Countdown(timeout_s)
        while True:
            with contextlib.suppress(queue.Empty):
                event = self.hear(countdown.pause_s)
                if isinstance(event, kind):
                    return event
            if countdown.is_over():
                name = kind.__struct_config__.tag
                raise self.error(f"no {name} within {timeout_s} s")

    def ask(self, times: int) -> None:
        """Ask what the time is there, one question after the other; nothing else is to be said."""
        for number in range(times):
            asked_ns = time.monotonic_ns()
            self.say(AskOrder(number=number))
            answer = self.wait_for(AnswerEvent, _ANSWER_S)
            # The later this is noted, the wider the bounds: they hold all the same.
            answered_ns = time.monotonic_ns()
            for column, value in (
                (self.answers.asked_ns, asked_ns),
                (self.answers.heard_ns, answer.heard_ns),
                (self.answers.said_ns, answer.said_ns),
                (self.answers.answered_ns, answered_ns),
            ):
                column.append(value)

    def error(self, message: str, hint: str | None = None) -> HostError:
        """An error of this machine."""
        return HostError(f"{self.role} ({self.where}): {message}", hint=hint)

    def fetch(self, remote: TimestampedFile, folder: Path) -> Path:
        """Bring a file back, and check that it is the one."""
        name = Path(remote.path).name
        if name in ("", ".."):
            raise self.error(f"it said: files: expected the path of a file, got {remote.path!r}")
        target = folder / name
        self._copy(remote.path, target)
        with target.open("rb") as file:
            got = hashlib.file_digest(file, "sha256").hexdigest()
        if got != remote.sha256:
            raise self.error(f"{remote.path}: sha256: expected {remote.sha256}, got {got}")
        return target

    def _hear_line(self, line: str) -> None:
        try:
            event = read_message(self.role, line)
        except HostError as error:
            self._put(self.error(str(error)))
            return
        if event is not None:
            self._put(event)
        elif line.strip():
            self._errors.append(line.strip())

    def _gone(self) -> None:
        self._put(None)

    def _put(self, event: AgentMessage | HostError | None) -> None:
        self._heard.put(event)
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
        """End its input, and wait for its end."""


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
        for stream, hear in (
            (self._process.stdout, self._hear_line),
            (self._process.stderr, self._errors.append),
        ):
            assert stream is not None
            threading.Thread(target=self._listen, args=[stream, hear], daemon=True).start()

    def _listen(self, stream: IO[str], hear: Callable[[str], None]) -> None:
        for line in stream:
            hear(line.rstrip("\n"))
        if hear == self._hear_line:
            self._gone()

    def _write(self, line: str) -> None:
        assert self._process is not None and self._process.stdin is not None
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except OSError:
            raise self.error("the connection ended") from None

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
    """An agent on another machine, by ssh as the user's own would reach it."""

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
        """Work for the connection until the end, at which all that still waits is cancelled."""
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._ends.wait())

    async def _connect(self) -> None:
        self._connection = await ssh_connection(self._address, self._port, self.error)
        # The name of a program is one word, whatever is in it.
        command = f"{shlex.quote(self._command)} agent"
        self._process = await self._connection.create_process(command, errors="replace")
        self._tasks = [
            asyncio.ensure_future(self._listen(self._process.stdout, self._hear_line, last=True)),
            asyncio.ensure_future(self._listen(self._process.stderr, self._errors.append)),
        ]

    async def _listen(
        self, stream: AsyncIterable[str], hear: Callable[[str], None], *, last: bool = False
    ) -> None:
        try:
            async for line in stream:
                hear(line.rstrip("\n"))
            if last:
                self._hint = await self._why_not_found()
        finally:
            if last:
                self._gone()

    async def _why_not_found(self) -> str | None:
        """Say where the agent's program was looked for, if it was not found."""
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
            # That the machine is gone is heard at the other end.
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
            raise self.error(f"{remote}: {error}") from None

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
        except Exception:  # noqa: BLE001 - a machine that is gone cannot be told
            if self._connection is not None:
                self._loop.call_soon_threadsafe(self._connection.abort)
        self._loop.call_soon_threadsafe(self._ends.set)
        self._thread.join(_END_S)

    def _wait(self, work: Coroutine[object, None, None], timeout_s: float | None) -> None:
        try:
            asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)
        except TimeoutError:
            raise self.error(f"ssh: no answer within {timeout_s} s") from None


async def ssh_connection(
    address: str, port: int | None, error_of: Callable[[str, str | None], HostError]
) -> SSHClientConnection:
    """Connect to a machine as the user's own ssh would."""
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
        ) from None
    except (OSError, asyncssh.Error) as error:
        reason = getattr(error, "reason", None) or str(error)
        if isinstance(error, socket.gaierror):
            reason = error.strerror
        elif isinstance(error, OSError) and error.errno:
            reason = os.strerror(error.errno)
        raise error_of(
            f"ssh: {reason or 'no answer'}", f"`ssh {address}` has to work without a password"
        ) from None


def agent_on(role: Role, ssh: str | None, *, port: int | None, command: str) -> Agent:
    """An agent on a machine; this one where `ssh` is None."""
    if ssh is None:
        return LocalAgent(role)
    return SshAgent(role, ssh, port=port, command=command)
