"""Input of a parser as a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def write_input(folder: Path, name: str, content: bytes) -> Path:
    """Write the bytes, and return the path."""
    path = folder / name
    path.write_bytes(content)
    return path
