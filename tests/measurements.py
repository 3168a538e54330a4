"""Where measurements live in tests, and who starts them."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

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


def as_nobody(command: list[str], folder: Path, **options: Any) -> subprocess.Popen[str]:
    """Start a command as an ordinary user who owns `folder` alone."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    rights = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    return subprocess.Popen([*rights, *command], text=True, **options)
