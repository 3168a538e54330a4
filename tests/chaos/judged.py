"""What must hold after a fault."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import re
import signal
import xml.etree.ElementTree as ET
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from tailscope.exceptions import TailscopeError
from tailscope.store.atomic import SUFFIX, is_temporary
from tailscope.store.directory import is_complete
from tailscope.store.reader import read_info, read_run, verified

from .commands import HOME

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from .commands import Command
    from .shim import Operation
    from .tries import Bench, Ended

ANSWERS = ("ended", "whole or refused", "unharmed", "measurement kept", "says what to do", "mended")
"""Whether it ended; the four questions; whether a repeat makes all, and leaves nothing else."""


_DONE = re.compile("already holds a complete run|already exists")
_SAYS = re.compile("^(?:error: |lacking )", re.M)
_SAYS_OF_PART = re.compile(r"^(?:partial |\[\S+\] \S+ +failed: [^(]*\()", re.M)
"""A run that is kept, or a cell with what to do in brackets, though the others went on."""
_FINISH = re.compile("`tailscope (runs finish [^`]+)`")


class Before(NamedTuple):
    """Checksums of the files before a command."""

    files: Mapping[str, str]


class Judge:
    """What commands make without a fault, to compare with."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._made: dict[str, dict[str, set[str]]] = {}

    def before(self) -> Before:
        """Take down what is there."""
        return Before(_checksums(self._bench.work))

    def learn(self, command: Command) -> list[Operation]:
        """See what a command does without a fault.

        Files have several checksums where they differ from one time to the next.
        """
        found = self._made[command.name] = {}
        for _ in range(1 if command.measures else 2):
            operations = self._bench.reference(command)
            for name, checksum in _checksums(self._bench.work).items():
                found.setdefault(name, set()).add(checksum)
        return operations

    def judge(
        self, command: Command, before: Before, ended: Sequence[Ended], *, taken: bool
    ) -> tuple[dict[str, bool], list[str]]:
        """Answer the questions, and repeat the command."""
        said: list[str] = []
        answers = {
            "ended": all(each.status is not None for each in ended) or _no(said, "it did not end"),
            "whole or refused": self._is_whole(command, ended, said),
            "unharmed": self._is_unharmed(command, before, said),
            "measurement kept": self._is_kept(command, before, said, taken=taken),
            "says what to do": min(_tells(command, each, said) for each in ended),
        }
        answers["mended"] = self._is_mended(command, ended, said)
        return answers, said

    def _is_whole(self, command: Command, ended: Sequence[Ended], said: list[str]) -> bool:
        """Whether what is there can be told from what is not; and all is there if it is said so.

        Not where it is said what is left out: campaigns do without runs that cannot be read.
        """
        if any("left out: " in each.errors for each in ended):
            return True
        found = [self._is_readable(command, name, said) for name in _checksums(self._bench.work)]
        if any(each.status == command.status for each in ended):
            found.append(self._is_complete(command, said, "as if all was well"))
        return all(found)

    def _is_complete(self, command: Command, said: list[str], when: str) -> bool:
        made, there = self._made[command.name], _checksums(self._bench.work)
        lacks = [name for name in made if _counts(name) and name not in there]
        if lacks and not command.measures:
            return _no(said, f"{when}, and lacks {', '.join(lacks[:3])}")
        for path in self._bench.work.rglob("run.json"):
            with suppress(TailscopeError):
                read_run(path.parent)
                continue
            return _no(said, f"{when}, and {path.parent.name} is not whole")
        return True

    def _is_readable(self, command: Command, name: str, said: list[str]) -> bool:
        """Whether a file is whole, or one that nobody takes for whole."""
        path, made = self._bench.work / name, self._made[command.name]
        if not _counts(name) or "/recording/" in name:
            return True
        if path.name == "run.json":
            return self._is_run(path.parent, said)
        if _is_in_run(path) or _checksum(path) in made.get(name, ()):
            return True
        content = path.read_bytes()
        checks = {".json": json.loads, ".html": _check_page, ".xml": ET.fromstring}
        check = checks.get(path.suffix)
        if check is None:
            if len(made.get(name, ())) != 1:
                return True
            return _no(said, f"{name}: {len(content)} bytes that it should not have")
        try:
            check(content)
        except Exception as error:  # noqa: BLE001
            return _no(said, f"{name}: not whole: {error}")
        return True

    def _is_run(self, path: Path, said: list[str]) -> bool:
        try:
            info = read_info(path)
            read_run(path)
            for name in info.files:
                verified(path, info, name)
        except TailscopeError as error:
            status = self._bench.again(f"runs show --verify '{path}'").status
            return status != 0 or _no(said, f"{path.name}: shown, although {error}")
        except Exception as error:  # noqa: BLE001
            return _no(said, f"{path.name}: {type(error).__name__}: {error}")
        return True

    def _is_unharmed(self, command: Command, before: Before, said: list[str]) -> bool:
        there, made = _checksums(self._bench.work), self._made[command.name]
        for name, checksum in before.files.items():
            if is_temporary(name.rpartition("/")[2]) or _is_below(name, command.recorded):
                continue
            if any(fnmatch.fnmatch(name, pattern) for pattern in command.replaces):
                if name not in there and name in made:
                    return _no(said, f"{name}: gone")
            elif there.get(name) != checksum:
                return _no(said, f"{name}: {'changed' if name in there else 'gone'}")
        return True

    def _is_kept(self, command: Command, before: Before, said: list[str], *, taken: bool) -> bool:
        """Whether what was measured is in a whole run, or recorded as it was."""
        if taken:
            found = [*self._bench.work.rglob("arrival_tsc.npy")]
            found += [
                each for each in self._bench.work.rglob("run.json") if is_complete(each.parent)
            ]
            return bool(found) or _no(said, "what was measured is gone")
        if not command.recorded:
            return True
        path = self._bench.work / command.recorded
        with suppress(TailscopeError, OSError):
            read_run(path)
            return True
        there = _checksums(self._bench.work)
        for name, checksum in before.files.items():
            if name.startswith(f"{command.recorded}/rec") and there.get(name) != checksum:
                return _no(said, f"{name}: gone, and no run is whole")
        return True

    def _is_mended(self, command: Command, ended: Sequence[Ended], said: list[str]) -> bool:
        """Do what messages say, and repeat the command until it is done, or has been."""
        for each in ended:
            self._finish(each)
        again = self._bench.again(command.words)
        if self._finish(again):
            again = self._bench.again(command.words)
        if "hint: --resume " in again.errors:
            again = self._bench.again(f"{command.words} --resume")
        if not (again.status == command.status or _DONE.search(again.errors)):
            return _no(said, f"again: {again.status}: {again.errors.strip()[-1500:]}")
        if any(name.startswith("run/") or SUFFIX in name for name in _checksums(self._bench.work)):
            self._bench.again("runs clean .")
        if not self._is_complete(command, said, "repeated"):
            return False
        made = self._made[command.name]
        left = [name for name in _checksums(self._bench.work) if name not in made]
        if command.measures:
            left = [
                name
                for name in left
                if (name.startswith("run/") and "-recording/" not in name) or "/." in name
            ]
        return not left or _no(said, f"left behind: {', '.join(left[:3])}")

    def _finish(self, ended: Ended) -> bool:
        """Finish a run where a message says so."""
        named = _FINISH.search(ended.errors)
        return named is not None and self._bench.again(named[1]).status == 0


