"""Commands and files on another machine by ssh, with a new connection for each call."""

from __future__ import annotations

import asyncio
import shlex
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, TypeVar

from tailscope.exceptions import HostError
from tailscope.extra.laboratory.agents import ssh_connection

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from asyncssh import SFTPClient, SSHClientConnection

_RUN_S = 60.0
_GOES_DOWN_S = 15.0

T = TypeVar("T")


class Machine(ABC):
    """Another machine."""

    where: str
    """Name of the machine in errors."""

    @abstractmethod
    def run(self, *commands: Sequence[str]) -> list[str]:
        """Run commands one after the other, and return the output of each."""

    @abstractmethod
    def contents(self, *paths: str) -> list[str]:
        """Return the contents of files of the kernel; empty if there is none."""

    @abstractmethod
    def run_last(self, command: Sequence[str]) -> None:
        """Run a command that ends the connection."""

    @abstractmethod
    def read(self, path: str) -> str | None:
        """Read a file; None if there is none."""

    @abstractmethod
    def write(self, path: str, text: str) -> None:
        """Write a file in one step."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder; none if there is no folder."""

    def error(self, message: str, hint: str | None = None, code: str = "host") -> HostError:
        """Make an error of this machine."""
        return HostError(f"{self.where}: {message}", code=code, hint=hint)


class SshMachine(Machine):
    """A machine reached as by the user's own ssh."""

    def __init__(self, role: str, address: str, port: int | None) -> None:
        self.where = f"{role} ({address})"
        self._address, self._port = address, port

    def run(self, *commands: Sequence[str]) -> list[str]:
        """Run commands, whose words are quoted."""

        async def work(connection: SSHClientConnection) -> list[str]:
            return [await self._output(connection, command) for command in commands]

        return self._do(work, _RUN_S * len(commands))

    def contents(self, *paths: str) -> list[str]:
        """Read files of unknown size by cat."""

        async def work(connection: SSHClientConnection) -> list[str]:
            done = [await connection.run(shlex.join(["cat", path])) for path in paths]
            return [str(process.stdout or "") for process in done]

        return self._do(work, _RUN_S)

    async def _output(self, connection: SSHClientConnection, command: Sequence[str]) -> str:
        import asyncssh

        done = await connection.run(shlex.join(command), errors="replace", stdin=asyncssh.DEVNULL)
        if done.exit_status != 0:
            reason = str(done.stderr or "").strip() or f"ended with status {done.exit_status}"
            raise self.error(f"{shlex.join(command)}: {reason}", code="command-failed")
        return str(done.stdout or "")

    def run_last(self, command: Sequence[str]) -> None:
        """Run a command that may end the connection, and report its failure."""
        import asyncssh

        async def work(connection: SSHClientConnection) -> None:
            try:
                async with asyncio.timeout(_GOES_DOWN_S):
                    done = await connection.run(shlex.join(command), stdin=asyncssh.DEVNULL)
            except (OSError, TimeoutError, asyncssh.Error):
                return
            # If the machine ended the connection, there is no status.
            if done.exit_signal is None and done.exit_status:
                reason = str(done.stderr or "").strip() or f"ended with status {done.exit_status}"
                raise self.error(f"{shlex.join(command)}: {reason}", code="command-failed")

        self._do(work, _RUN_S)

    def read(self, path: str) -> str | None:
        """Read a file by sftp."""
        import asyncssh

        async def work(sftp: SFTPClient) -> str | None:
            try:
                async with sftp.open(path, "rb") as file:
                    content: bytes = await file.read()
                    return content.decode(errors="surrogateescape")
            except asyncssh.SFTPNoSuchFile:
                return None

        return self._do_sftp(path, work)

    def write(self, path: str, text: str) -> None:
        """Write a new file, and rename it into its place."""

        async def work(sftp: SFTPClient) -> None:
            new = f"{path}.tailscope-new"
            async with sftp.open(new, "wb") as file:
                await file.write(text.encode(errors="surrogateescape"))
            await sftp.posix_rename(new, path)

        self._do_sftp(path, work)

    def remove(self, path: str) -> None:
        """Remove a file by sftp."""
        import asyncssh

        async def work(sftp: SFTPClient) -> None:
            try:
                await sftp.remove(path)
            except asyncssh.SFTPNoSuchFile:
                return

        self._do_sftp(path, work)

    def names(self, folder: str) -> list[str]:
        """List a folder by sftp."""
        import asyncssh

        async def work(sftp: SFTPClient) -> list[str]:
            try:
                listed = await sftp.listdir(folder)
            except asyncssh.SFTPNoSuchFile:
                return []
            return sorted(name for name in listed if name not in (".", ".."))

        return self._do_sftp(folder, work)

    def _do_sftp(self, path: str, work: Callable[[SFTPClient], Awaitable[T]]) -> T:
        import asyncssh

        async def with_sftp(connection: SSHClientConnection) -> T:
            try:
                async with connection.start_sftp_client() as sftp:
                    return await work(sftp)
            except asyncssh.SFTPError as error:
                raise self.error(f"{path}: {error.reason}", code="remote-file") from None

        return self._do(with_sftp, _RUN_S)

    def _do(self, work: Callable[[SSHClientConnection], Awaitable[T]], limit_s: float) -> T:
        import asyncssh

        async def connected() -> T:
            async with asyncio.timeout(limit_s):
                connection = await ssh_connection(self._address, self._port, self.error)
                try:
                    return await work(connection)
                finally:
                    connection.abort()

        try:
            return asyncio.run(connected())
        except TimeoutError:
            raise self.error(f"ssh: no answer within {limit_s:g} s", code="ssh") from None
        except (OSError, asyncssh.Error) as error:
            reason = getattr(error, "reason", None) or str(error) or "it ended"
            raise self.error(f"ssh: {reason}", code="ssh") from None
