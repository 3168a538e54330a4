"""The CPU affinity of kernel tasks."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

from tailscope.host.cpus import parse_cpus


def read_affinity(task: str) -> str:
    """Return the CPUs of a task as a list such as ``1,3-5``."""
    pid, _, name = task.partition("/")
    status = Path("/proc", pid, "status").read_text(errors="replace")
    fields = dict(re.findall(r"^(\w+):\t(.*)$", status, re.MULTILINE))
    if fields["Name"] != name:
        what = f"process {pid}: expected {name}, got {fields['Name']}"
        raise ProcessLookupError(errno.ESRCH, what)
    return str(fields["Cpus_allowed_list"])


def write_affinity(task: str, cpus: str) -> None:
    """Move a task to other CPUs."""
    read_affinity(task)
    os.sched_setaffinity(int(task.partition("/")[0]), parse_cpus(cpus))
