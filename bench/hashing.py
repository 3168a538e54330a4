"""The least that can be done with the bytes of two captures: read and hash them with XXH3.

The hash is xxHash's own C code, which does not hold Python's lock.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import xxhash

if TYPE_CHECKING:
    from pathlib import Path

BUFFER_BYTES = 1 << 20


def in_turn(paths: tuple[Path, Path]) -> list[str]:
    """One thread reads one file after the other."""
    return [_digest(path) for path in paths]


def side_by_side(paths: tuple[Path, Path]) -> list[str]:
    """A thread for each file."""
    with ThreadPoolExecutor(len(paths)) as pool:
        return list(pool.map(_digest, paths))


def _digest(path: Path) -> str:
    state = xxhash.xxh3_64()
    buffer = memoryview(bytearray(BUFFER_BYTES))
    with path.open("rb", buffering=0) as file:
        while length := file.readinto(buffer):
            state.update(buffer[:length])
    return state.hexdigest()
