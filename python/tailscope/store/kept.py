"""Conclusions kept beside the figures that they were drawn from.

A run directory is never changed. What was concluded from it later lies beside ``run.json``, outside
of its checksums, and names the figures that it is of, so that no report shows it beside others.
"""

from __future__ import annotations

import hashlib
import json
import time
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from msgspec.structs import replace

import tailscope._engine as _engine
from tailscope.exceptions import RunCorruptError
from tailscope.registry import added_conclusion, added_conclusions
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
from tailscope.store.records.kept import KeptRecord, Origin
from tailscope.store.records.overload import OverloadRecord
from tailscope.store.records.verdict import VerdictRecord

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tailscope.store.records.run import RunInfo

Conclusion: TypeAlias = KeptRecord | OverloadRecord
Kind = TypeVar("Kind")
_KINDS: Mapping[str, type[Conclusion]] = {
    layout.OVERLOAD: OverloadRecord,
    layout.VERDICT: VerdictRecord,
    layout.EXPLANATION: Explanation,
}
_ORIGIN = "kept"
_AGAIN = "repeat the command that kept it, or remove it"


def kept_files() -> tuple[str, ...]:
    """Name the files of conclusions; of these, checksums cover a measurement's explanation only."""
    return (*added_conclusions(), *_KINDS)


class Conclusions(dict[str, Conclusion]):
    """The conclusions kept beside a run, by the names of their files."""

    def of(self, kind: type[Kind]) -> Kind | None:
        """Return the conclusion of a type, if there is one."""
        return next((each for each in self.values() if isinstance(each, kind)), None)

    @property
    def overload(self) -> OverloadRecord | None:
        """The predicted highest rate."""
        return self.of(OverloadRecord)

    @property
    def verdict(self) -> VerdictRecord | None:
        """Whether the run meets a service level."""
        return self.of(VerdictRecord)

    @property
    def explanation(self) -> Explanation | None:
        """The causes of the tail of captures."""
        return self.of(Explanation)


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
    kind: type[Conclusion] = _KINDS.get(name) or added_conclusion(name)
    return convert(written, kind, file)


def _digest(content: Mapping[str, object]) -> str:
    own = {name: value for name, value in content.items() if name != _ORIGIN}
    text = json.dumps(own, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _figures(info: RunInfo) -> str:
    return info.files[layout.SUMMARY].sha256
