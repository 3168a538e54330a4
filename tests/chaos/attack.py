"""A measurement that is attacked, and what must hold afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from measurements import NOBODY, Place
from runs import left_behind, sound

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

COMMAND = (sys.executable, "-m", "tailscope")
LASTS_S = 1.0
PATIENCE_S = 240
ENDED_WELL = 0
INTERRUPTED = 130
IS_ROOT = os.geteuid() == 0


class Setting(NamedTuple):
    """What is measured, and over what.

    Attributes
    ----------
    name : str
    options : tuple of str
        Of `tailscope run`.
    as_root : bool
    program : str
        What it needs, if anything.
    """

    name: str
    options: tuple[str, ...]
    as_root: bool = False
    program: str = ""

    @property
    def is_there(self) -> bool:
        """Whether this machine has what it needs."""
        has = not self.program or shutil.which(self.program) is not None
        return has and (IS_ROOT or not self.as_root)


SETTINGS = (
    Setting("memif", ("--dut", "l2fwd")),
    Setting("delay", ("--dut", "delay", "--noise", "stalls")),
    Setting("veth", ("--dut", "bridge"), as_root=True),
    Setting("lxc", ("--dut", "l2fwd", "--platform", "lxc"), as_root=True, program="lxc-start"),
)


class BrokenPromiseError(AssertionError):
    """Something that must always hold does not."""


@dataclass
class Attack:
    """One measurement in a home of its own.

    Attributes
    ----------
    chance : Random
    setting : Setting
    place : Place
    """

    chance: random.Random
    setting: Setting
    place: Place
    runs: list[Path] = field(default_factory=list)

    def start(
        self, *more: str, before: tuple[str, ...] = (), folder: str = ""
    ) -> subprocess.Popen[str]:
        """Start a run; `before` is what it is started by, `folder` where its directory goes."""
        out = self.place.path / folder / f"out{len(self.runs)}"
        self.runs.append(out)
        options = ("--rate", "20k", "--duration", f"{LASTS_S:g}s", "--warm-up", "0s")
        words = ("run", *self.setting.options, *options, *more, "--out", str(out))
        return self.command(*words, before=before)

    def command(self, *words: str, before: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        """Start a command."""
        return subprocess.Popen(
            [*before, *COMMAND, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.place.environment,
            start_new_session=True,
        )

    def some_time(self, most_s: float = LASTS_S + 6) -> None:
        """Wait for up to as long as a run takes, set-up and analysis included."""
        time.sleep(self.chance.uniform(0, most_s))

    def family(self, process: subprocess.Popen[str]) -> list[int]:
        """A process and all that it has started."""
        found, left = [], [process.pid]
        while left:
            pid = left.pop()
            found.append(pid)
            for path in Path(f"/proc/{pid}/task").glob("*/children"):
                with suppress(OSError):
                    left += map(int, path.read_text().split())
        return found

    def end(self, process: subprocess.Popen[str]) -> tuple[int, str]:
        """Wait for a command: its exit status, and what it said last."""
        try:
            _, errors = process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            raise BrokenPromiseError(f"did not end within {PATIENCE_S} s") from None
        if "this is a bug" in errors:
            raise BrokenPromiseError(errors.strip().splitlines()[-2])
        return process.returncode, errors

    def expect(self, status: int, *processes: subprocess.Popen[str]) -> None:
        """Commands must end so."""
        for process in processes:
            got, errors = self.end(process)
            if got != status:
                said = errors.strip()[-200:]
                raise BrokenPromiseError(f"exit status {got} instead of {status}: {said}")

    def outcome(self, run: Path, status: int | None) -> str:
        """What became of a run directory: whole, partial, or nothing."""
        if not run.exists():
            if status == ENDED_WELL:
                raise BrokenPromiseError("it ended well, and left no run")
            return "nothing"
        try:
            complete = json.loads((run / "run.json").read_text())["complete"]
        except FileNotFoundError:
            complete = False
        if not complete:
            if status in {ENDED_WELL, INTERRUPTED}:
                raise BrokenPromiseError(f"exit status {status} with a run that is not whole")
            return "unfinished"
        with _promised(f"{run}: "):
            partial = sound(run)["partial"]
        return "partial" if partial else "whole"

    def check_clean(self) -> None:
        """Clean, and see that nothing is left."""
        self.expect(ENDED_WELL, self.command("clean"))
        code, _ = self.end(self.command("clean"))
        left = self.place.left() + (left_behind() if IS_ROOT else [])
        if code or left:
            raise BrokenPromiseError(f"left after clean: {', '.join(left)[:200]}")


@contextlib.contextmanager
def _promised(where: str) -> Iterator[None]:
    """What tests assert of every run is a promise here."""
    try:
        yield
    except BrokenPromiseError:
        raise
    except Exception as error:
        raise BrokenPromiseError(f"{where}{type(error).__name__}: {error}") from error


@contextlib.contextmanager
def home() -> Iterator[Place]:
    """A private place for measurements."""
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        path = Path(folder)
        (path / "run").mkdir(mode=0o700)
        environment = {
            "XDG_RUNTIME_DIR": str(path / "run"),
            "XDG_STATE_HOME": str(path / "state"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        yield Place(path, {**os.environ, **environment})


def give_to_nobody(place: Place) -> None:
    """Let another user own a place."""
    for path in (place.path, *place.path.rglob("*")):
        os.chown(path, NOBODY, NOBODY)


NOBODY_S = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
