"""Who keeps the connection to an agent: it must not work where packets are polled."""

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
    """Keep the processes of sshd that hold this connection on some CPUs, where that is allowed.

    They end with the connection, and nothing is to be taken back.
    """
    chosen, kept = set(cpus), []
    pid = os.getppid()
    for _ in range(_MOST_ANCESTORS):
        if pid <= 1:
            break
        if _SESSION.fullmatch(_command_of(pid)):
            with suppress(OSError):
                for tid in threads_of(pid):
                    os.sched_setaffinity(tid, chosen)
                kept.append(pid)
        pid = parent_of(pid)
    return kept


def _command_of(pid: int) -> bytes:
    """What a process calls itself; sshd writes there whose connection it holds."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0 ").replace(b"\0", b" ")
    return b""