def _tells(command: Command, ended: Ended, said: list[str]) -> bool:
    """Whether a command that failed says what, where and what to do."""
    if ended.status in (command.status, None, -signal.SIGKILL):
        return True
    if command.measures and _SAYS_OF_PART.search(ended.output):
        return True
    errors = ended.errors
    if "Traceback" in errors or "this is a bug" in errors or not _SAYS.search(errors):
        return _no(said, f"exit status {ended.status}: {errors.strip()[-300:]}")
    if "hint: " not in errors:
        return _no(said, f"no hint: {errors.strip()[-200:]}")
    message = _SAYS.split(errors)[-1].partition("hint: ")[0]
    names = [
        word for word in command.words.split() if "/" in word or (len(word) > 2 and "-" not in word)
    ]
    return (
        "/" in message
        or any(name in message for name in names)
        or _no(said, f"no file is named: {message.strip()}")
    )


def _is_below(name: str, folder: str) -> bool:
    """Whether a file is of a run whose recording counts, and not what was made of it."""
    return bool(folder) and name.startswith(f"{folder}/")


def _no(said: list[str], what: str) -> bool:
    said.append(what)
    return False


def _checksums(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): _checksum(path)
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _counts(name: str) -> bool:
    """Whether a file is a result: not hidden, nor of a folder that is the command's own."""
    parts = name.split("/")
    return parts[0] not in HOME and not any(part.startswith(".") for part in parts)


def _is_in_run(path: Path) -> bool:
    """Whether the run that a file is in says whether it is whole."""
    inside = any((parent / "run.json").exists() for parent in list(path.parents)[:2])
    return inside and path.name not in {"report.html", "notes.json", "tail.json"}


def _check_page(content: bytes) -> None:
    assert content.rstrip().endswith(b"</html>"), "it has no end"
