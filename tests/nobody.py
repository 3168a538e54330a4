"""What happens to a user without privilege."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from measurements import NOBODY

if TYPE_CHECKING:
    from collections.abc import Callable


def as_nobody(function: Callable[[], object]) -> str:
    """Call a function in a process of somebody without rights; what it returns, or raises."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            said = str(function())
        except Exception as error:  # noqa: BLE001
            said = f"{type(error).__name__}: {error}"
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(child, 0)
    return said
