"""The ssh session of an agent, which must keep off the polling CPUs."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tailscope.testbed.tasks import parent_of, threads_of

if TYPE_CHECKING:
    from collections.abc import Iterable

_SESSION = re.compile(rb"sshd(-session)?: [^ ]+(@| \[priv\]).*", re.DOTALL)
_MOST_ANCESTORS = 8


def keep_session_on(cpus: Iterable[int]) -> list[int]:
    """Keep the processes of sshd that hold this connection on some CPUs, if allowed.

    They end with the connection, so nothing has to be restored.
    """
    chosen, moved = set(cpus), []
    pid = os.getppid()
    for _ in range(_MOST_ANCESTORS):
        if pid <= 1:
            break
        if _SESSION.fullmatch(_command_of(pid)):
            with suppress(OSError):
                for tid in threads_of(pid):
                    os.sched_setaffinity(tid, chosen)
                moved.append(pid)
        pid = parent_of(pid)
    return moved


def _command_of(pid: int) -> bytes:
    """Return the command line of a process, in which sshd names the user of its connection."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0 ").replace(b"\0", b" ")
    return b""
