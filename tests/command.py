"""The installed command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

COMMAND = Path(sys.executable).with_name("tailscope")


def run(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run it with arguments, as a process of its own."""
    defaults = {"capture_output": True, "timeout": 120, "stdin": subprocess.DEVNULL}
    if "input" in options:
        del defaults["stdin"]
    done = subprocess.run([COMMAND, *map(os.fspath, map(_text, arguments))], **defaults | options)
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
    )


def _text(argument: object) -> str | os.PathLike[str]:
    return argument if isinstance(argument, os.PathLike) else str(argument)
