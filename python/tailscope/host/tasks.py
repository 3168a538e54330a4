"""The CPUs on which tasks of the kernel may run."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

from tailscope.host.cpus import parse_cpus

__all__ = ["read_affinity", "write_affinity"]


def read_affinity(task: str) -> str:
    """The CPUs of a task as a list.

    Parameters
    ----------
    task : str
        ``PID/NAME``: numbers are given again, so that the name has to fit.

    Raises
    ------
    OSError
        If there is no such task.
    """
    pid, _, name = task.partition("/")
    status = Path("/proc", pid, "status").read_text(errors="replace")
    found = dict(re.findall(r"^(\w+):\t(.*)$", status, re.MULTILINE))
    if found["Name"] != name:
        what = f"process {pid}: expected {name}, got {found['Name']}"
        raise ProcessLookupError(errno.ESRCH, what)
    return str(found["Cpus_allowed_list"])


def write_affinity(task: str, cpus: str) -> None:
    """Move a task to other CPUs.

    Raises
    ------
    OSError
        If there is no such task, or the kernel keeps it where it is.
    """
    read_affinity(task)
    os.sched_setaffinity(int(task.partition("/")[0]), parse_cpus(cpus))
