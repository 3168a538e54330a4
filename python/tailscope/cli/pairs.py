"""Finding pairs of captures in a folder."""

from __future__ import annotations

import os
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tailscope.exceptions import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

_KINDS = (".pcap", ".pcapng", ".cap", ".erf", ".snoop", ".mscap")
_COMPRESSIONS = ("", ".gz", ".zst", ".xz", ".lz4", ".bz2")
_SUFFIXES = tuple(kind + compression for kind in _KINDS for compression in _COMPRESSIONS)


_ALIKE = 0.5
"""Share of the packets of the smaller of two captures that both have, if they carry the same."""
_MOST_ALIKE = 16


class Pair(NamedTuple):
    """The captures before and after a device; one that was looked for and not found is None."""

    pre: Path | None
    post: Path | None

    @property
    def name(self) -> Path:
        """The name of the pair: of the pre capture, or of the lonely post capture."""
        capture = self.pre or self.post
        assert capture is not None, "a pair has at least one capture"
        return capture


def find_pairs(folder: Path) -> list[Pair]:
    """Find captures ``*-pre-*`` and their ``*-post-*``, in the folder and those below it."""
    captures = sorted(
        Path(root) / name
        for root, _, names in os.walk(folder, onerror=_refuse)
        for name in names
        if name.endswith(_SUFFIXES)
    )
    capture_set = set(captures)
    pairs = [
        Pair(pre, _other(pre, "-pre-", "-post-", capture_set))
        for pre in captures
        if "-pre-" in pre.name
    ]
    taken = {capture for pair in pairs for capture in pair}
    lonely = (path for path in captures if "-post-" in path.name and path not in taken)
    pairs += [Pair(None, post) for post in lonely]
    if not pairs:
        raise UsageError(
            f"{folder}: no pair of captures in it",
            code="no-pairs",
            hint="names of a pair differ only in `-pre-` and `-post-`, and end in "
            + ", ".join(_KINDS)
            + " (.gz, .zst)",
        )
    return sorted(pairs, key=lambda pair: pair.name)


def alike(captures: Sequence[str], packets: Sequence[int]) -> list[tuple[int, int]]:
    """Find pairs of captures that carry the same packets, by so many of each from its beginning.

    A payload that comes again and again counts once; of many captures, those with most packets are
    looked at.
    """
    from tailscope.engine.analysis import read_keys

    keys: dict[int, set[bytes]] = {}
    for at in sorted(range(len(captures)), key=lambda at: -packets[at])[:_MOST_ALIKE]:
        first = next(read_keys(captures[at], "payload", at_once=packets[at]), None)
        if first is not None:
            content, ends = first.key_bytes.tobytes(), first.key_ends.tolist()
            begins = [0, *ends[:-1]]
            spans = zip(begins, ends, first.keyed.tolist(), strict=True)
            keys[at] = {content[begin:end] for begin, end, is_keyed in spans if is_keyed}
    return [
        (one, other)
        for one, other in combinations(sorted(keys), 2)
        if len(keys[one] & keys[other]) > _ALIKE * min(len(keys[one]), len(keys[other]))
    ]


def stem_of(capture: str) -> str:
    """Return the name of a capture without its extensions."""
    name = Path(capture).name
    suffix_of_name = next((suffix for suffix in _SUFFIXES[::-1] if name.endswith(suffix)), "")
    return name.removesuffix(suffix_of_name)


def _other(path: Path, this: str, that: str, captures: set[Path]) -> Path | None:
    """Find the other half: `this` may occur more than once in a name."""
    start = path.name.find(this)
    while start >= 0:
        other = path.with_name(path.name[:start] + that + path.name[start + len(this) :])
        if other in captures:
            return other
        start = path.name.find(this, start + 1)
    return None


def _refuse(error: OSError) -> None:
    raise error
