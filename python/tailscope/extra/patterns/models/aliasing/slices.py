"""Slices of packets: what is computed of one at a time takes no memory by their number."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_LENGTH = 65_536


def slices(count: int) -> Iterator[slice]:
    """Divide so many packets into slices that fit into a cache."""
    return (slice(begin, begin + _LENGTH) for begin in range(0, count, _LENGTH))
