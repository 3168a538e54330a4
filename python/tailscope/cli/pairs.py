"""Finding pairs of captures in a folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from tailscope.exceptions import UsageError

_KINDS = (".pcap", ".pcapng", ".cap", ".erf", ".snoop", ".mscap")
_COMPRESSIONS = ("", ".gz", ".zst", ".xz", ".lz4", ".bz2")
_SUFFIXES = tuple(kind + compression for kind in _KINDS for compression in _COMPRESSIONS)


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
