"""Programs of others that a measurement needs."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tailscope.exceptions import TestbedError

_SYSTEM = ("/usr/sbin", "/sbin")


def search_path() -> str:
    """Where programs are looked for: users often have no administrators' programs on PATH."""
    return os.pathsep.join((os.environ.get("PATH", os.defpath), *_SYSTEM))


def which(program: str) -> Path | None:
    """Find a program; None where there is none."""
    found = shutil.which(program, path=search_path())
    return None if found is None else Path(found)


def find_program(what: str, program: str, package: str) -> Path:
    """Find a program."""
    found = which(program)
    if found is None:
        raise TestbedError(
            f"{what}: no program {program}",
            hint=f"install it (Debian, Ubuntu: apt install {package})",
        )
    return found
