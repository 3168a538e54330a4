"""A PostgreSQL server of one's own: a private folder, a Unix socket, no TCP."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Server:
    """A server that exists for a block only; who reaches its socket may log in as anybody."""

    def __init__(self, folder: Path, programs: Path, user: str) -> None:
        self.folder, self._programs, self.user = folder, programs, user

    @property
    def data(self) -> Path:
        """Where the server keeps what it has."""
        return self.folder / "data"

    def command(self, program: str, *arguments: str) -> list[str]:
        """How one of the server's programs is called as its user."""
        as_user = [
            "setpriv",
            f"--reuid={self.user}",
            f"--regid={self.user}",
            "--clear-groups",
            "--",
        ]
        called = [str(self._programs / program), *arguments]
        return [*as_user, *called] if os.geteuid() == 0 else called

    def run(self, program: str, *arguments: str) -> bytes:
        """Run one of the server's programs as its user and return what it prints."""
        command = self.command(program, *arguments)
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=self.folder).stdout

    def psql(self, *arguments: str) -> list[str]:
        """How psql is called; it prints unaligned rows."""
        options = ["-qXAt", "-v", "ON_ERROR_STOP=1", "-h", str(self.folder), "-d", "postgres"]
        return self.command("psql", "-U", self.user, *options, *arguments)

    def sql(self, text: str) -> bytes:
        """Run SQL and return unaligned rows."""
        command = self.psql("-c", text)
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=self.folder).stdout

    def control(self, action: str, *arguments: str) -> None:
        """Start or stop the server, or have it read its files again."""
        self.run("pg_ctl", "-D", str(self.data), "-w", *arguments, action)

    def start(self) -> None:
        """Start it without the care for a disk that nobody will read again."""
        options = f"-c listen_addresses= -c unix_socket_directories={self.folder} -c fsync=off"
        self.control("start", "-l", str(self.folder / "log"), "-o", options)


def programs() -> Path | None:
    """The folder of the newest server's programs; None where there is none."""
    versions = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    found = sorted(versions, key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else None


@contextmanager
def server() -> Iterator[Server]:
    """Start a server and stop it, whatever happens."""
    found = programs()
    if found is None:
        raise SystemExit("error: no PostgreSQL server\nhint: apt-get install postgresql")
    user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    folder = Path(tempfile.mkdtemp(prefix="tailscope-pg-"))
    if os.geteuid() == 0:
        entry = pwd.getpwnam(user)
        os.chown(folder, entry.pw_uid, entry.pw_gid)
    running = Server(folder, found, user)
    try:
        running.run(
            "initdb", "-D", str(running.data), "-A", "trust", "-U", user, "--no-sync", "-E", "UTF8"
        )
        try:
            running.start()
            yield running
        finally:
            running.control("stop", "-m", "immediate")
    finally:
        shutil.rmtree(folder)
