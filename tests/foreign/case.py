"""A kind of foreign pair: how it is made, and what it takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .files import pcap

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from .files import Packet
    from .truth import Refused, Truth


class UnavailableError(Exception):
    """This kernel cannot make the pair."""


@dataclass(frozen=True)
class Made:
    """A pair that was made: what `tailscope analyze` is called with, and what is true."""

    arguments: tuple[str | Path, ...]
    truth: Truth | Refused


@dataclass(frozen=True)
class Case:
    """A kind of pair.

    Parameters
    ----------
    name : str
    make : callable
        Makes it in a folder.
    programs : tuple of str
        Programs that this takes.
    as_root : bool
        It takes network namespaces.
    is_long : bool
        Left to the long tests: another kind already shows most of it.
    """

    name: str
    make: Callable[[Path], Made]
    programs: tuple[str, ...] = ()
    as_root: bool = False
    is_long: bool = False


CASES: dict[str, Case] = {}
"""Every kind, by name."""


def case(
    name: str, *, programs: tuple[str, ...] = (), as_root: bool = False, is_long: bool = False
) -> Callable[[Callable[[Path], Made]], Callable[[Path], Made]]:
    """Enter a kind whose pair the decorated function makes in a folder."""

    def enter(make: Callable[[Path], Made]) -> Callable[[Path], Made]:
        assert name not in CASES, name
        CASES[name] = Case(name, make, programs, as_root, is_long)
        return make

    return enter


def in_files(
    folder: Path, before: bytes | Sequence[Packet], behind: bytes | Sequence[Packet]
) -> tuple[Path, Path]:
    """Write both captures: bytes as they are, packets as a pcap in nanoseconds."""
    paths = folder / "tap-in.pcap", folder / "tap-out.pcap"
    for path, content in zip(paths, (before, behind), strict=True):
        path.write_bytes(content if isinstance(content, bytes) else pcap(content))
    return paths
