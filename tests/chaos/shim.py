"""The n-th operation on files goes wrong: the memory that faults.c shares with the processes."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import subprocess
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

_MOST, _NAME = 1 << 14, 248


class Kind(IntEnum):
    """Kinds of operations."""

    OPEN = 1
    CREATE = 2
    WRITE = 3
    SYNC = 4
    RENAME = 5
    REMOVE = 6
    MKDIR = 7
    MAP = 8
    FORK = 9
    SIZE = 10
    LOCK = 11
    MODE = 12


class Action(IntEnum):
    """What becomes of the operation."""

    NOTHING = 0
    FAIL = 1
    SHORT = 2
    KILL = 3
    TORN = 4
    STOP = 5
    STEP = 6


class Operation(NamedTuple):
    """An operation that was counted."""

    kind: Kind
    pid: int
    name: str
    """Path below the folder; empty for a fork."""


_NEEDS_ROOM = {Kind.CREATE, Kind.WRITE, Kind.SYNC, Kind.RENAME, Kind.MKDIR, Kind.SIZE}
_ON_DISK = {*_NEEDS_ROOM, Kind.OPEN, Kind.REMOVE, Kind.MAP, Kind.MODE}


class Fault(NamedTuple):
    """A fault, and the operations that it may hit."""

    name: str
    action: Action
    kinds: frozenset[Kind]
    error: int = 0
    lasts: bool = False
    """Whether all later operations of these kinds fail, too."""

    def suits(self, operation: Operation) -> bool:
        """Whether an operation can go wrong so."""
        return operation.kind in self.kinds


def _fails(
    name: str, error: int, kinds: set[Kind], *, lasts: bool = False, action: Action = Action.FAIL
) -> Fault:
    return Fault(name, action, frozenset(kinds), error, lasts)


_EVERY = set(Kind)
FAULTS = (
    _fails("EIO", errno.EIO, _ON_DISK),
    _fails("ENOSPC", errno.ENOSPC, _NEEDS_ROOM),
    _fails("EDQUOT", errno.EDQUOT, _NEEDS_ROOM - {Kind.SYNC}),
    _fails("EINTR", errno.EINTR, {Kind.OPEN, Kind.CREATE, Kind.WRITE, Kind.SYNC, Kind.LOCK}),
    _fails("EAGAIN", errno.EAGAIN, {Kind.FORK}),
    _fails("ENOMEM", errno.ENOMEM, {Kind.MAP, Kind.FORK, Kind.OPEN}),
    _fails("short write", 0, {Kind.WRITE}, action=Action.SHORT),
    _fails("full disk", errno.ENOSPC, _NEEDS_ROOM, lasts=True),
    _fails("dead disk", errno.EIO, _ON_DISK - {Kind.OPEN}, lasts=True),
    _fails("SIGKILL", 0, _EVERY, action=Action.KILL),
    _fails("torn write", 0, {Kind.WRITE}, action=Action.TORN),
    _fails("SIGSTOP", 0, _EVERY, action=Action.STOP),
    _fails("clock", 0, _EVERY, action=Action.STEP),
)
"""All of them; while a process is stopped, another one does the same."""


class _Record(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_int32),
        ("pid", ctypes.c_int32),
        ("name", ctypes.c_char * _NAME),
    )


class _Control(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int32) for name in ("armed", "action", "error", "lasts", "fired")),
        *((name, ctypes.c_uint32) for name in ("kinds", "at", "count")),
        ("step_ns", ctypes.c_int64),
        ("folder", ctypes.c_char * _NAME),
        ("operations", _Record * _MOST),
    )


class Shim:
    """The memory that is shared with commands."""

    def __init__(self, file: Path) -> None:
        with file.open("r+b") as opened:
            self._control = _Control.from_buffer(mmap.mmap(opened.fileno(), 0))

    @staticmethod
    def environment(folder: Path) -> dict[str, str]:
        """Build the library, and return the variables with which processes load it."""
        here, library = Path(__file__).parent, folder / "faults.so"
        sources = [here / "faults.c", here / "clock.c"]
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", library, *sources], check=True)
        control, clock = folder / "control", folder / "clock"
        control.write_bytes(bytes(ctypes.sizeof(_Control)))
        clock.write_bytes(bytes(8))
        return {
            "LD_PRELOAD": str(library),
            "CHAOS_FAULTS": str(control),
            "CHAOS_CLOCK": str(clock),
        }

    def set(
        self, folder: Path, fault: Fault | None = None, at: int = 0, *, step_ns: int = 0
    ) -> None:
        """Count what is done below a folder; from `arm` on, the operation `at` goes wrong."""
        control = self._control
        control.armed = control.fired = control.count = 0
        control.folder = os.fsencode(folder)
        control.step_ns = step_ns
        control.at = at if fault else 0
        if fault:
            control.action, control.error, control.lasts = fault.action, fault.error, fault.lasts
            control.kinds = sum(1 << kind for kind in fault.kinds)

    def arm(self, *, armed: bool = True) -> None:
        """Begin to count, or stop it."""
        self._control.armed = armed

    @property
    def fired(self) -> int:
        """Operations that went wrong."""
        return int(self._control.fired)

    def operations(self) -> list[Operation]:
        """What was counted."""
        count = min(self._control.count, _MOST)
        return [
            Operation(Kind(each.kind), each.pid, each.name.decode(errors="replace"))
            for each in self._control.operations[:count]
        ]
