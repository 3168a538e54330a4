"""Processes and threads, as the kernel lists them; those that end meanwhile are left out."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_STATE, _PARENT, _SESSION, _FLAGS, _USER_TICKS, _SYSTEM_TICKS, _CPU = 0, 1, 3, 6, 11, 12, 36
"""Positions in ``/proc/PID/stat`` after the name."""
_ROOT = 3
"""Position in ``/proc/PID/mountinfo``."""
_KERNEL_THREAD = 0x0020_0000
"""The flag `PF_KTHREAD` of the kernel."""
TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


class ThreadTimes(NamedTuple):
    """The CPU time of a thread."""

    is_kernel: bool
    """True if it is a thread of the kernel."""
    run_ns: int
    """Run time in nanoseconds, with the resolution of a tick, which mostly is 10 ms."""
    cpu: int
    """CPU on which it ran last."""


def processes() -> list[int]:
    """Return the numbers of all processes."""
    return _numbers(Path("/proc"))


def threads_of(pid: int) -> list[int]:
    """Return the numbers of the threads of a process."""
    return _numbers(Path(f"/proc/{pid}/task"))


def comm_of(tid: int) -> str:
    """Return the name of a thread, of which the kernel keeps 15 bytes."""
    return _text(tid, "comm").strip()


def command_of(pid: int) -> str:
    """Return the words of the command line of a process, with NUL behind each."""
    return _text(pid, "cmdline")


def parent_of(pid: int) -> int:
    """Return the parent of a process; 0 if there is none."""
    fields = _text(pid, "stat").rpartition(")")[2].split()
    return int(fields[_PARENT]) if len(fields) > _PARENT else 0


def is_asleep(pid: int) -> bool:
    """Return whether the first thread of a process waits for something."""
    return _text(pid, "stat").rpartition(")")[2].split()[_STATE : _STATE + 1] == ["S"]


def work_of_session(leader: int) -> tuple[int, int]:
    """Return the CPU time in ticks and the bytes written of all processes of a session.

    The bytes cover processes that this user may look at.
    """
    ticks = written = 0
    for pid in processes():
        fields = _text(pid, "stat").rpartition(")")[2].split()
        if len(fields) <= _SYSTEM_TICKS or int(fields[_SESSION]) != leader:
            continue
        ticks += int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])
        for line in _text(pid, "io").splitlines():
            if line.startswith("wchar:"):
                written += int(line.split()[1])
    return ticks, written


def times_of(pid: int, tid: int) -> ThreadTimes | None:
    """Read the times of a thread of a process; None if it is gone."""
    fields = _text(pid, f"task/{tid}/stat").rpartition(")")[2].split()
    if not fields:
        return None
    ran_ticks = int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])
    is_kernel = bool(int(fields[_FLAGS]) & _KERNEL_THREAD)
    return ThreadTimes(is_kernel, ran_ticks * TICK_NS, int(fields[_CPU]))


def status_of(tid: int) -> dict[str, str]:
    """Return the status of a thread by the kernel's names of its fields."""
    pairs = (line.partition(":") for line in _text(tid, "status").splitlines())
    return {name: value.strip() for name, _, value in pairs}


def environment_of(pid: int) -> dict[str, str]:
    """Return the initial environment of a process, as far as this user may look."""
    with suppress(OSError):
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        pairs = (os.fsdecode(entry).partition("=") for entry in entries)
        return {name: value for name, _, value in pairs}
    return {}


def mounted_by(pid: int) -> list[str]:
    """Return what a process has mounted: paths within the file systems that they are of."""
    return [line.split()[_ROOT] for line in _text(pid, "mountinfo").splitlines()]


def _numbers(folder: Path) -> list[int]:
    with suppress(OSError):
        return [int(path.name) for path in folder.iterdir() if path.name.isdecimal()]
    return []


def _text(tid: int, name: str) -> str:
    with suppress(OSError):
        return Path(f"/proc/{tid}/{name}").read_text(errors="replace")
    return ""
