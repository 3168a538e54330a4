"""Commands without the time that imports take: forked from a process that has imported everything.

Each is a process of its own, with its own arguments, environment and streams, that begins where the
installed command does. Tests of how a command starts and of signals start the installed one.
"""

from __future__ import annotations

import atexit
import faulthandler
import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LIBRARIES = (
    "MLRsearch",  # first: as it is imported it looks at all modules that there are
    *("duckdb", "jinja2", "matplotlib.figure", "pyarrow.csv", "pyarrow.parquet"),
    *("pyroute2", "scipy.interpolate", "scipy.optimize", "scipy.stats"),
    "yaml",
)
"""What commands import when they need it."""

ONE_THREAD = {"JE_ARROW_MALLOC_CONF": "background_thread:false", "OPENBLAS_NUM_THREADS": "1"}
"""Libraries start no threads when they are imported: what these held would stay held in a fork."""

MODES = ("r", "w", "w")
REQUEST_BYTES = 1 << 20


class Server:
    """The process that has imported everything."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, REQUEST_BYTES)
            command = [sys.executable, __file__, str(theirs.fileno())]
            environment = {**os.environ, **ONE_THREAD}
            self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment)

    def close(self) -> None:
        self._socket.close()
        self._process.wait()

    def run(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        folder: Path | str,
        given: IO[bytes] | int,
        timeout_s: float,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end.

        Raises
        ------
        subprocess.TimeoutExpired
            If that takes longer; the command is killed, and shows where it was.
        """
        with ExitStack() as stack:
            output, errors = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(2))
            files = [given if isinstance(given, int) else given.fileno()]
            files += [output.fileno(), errors.fileno()]
            request = {"words": words, "environment": dict(environment), "folder": str(folder)}
            socket.send_fds(self._socket, [json.dumps(request).encode()], files)
            pid = int(self._socket.recv(64))
            self._socket.settimeout(timeout_s)
            try:
                status = int(self._socket.recv(64))
            except TimeoutError:
                os.kill(pid, signal.SIGABRT)
                self._socket.settimeout(None)
                self._socket.recv(64)
                errors.seek(0)
                sys.stderr.write(errors.read().decode(errors="replace"))
                raise subprocess.TimeoutExpired(["tailscope", *words], timeout_s) from None
            self._socket.settimeout(None)
            output.seek(0)
            errors.seek(0)
            said = (output.read().decode(), whole_lines(errors.read().decode()))
            return subprocess.CompletedProcess(["tailscope", *words], status, *said)


def whole_lines(said: str) -> str:
    """Join what a command has broken to fit 120 columns: tests look for values in its lines."""
    return said.replace("\n    ", " ")


def serve(requests: socket.socket) -> None:
    """Fork a command for each request, and answer with its number and then its exit status."""
    import_everything()
    while True:
        request, files, _, _ = socket.recv_fds(requests, REQUEST_BYTES, len(MODES))
        if not request:
            return
        pid = os.fork()
        if pid == 0:
            requests.detach()
            become(files, **json.loads(request))
        for file in files:
            os.close(file)
        requests.send(str(pid).encode())
        _, status = os.waitpid(pid, 0)
        requests.send(str(os.waitstatus_to_exitcode(status)).encode())


def import_everything() -> None:
    """Import what commands may need, as long as this process may be forked."""
    gc.disable()
    import tailscope

    for name in LIBRARIES:
        importlib.import_module(name)
    for found in pkgutil.walk_packages(tailscope.__path__, "tailscope."):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
    compile_templates()
    gc.freeze()
    gc.enable()
    threads = [*Path("/proc/self/task").iterdir()]
    assert len(threads) == 1, "a process with threads must not be forked"


def compile_templates() -> None:
    """Compile what pages are made from, which takes longer than to fill it in."""
    from tailscope.report.page import environment

    for name in environment().list_templates(extensions=["j2"]):
        environment().get_template(name)


def become(
    files: Sequence[int], words: Sequence[str], environment: Mapping[str, str], folder: str
) -> NoReturn:
    """Be the command until its end."""
    from tailscope.cli import main

    for number, file in enumerate(files):
        os.dup2(file, number)
    os.closerange(len(MODES), os.sysconf("SC_OPEN_MAX"))
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["tailscope", *words]
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, mode, closefd=False) for number, mode in enumerate(MODES)
    )
    faulthandler.enable(sys.stderr)
    status = main()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    # Not `sys.exit`: to take down all that was imported would take longer than the command.
    os._exit(status)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
    os._exit(0)
