"""Programs of others that a measurement needs."""

from __future__ import annotations

import shutil
from pathlib import Path

from tailscope.exceptions import TestbedError

__all__ = ["find_program"]


def find_program(what: str, program: str, package: str) -> Path:
    """Find a program.

    Parameters
    ----------
    what : str
        What needs it, for the error.
    program : str
    package : str
        The package that has it.

    Raises
    ------
    TestbedError
        If it is not there: with what to install.
    """
    found = shutil.which(program)
    if found is None:
        raise TestbedError(
            f"{what}: no program {program}",
            hint=f"install it (Debian, Ubuntu: apt install {package})",
        )
    return Path(found)
