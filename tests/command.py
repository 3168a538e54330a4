"""The installed command."""

from __future__ import annotations

import atexit
import os
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from forked import Server

if TYPE_CHECKING:
    import subprocess

COMMAND = Path(sys.executable).with_name("tailscope")


def run(
    *arguments: object,
    env: dict[str, str] | None = None,
    cwd: Path | str | None = None,
    stdin: int | None = None,
    input: bytes | None = None,  # noqa: A002
    timeout: float = 120,
) -> subprocess.CompletedProcess[str]:
    """Run it with arguments, as a process of its own; options are those of `subprocess.run`."""
    words = [str(argument) for argument in arguments]
    with tempfile.TemporaryFile() as given:
        given.write(input or b"")
        given.seek(0)
        return _server().run(
            words,
            os.environ if env is None else env,
            Path.cwd() if cwd is None else cwd,
            given if stdin is None else stdin,
            timeout,
        )


@cache
def _server() -> Server:
    server = Server()
    atexit.register(server.close)
    return server
