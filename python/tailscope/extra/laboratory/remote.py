"""Commands and files of another machine by ssh; each call connects anew, as machines reboot."""

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
    """How it is called in errors."""

    @abstractmethod
    def run(self, *commands: Sequence[str]) -> list[str]:
        """Run commands one after the other, and return what each says."""

    @abstractmethod
    def contents(self, *paths: str) -> list[str]:
        """What files of the kernel hold; nothing where there is none."""

    @abstractmethod
    def run_last(self, command: Sequence[str]) -> None:
        """Run a command that ends the connection."""

    @abstractmethod
    def read(self, path: str) -> str | None:
        """Read a file; None where there is none."""

    @abstractmethod
    def write(self, path: str, text: str) -> None:
        """Write a file in one step."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """The names of the files in a folder; none where there is none."""

    def error(self, message: str, hint: str | None = None) -> HostError:
        """An error of this machine."""
        return HostError(f"{self.where}: {message}", hint=hint)


class SshMachine(Machine):
    """A machine by ssh, as the user's own would reach it."""

    def __init__(self, role: str, address: str, port: int | None) -> None:
        self.where = f"{role} ({address})"
        self._address, self._port = address, port

    def run(self, *commands: Sequence[str]) -> list[str]:
        """Run commands; each word of them stays one, whatever is in it."""

        async def work(connection: SSHClientConnection) -> list[str]:
            return [await self._said(connection, command) for command in commands]

        return self._do(work, _RUN_S * len(commands))

    def contents(self, *paths: str) -> list[str]:
        """Read files whose size is not known before, by cat."""

        async def work(connection: SSHClientConnection) -> list[str]:
            done = [await connection.run(shlex.join(["cat", path])) for path in paths]
            return [str(each.stdout or "") for each in done]

        return self._do(work, _RUN_S)

    async def _said(self, connection: SSHClientConnection, command: Sequence[str]) -> str:
        import asyncssh

        done = await connection.run(shlex.join(command), errors="replace", stdin=asyncssh.DEVNULL)
        if done.exit_status != 0:
            said = str(done.stderr or "").strip() or f"ended with status {done.exit_status}"
            raise self.error(f"{shlex.join(command)}: {said}")
        return str(done.stdout or "")

    def run_last(self, command: Sequence[str]) -> None:
        """Run a command; that the connection ends with it is no error, that it fails is."""
        import asyncssh

        async def work(connection: SSHClientConnection) -> None:
            try:
                async with asyncio.timeout(_GOES_DOWN_S):
                    done = await connection.run(shlex.join(command), stdin=asyncssh.DEVNULL)
            except (OSError, TimeoutError, asyncssh.Error):
                return
            # Where the machine ended it, there is no status.
            if done.exit_signal is None and done.exit_status:
                said = str(done.stderr or "").strip() or f"ended with status {done.exit_status}"
                raise self.error(f"{shlex.join(command)}: {said}")

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
        """Write a file beside it, then put it into its place."""

        async def work(sftp: SFTPClient) -> None:
            beside = f"{path}.tailscope-new"
            async with sftp.open(beside, "wb") as file:
                await file.write(text.encode(errors="surrogateescape"))
            await sftp.posix_rename(beside, path)

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
                found = await sftp.listdir(folder)
            except asyncssh.SFTPNoSuchFile:
                return []
            return sorted(name for name in found if name not in (".", ".."))

        return self._do_sftp(folder, work)

    def _do_sftp(self, path: str, work: Callable[[SFTPClient], Awaitable[T]]) -> T:
        import asyncssh

        async def with_sftp(connection: SSHClientConnection) -> T:
            try:
                async with connection.start_sftp_client() as sftp:
                    return await work(sftp)
            except asyncssh.SFTPError as error:
                raise self.error(f"{path}: {error.reason}") from None

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
            raise self.error(f"ssh: no answer within {limit_s:g} s") from None
        except (OSError, asyncssh.Error) as error:
            raise self.error(
                f"ssh: {getattr(error, 'reason', None) or str(error) or 'it ended'}"
            ) from None
