"""Alignment of recordings with the clock of the captures, and its error."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tailscope.exceptions import UsageError
from tailscope.store.records.explanation import Alignment
from tailscope.units import duration_ns, refuse_unknown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_UNIX_FROM_NS = 10**18
"""September 2001 in Unix time; a clock that counts from boot is far below."""
_REFERENCE_ERROR_NS = 1_000
"""Resolution of the Unix time that perf stores: one microsecond."""


class Offsets(NamedTuple):
    """The clock offsets that the user gave for recordings."""

    by_name: Mapping[str, int]
    """Offset to add to each recording's times to get those of the captures, in nanoseconds; the
    empty name stands for all other recordings."""
    error_ns: int
    """Uncertainty of the offsets, in nanoseconds."""

    def of(self, name: str) -> int | None:
        """Return the offset of a recording; None if there is none."""
        return self.by_name.get(name, self.by_name.get(""))


def by_name(texts: Sequence[str], names: Sequence[str], option: str) -> dict[str, str]:
    """Read an option that is given as VALUE for all recordings, or as NAME=VALUE for one."""
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.rpartition("=")
        if equals:
            refuse_unknown(option, name, names, "offset-name")
        if name in values:
            raise UsageError(
                f"{option}: got two values for {name or 'all files'}", code="offset-twice"
            )
        values[name] = value
    return values


def offsets_of(texts: Sequence[str], error: str, names: Sequence[str]) -> Offsets:
    """Read ``--offset`` and ``--offset-error``."""
    offsets = {}
    for name, value in by_name(texts, names, "--offset").items():
        size_ns = duration_ns(value.removeprefix("-"), "--offset")
        offsets[name] = -size_ns if value.startswith("-") else size_ns
    return Offsets(offsets, duration_ns(error, "--offset-error"))


def is_unix(time_ns: int) -> bool:
    """Return True if a time can be Unix time; otherwise its clock has another origin."""
    return time_ns >= _UNIX_FROM_NS


def align(
    name: str,
    span_ns: tuple[int, int],
    captures_ns: tuple[int, int],
    offsets: Offsets,
    *,
    to_unix_ns: int | None = None,
) -> Alignment:
    """Bring the clock of a recording to that of the captures."""
    offset = offsets.of(name)
    if offset is None and to_unix_ns is not None and is_unix(captures_ns[0]):
        moved = (span_ns[0] + to_unix_ns, span_ns[1] + to_unix_ns)
        if not _overlap(moved, captures_ns):
            raise _apart(name, moved, captures_ns)
        error_ns = offsets.error_ns + _REFERENCE_ERROR_NS
        return Alignment(basis="recorded", offset_ns=to_unix_ns, error_ns=error_ns)
    both_unix = is_unix(span_ns[0]) and is_unix(captures_ns[0])
    if offset is None and not both_unix:
        if is_unix(span_ns[0]) != is_unix(captures_ns[0]):
            raise _apart(name, span_ns, captures_ns)
        return Alignment(basis="unknown", offset_ns=None, error_ns=None)
    offset_ns = 0 if offset is None else offset
    moved = (span_ns[0] + offset_ns, span_ns[1] + offset_ns)
    if not _overlap(moved, captures_ns):
        raise _apart(name, moved, captures_ns)
    return Alignment(
        basis="unix" if offset is None else "given", offset_ns=offset_ns, error_ns=offsets.error_ns
    )


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[1] > other[0] and one[0] < other[1]


def _apart(name: str, span_ns: tuple[int, int], captures_ns: tuple[int, int]) -> UsageError:
    return UsageError(
        f"{name}: its times, {_span_text(span_ns)}, expected to overlap those of the captures,"
        f" {_span_text(captures_ns)}",
        code="times-apart",
        hint="pass --offset TIME, such as -25.8s: what to add to its times to get those of the"
        " captures",
    )


def _span_text(span_ns: tuple[int, int]) -> str:
    return " to ".join(f"{ns / 1e9:.6f}" for ns in span_ns) + " s"
