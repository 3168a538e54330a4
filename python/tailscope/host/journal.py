"""What a machine's settings were before they were changed.

One file of JSON lines: whose it is, then a line for each change, synced before the change is made.
So what a crash may tear is a last line behind which no change was made. Each line has its number
and a checksum: anything else that does not fit is damage.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import zlib
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from tailscope.exceptions import TuningError
from tailscope.host.state import state_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tailscope.host.machine import Machine

__all__ = ["Entry", "Journal", "journal_file", "tuning_lock"]

_MACHINE = "/etc/machine-id"
_BOOT = "/proc/sys/kernel/random/boot_id"
_SHOWN = 40
_UNUSABLE = "booting takes all settings back; then remove the file"


@dataclass(frozen=True)
class Entry:
    """One change.

    Attributes
    ----------
    knob, path : str
    original : str or None
        What was there, exactly; None for a folder that was not.
    wanted : str
    """

    knob: str
    path: str
    original: str | None
    wanted: str


@dataclass
class Journal:
    """The changes that were begun and not taken back.

    Attributes
    ----------
    by : str
        What has tuned.
    machine, boot : str or None
        Which machine, and since which of its starts.
    entries : list of Entry
        In their order.
    """

    by: str
    machine: str | None
    boot: str | None
    entries: list[Entry] = field(default_factory=list)

    @classmethod
    def create(cls, machine: Machine, by: str) -> Journal:
        """Begin a journal.

        Raises
        ------
        TuningError
            If there is one already.
        """
        journal = cls(by, machine.read(_MACHINE), machine.read(_BOOT))
        try:
            os.close(os.open(journal_file(), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            raise TuningError(
                f"{journal_file()}: this host was tuned and not taken back",
                hint="take it back first: `tailscope host revert`",
            ) from None
        _append({"by": by, "machine": journal.machine, "boot": journal.boot}, 0)
        _sync(journal_file().parent)
        return journal

    @classmethod
    def read(cls) -> Journal | None:
        """Read the journal; None where there is none.

        Raises
        ------
        TuningError
            If it is damaged: with file and line.
        """
        try:
            *whole, torn = journal_file().read_bytes().split(b"\n")
        except FileNotFoundError:
            return None
        lines = []
        for at, line in enumerate(whole):
            found = _parsed(line, at)
            if found is None:
                raise TuningError(
                    f"{journal_file()}: line {at + 1}: got {line[:_SHOWN]!r},"
                    " expected an entry with its number and checksum",
                    hint=_UNUSABLE,
                )
            lines.append(found)
        last = _parsed(torn, len(lines))
        lines += [] if last is None else [last]
        if not lines:
            return cls("a command that ended at once", None, None)
        return cls(**lines[0], entries=[Entry(**line) for line in lines[1:]])

    def add(self, entry: Entry) -> None:
        """Write down a change that will be made next; it is on the disk when this returns."""
        self.entries.append(entry)
        _append(asdict(entry), len(self.entries))

    def check(self, machine: Machine) -> None:
        """See that it is of this machine.

        Raises
        ------
        TuningError
            If it is not.
        """
        here = machine.read(_MACHINE)
        if self.entries and self.machine != here:
            raise TuningError(
                f"{journal_file()}: it is another machine's: got {_name(self.machine)},"
                f" expected {_name(here)}",
                hint="revert on that machine, or remove the file",
            )

    def is_of_another_boot(self, machine: Machine) -> bool:
        """Whether the machine was booted since: what was set is gone then."""
        return bool(self.entries) and self.boot != machine.read(_BOOT)

    def set_aside(self) -> Path:
        """Keep it under another name."""
        aside = journal_file().with_name(f"journal-{_name(self.boot)}.jsonl")
        return journal_file().rename(aside)

    def remove(self) -> None:
        """Remove it: all is as it was."""
        journal_file().unlink()
        _sync(journal_file().parent)


def journal_file() -> Path:
    """Where the journal of this user is."""
    return state_folder() / "host" / "journal.jsonl"


@contextmanager
def tuning_lock() -> Iterator[None]:
    """Keep others from tuning and reverting within a block.

    Raises
    ------
    TuningError
        If another process does so.
    """
    folder = journal_file().parent
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
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
            f"{folder}: another tailscope tunes this host", hint="wait until it has ended"
        ) from None


def _append(record: dict[str, Any], at: int) -> None:
    line = _line(record, at) + b"\n"
    file = os.open(journal_file(), os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        if os.write(file, line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(journal_file()))
        os.fsync(file)
    finally:
        os.close(file)


def _line(record: dict[str, Any], at: int) -> bytes:
    numbered = {"line": at, **record}
    checksum = f"{zlib.crc32(json.dumps(numbered).encode()):08x}"
    return json.dumps({**numbered, "crc32": checksum}).encode()


def _parsed(line: bytes, at: int) -> dict[str, Any] | None:
    """What a line says; None where it is not whole."""
    try:
        record = json.loads(line)
        del record["crc32"], record["line"]
    except (ValueError, KeyError, TypeError):
        return None
    return record if _line(record, at) == line else None


def _name(identity: str | None) -> str:
    return (identity or "unknown").strip()


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
