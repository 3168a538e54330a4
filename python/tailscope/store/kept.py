"""Conclusions kept beside the figures that they were drawn from.

A run directory is never changed. What was concluded from it later lies beside ``run.json``, outside
of its checksums, and names the figures that it is of, so that no report shows it beside others.
"""

from __future__ import annotations

import hashlib
import json
import time
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

import tailscope._engine as _engine
from tailscope.exceptions import RunCorruptError
from tailscope.store import layout
from tailscope.store.atomic import write_text
from tailscope.store.files import MOST_RECORD_BYTES, read_file, size_of
from tailscope.store.records.base import (
    as_content,
    check_format,
    convert,
    encode,
    format_of,
    read_json,
)
from tailscope.store.records.explanation import Explanation
from tailscope.store.records.kept import Origin
from tailscope.store.records.overload import OverloadRecord
from tailscope.store.records.tail import TailRecord
from tailscope.store.records.verdict import VerdictRecord

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from tailscope.store.records.run import RunInfo

Conclusion: TypeAlias = TailRecord | OverloadRecord | VerdictRecord | Explanation
_KINDS: dict[str, type[Conclusion]] = {
    layout.TAIL: TailRecord,
    layout.OVERLOAD: OverloadRecord,
    layout.VERDICT: VerdictRecord,
    layout.EXPLANATION: Explanation,
}
_ORIGIN = "kept"
_AGAIN = "repeat the command that kept it, or remove it"


@dataclass(frozen=True)
class Conclusions:
    """The conclusions kept beside a run."""

    tail: TailRecord | None = None
    overload: OverloadRecord | None = None
    verdict: VerdictRecord | None = None
    explanation: Explanation | None = None

    @classmethod
    def of(cls, found: Mapping[str, Conclusion]) -> Conclusions:
        """Sort conclusions by their types."""
        given = {type(each): each for each in found.values()}
        return cls(*(given.get(kind) for kind in _KINDS.values()))  # type: ignore[arg-type]

    def by_file(self) -> Iterator[tuple[str, Conclusion]]:
        """Yield the conclusions that are there, each with the name of its file."""
        for name, each in zip(_KINDS, fields(self), strict=True):
            found = getattr(self, each.name)
            if found is not None:
                yield name, found


def keep(
    path: Path, info: RunInfo, name: str, content: Conclusion, *, command: Sequence[str]
) -> None:
    """Write a conclusion into a run directory; an older one of this name is replaced."""
    with suppress(FileNotFoundError):
        size_of(path, name)
    origin = Origin(
        summary_sha256=_figures(info),
        tailscope_version=_engine.VERSION,
        command=tuple(command),
        written_unix_ns=time.time_ns(),
        content_sha256="",
    )
    write_text(path / name, encode(with_origin(content, origin)))


def with_origin(content: Conclusion, origin: Origin) -> Conclusion:
    """A conclusion with where it comes from; the checksum of its content is made anew."""
    own = replace(origin, content_sha256=_digest(as_content(content)))
    return replace(content, kept=own)


def kept(path: Path, info: RunInfo, name: str) -> Conclusion | None:
    """Read a conclusion that was kept; None where there is none."""
    file = path / name
    try:
        content = read_file(path, name, most_bytes=MOST_RECORD_BYTES)
    except FileNotFoundError:
        return None
    written = read_json(content, file)
    check_format(format_of(written, file), layout.FORMAT, file)
    origin = convert(written.get(_ORIGIN), Origin, f"{file}: {_ORIGIN}")
    expected, got = origin.content_sha256, _digest(written)
    if got != expected:
        raise RunCorruptError(
            f"{file}: content: sha256: expected {expected}, got {got}", code="checksum"
        )
    if origin.tailscope_version != _engine.VERSION:
        raise RunCorruptError(
            f"{file}: written by tailscope: expected {_engine.VERSION},"
            f" got {origin.tailscope_version}",
            code="other-version",
            hint=_AGAIN,
        )
    if origin.summary_sha256 != _figures(info):
        raise RunCorruptError(
            f"{file}: drawn from other figures: {layout.SUMMARY}: sha256:"
            f" expected {_figures(info)}, got {origin.summary_sha256}",
            code="other-figures",
            hint=_AGAIN,
        )
    return convert(written, _KINDS[name], file)


def _digest(content: Mapping[str, object]) -> str:
    own = {name: value for name, value in content.items() if name != _ORIGIN}
    text = json.dumps(own, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _figures(info: RunInfo) -> str:
    return info.files[layout.SUMMARY].sha256
