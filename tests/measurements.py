"""Where measurements live in tests, and who starts them."""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from command import COMMAND

QUICK = ("--duration", "1s", "--warm-up", "200ms", "--rate", "20k")
NOBODY = 65534


@dataclass
class Place:
    """A home for measurements: where they keep their sockets and state, and what they left."""

    path: Path
    environment: dict[str, str] = field(default_factory=dict)
    prefix: tuple[str, ...] = ()

    def left(self) -> list[str]:
        """What measurements left behind."""
        return [path.name for path in self.path.glob("run/tailscope-*")]


def started(place: Place, *arguments: str, processes: int = 2) -> subprocess.Popen[str]:
    """Start a command and wait until its processes of the data plane measure."""
    process = subprocess.Popen(
        [COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=place.environment,
    )
    for _ in range(300):
        if len(children(process.pid)) == processes:
            break
        time.sleep(0.1)
    time.sleep(1)
    return process


def children(pid: int) -> dict[str, int]:
    """The processes of the data plane that a process has started, by their programs."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
            if any(word.endswith(b"tailscope-dp") for word in words):
                found[words[1].decode()] = int(child)
    return found


def as_nobody(command: list[str], folder: Path, **options: Any) -> subprocess.Popen[str]:
    """Start a command as an ordinary user who owns `folder` alone."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    rights = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    return subprocess.Popen([*rights, *command], text=True, **options)


def said_to_nobody(place: Place, *arguments: str) -> str:
    """What the installed command says to an ordinary user, who owns the place."""
    if not os.access(COMMAND, os.X_OK) or not reachable(COMMAND):
        pytest.skip(f"{COMMAND}: not to be reached by an ordinary user")
    environment = {**place.environment, "HOME": str(place.path), "PYTHONDONTWRITEBYTECODE": "1"}
    for parent in place.path.parents:
        if parent.stat().st_uid == os.getuid() and parent.name.startswith("pytest-"):
            parent.chmod(0o755)
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [str(COMMAND), *arguments]
    process = as_nobody(command, place.path, env=environment, cwd=place.path, **pipes)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return output


def reachable(path: Path) -> bool:
    return all(parent.stat().st_mode & 0o005 == 0o005 for parent in path.resolve().parents)
