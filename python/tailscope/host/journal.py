"""The journal of a machine's settings from before they were changed.

One file of JSON lines: whose it is, then a line for each change, synced before the change is made.
So what a crash may tear is a last line behind which no change was made. Each line has its number
and a checksum: anything else that does not fit is damage.

Settings are the machine's, so there is one journal and one lock, whoever tunes and from whatever
environment: root's, in a folder that nobody else may write to.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import zlib
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from tailscope.exceptions import TuningError
from tailscope.host.owned import make_folder, open_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tailscope.host.entries import Entry, EntryLine, HeadLine
    from tailscope.host.machine import Machine

_MACHINE = "/etc/machine-id"
_BOOT = "/proc/sys/kernel/random/boot_id"
_SHOWN = 40
_UNUSABLE = "a reboot resets all settings; then remove the file"

L = TypeVar("L", bound="HeadLine | EntryLine")


@dataclass
class Journal:
    """The changes that were begun and not reverted."""

    file: Path
    by: str
    """Command that tuned the host."""
    machine: str | None
    boot: str | None
    """Identifiers of the machine and of its boot."""
    entries: list[Entry] = field(default_factory=list)
    """Changes in the order in which they were made."""

    @classmethod
    def expect_none(cls, machine: Machine) -> None:
        """Raise `TuningError` if there is a journal."""
        file = journal_file(machine)
        if os.path.lexists(file):
            raise TuningError(
                f"{file}: this host was tuned and not reverted",
                code="already-tuned",
                hint="first run `tailscope host revert`",
            )

    @classmethod
    def create(cls, machine: Machine, by: str) -> Journal:
        """Begin a journal; raise `TuningError` if there is one already."""
        from tailscope.host.entries import FORMAT

        file = journal_file(machine)
        journal = cls(file, by, machine.read(_MACHINE), machine.read(_BOOT))
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        head = {"format": FORMAT, "by": by, "machine": journal.machine, "boot": journal.boot}
        _append(file, head, 0)
        _sync(file.parent)
        return journal

    @classmethod
    def read(cls, machine: Machine) -> Journal | None:
        """Read the journal; return None if there is none."""
        from tailscope.host.entries import EntryLine, HeadLine

        file = journal_file(machine)
        try:
            handle = open_file(file, os.O_RDONLY)
        except FileNotFoundError:
            return None
        with os.fdopen(handle, "rb") as content:
            *whole, torn = content.read().split(b"\n")
        # A line that a crash has torn is the last one.
        last = [] if _parsed(torn, len(whole), EntryLine if whole else HeadLine) is None else [torn]
        if not whole and not last:
            return cls(file, "a command that ended at once", None, None)
        first, *others = [*whole, *last]
        head = _whole(file, first, 0, HeadLine)
        _check_format(file, head)
        entries = [_whole(file, line, at, EntryLine) for at, line in enumerate(others, 1)]
        return cls(file, head.by, head.machine, head.boot, [line.entry for line in entries])

    def add(self, entry: Entry) -> None:
        """Write down a change that will be made next; it is on the disk when this returns."""
        from msgspec.structs import asdict

        self.entries.append(entry)
        _append(self.file, asdict(entry), len(self.entries))

    def check(self, machine: Machine) -> None:
        """Raise `TuningError` if the journal belongs to another machine."""
        identity = machine.read(_MACHINE)
        if self.entries and self.machine != identity:
            raise TuningError(
                f"{self.file}: it belongs to another machine: got {_name(self.machine)},"
                f" expected {_name(identity)}",
                code="other-machine",
                hint="revert on that machine, or remove the file",
            )

    def is_of_another_boot(self, machine: Machine) -> bool:
        """Return True if the machine was rebooted since, which restored its settings."""
        return bool(self.entries) and self.boot != machine.read(_BOOT)

    def set_aside(self) -> Path:
        """Keep it under another name."""
        return self.file.rename(self.file.with_name("journal-of-another-boot.jsonl"))

    def remove(self) -> None:
        """Remove it: all is as it was."""
        self.file.unlink()
        _sync(self.file.parent)


def journal_file(machine: Machine) -> Path:
    """Return the path of a machine's journal."""
    return machine.run_folder / "journal.jsonl"


@contextmanager
def tuning_lock(machine: Machine) -> Iterator[None]:
    """Keep others from tuning and reverting within a block."""
    folder = machine.run_folder
    make_folder(folder)
    lock = open_file(folder / "lock", os.O_RDWR | os.O_CREAT)
    try:
        _lock(lock, folder)
        yield
    finally:
        os.close(lock)


def _lock(handle: int, folder: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise TuningError(
            f"{folder}: another tailscope is tuning this host",
            code="tuning-locked",
            hint="wait until it has ended",
        ) from None


def _append(file: Path, record: Mapping[str, object], at: int) -> None:
    line = _line(record, at) + b"\n"
    handle = open_file(file, os.O_WRONLY | os.O_APPEND)
    try:
        if os.write(handle, line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file))
        os.fsync(handle)
    finally:
        os.close(handle)


def _line(record: Mapping[str, object], at: int) -> bytes:
    numbered = {"line": at, **record}
    checksum = f"{zlib.crc32(json.dumps(numbered).encode()):08x}"
    return json.dumps({**numbered, "crc32": checksum}).encode()


def _whole(file: Path, line: bytes, at: int, kind: type[L]) -> L:
    """Parse a line of a file; raise `TuningError` if it is damaged."""
    parsed = _parsed(line, at, kind)
    if parsed is None:
        raise TuningError(
            f"{file}: line {at + 1}: got {line[:_SHOWN]!r},"
            " expected an entry with its number and checksum",
            code="journal-damaged",
            hint=_UNUSABLE,
        )
    return parsed


def _check_format(file: Path, head: HeadLine) -> None:
    from msgspec import UNSET

    from tailscope.host.entries import FORMAT

    if head.format not in (UNSET, FORMAT):
        raise TuningError(
            f"{file}: line 1: format: got {head.format}, expected {FORMAT}",
            code="journal-format",
            hint="another tailscope tuned this host: take it back with that one",
        )


def _parsed(line: bytes, at: int, kind: type[L]) -> L | None:
    """Parse a line; return None if it is incomplete or was not written by tailscope."""
    from msgspec import ValidationError, convert

    try:
        # Python's own parser: a setting that is no text contains lone surrogates here.
        record: dict[str, object] = json.loads(line)
        parsed = convert(record, kind)
    except (ValueError, ValidationError, RecursionError):
        return None
    del record["crc32"], record["line"]
    return parsed if _line(record, at) == line else None


def _name(identity: str | None) -> str:
    return (identity or "unknown").strip()


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
