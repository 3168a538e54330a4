"""Search for external programs that a measurement needs."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from tailscope.exceptions import TestbedError
from tailscope.host import remedies

_SNORT = Path(sys.prefix) / "share" / "tailscope" / "snort" / "bin"
"""Folder of the Snort that ``make setup-snort`` set up."""
_ADDED = ("/usr/sbin", "/sbin", str(_SNORT))


def search_path() -> str:
    """Return PATH with the folders of administrators' programs, and of the Snort set up."""
    return os.pathsep.join((os.environ.get("PATH", os.defpath), *_ADDED))


def which(program: str) -> Path | None:
    """Return the path of a program; None if there is none."""
    path = shutil.which(program, path=search_path())
    return None if path is None else Path(path)


def find_program(what: str, program: str, package: str) -> Path:
    """Return the path of a program that must exist."""
    path = which(program)
    if path is None:
        raise TestbedError(
            f"{what}: no program {program}",
            code="no-program",
            remedy=remedies.package(package),
        )
    return path
