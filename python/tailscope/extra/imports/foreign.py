"""Results of others, whatever format they came in."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np

from tailscope.exceptions import CaptureError, UsageError
from tailscope.models.buckets import Buckets
from tailscope.units import shortened

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tailscope.engine.analysis import Figure, Histogram, Rate, Side
    from tailscope.store.records.plan import Foreign

UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
"""Units of values, in ns."""
MOST = 2**62
"""The longest latency in ns, 146 years, and the most packets."""
_LEAST = Decimal("1e-9")
"""Nothing but 0 is shorter."""
_MOST_CHARACTERS = 40
_WORST = 5_000
"""Number of the worst packets that are kept."""


@dataclass(frozen=True)
class WorstPackets:
    """The packets with the longest latencies, longest first."""

    latency_ns: NDArray[np.uint64]
    pre_ns: NDArray[np.uint64]
    post_ns: NDArray[np.uint64]


@dataclass(frozen=True)
class EveryPacket:
    """All packets that came back, in the order in which they left."""

    pre_ns: NDArray[np.uint64]
    latency_ns: NDArray[np.uint64]

    @classmethod
    def of(cls, sent_ns: NDArray[np.integer], latency_ns: NDArray[np.integer]) -> EveryPacket:
        """Sort packets by the time when they left."""
        order = np.argsort(sent_ns, kind="stable")
        return cls(sent_ns[order].astype(np.uint64), latency_ns[order].astype(np.uint64))

    def worst(self) -> WorstPackets:
        """Choose those with the longest latencies."""
        order = np.lexsort((self.pre_ns, -self.latency_ns.astype(np.int64)))[:_WORST]
        pre_ns, latency_ns = self.pre_ns[order], self.latency_ns[order]
        return WorstPackets(latency_ns, pre_ns, pre_ns + latency_ns)

    def buckets(self, where: Path | str) -> Buckets:
        """Count each latency."""
        values_ns, counts = np.unique(self.latency_ns, return_counts=True)
        edges = values_ns.tolist()
        return buckets_of(where, edges, edges, counts.tolist())


@dataclass(frozen=True, kw_only=True)
class ForeignRun:
    """A result of others."""

    kind: Foreign
    name: str
    """Name of its files, without extensions."""
    source: str
    """Place of the result."""
    unit: str
    """Unit of the values in it."""
    files: Mapping[str, Path]
    """Files by what they hold."""
    count: int
    """Number of latencies."""
    tag: str | None = None
    """Tag of the result, in a log with several."""
    bucket_ns: int | None = None
    """Width of all buckets; None where widths differ, or there are none."""
    trim_ns: int | None = None
    """Trim at the beginning."""
    buckets: Buckets | None = None
    exact: Mapping[float, int] = field(default_factory=dict)
    """Quantiles and their exact values, ns."""
    worst: WorstPackets | None = None
    packets: EveryPacket | None = None
    gaps: Mapping[Side, Histogram] = field(default_factory=dict)
    """Time between packets of a side."""
    rate: Mapping[Side, Rate] = field(default_factory=dict)
    """Packets of a side in each second."""
    figures: Mapping[str, Figure] = field(default_factory=dict)
    """Other figures, by the names of ``summary.json``."""
    warnings: tuple[str, ...] = ()
    """Warnings, as sentences."""


def text_of(path: Path) -> str:
    """Read a text file."""
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise CaptureError(
            f"{path}: offset {error.start}: expected text", code="not-text"
        ) from None


def ns_of(text: str, unit: str, where: str) -> Decimal:
    """Read a latency."""
    got = shortened(text, _MOST_CHARACTERS)
    try:
        value = Decimal(text) * UNITS[unit]
    except ArithmeticError:
        value = Decimal("NaN")
    if not (value.is_finite() and 0 <= value <= MOST):
        raise CaptureError(
            f"{where}: expected a latency of 0 to {MOST} ns, got {got!r}", code="latency-range"
        )
    if 0 < value < _LEAST:
        raise CaptureError(
            f"{where}: expected a latency of 0, or of {_LEAST} ns at least, got {got!r}",
            code="latency-range",
        )
    return value


def count_of(text: str, where: str) -> int:
    """Read a number of packets."""
    if len(text) > len(str(MOST)) or int(text) > MOST:
        got = shortened(text, _MOST_CHARACTERS)
        raise CaptureError(
            f"{where}: expected at most {MOST} packets, got {got}", code="count-range"
        )
    return int(text)


def buckets_of(
    where: Path | str, low_ns: Sequence[int], high_ns: Sequence[int], counts: Sequence[int]
) -> Buckets:
    """Make buckets of what was read."""
    if (total := sum(counts)) > MOST:
        raise CaptureError(
            f"{where}: expected at most {MOST} packets, got {total}", code="count-range"
        )
    if (longest := max(high_ns, default=0)) > MOST:
        raise CaptureError(
            f"{where}: expected latencies of at most {MOST} ns, got {longest}", code="latency-range"
        )
    return Buckets(*(np.array(each, np.int64) for each in (low_ns, high_ns, counts)))


def exact_run(
    kind: Foreign,
    path: Path,
    unit: str,
    latency_ns: NDArray[np.int64],
    sent_ns: NDArray[np.int64] | None = None,
    figures: Mapping[str, Figure] | None = None,
    warnings: tuple[str, ...] = (),
) -> ForeignRun:
    """Make a run of single latencies, and of the times when their packets left."""
    if not len(latency_ns):
        raise CaptureError(f"{path}: expected latencies, got none", code="no-latencies")
    times_ns = np.zeros(len(latency_ns), np.int64) if sent_ns is None else sent_ns
    packets = EveryPacket.of(times_ns, latency_ns)
    return ForeignRun(
        kind=kind,
        name=path.stem,
        source=str(path),
        unit=unit,
        files={"latencies": path},
        count=len(latency_ns),
        buckets=packets.buckets(path),
        worst=None if sent_ns is None else packets.worst(),
        packets=None if sent_ns is None else packets,
        figures=figures or {},
        warnings=warnings,
    )


def unit_needed(path: Path, what: str) -> UsageError:
    """The error of a file that does not say in which unit its values are."""
    return UsageError(
        f"{path}: {what} does not say the unit of its values",
        code="unit-missing",
        hint=f"--unit {'|'.join(UNITS)}: the unit in which they were recorded, or printed",
    )


def unit_differs(path: Path, unit: str | None, expected: str, what: str) -> CaptureError:
    """Return the error of a unit that a file's format contradicts."""
    return CaptureError(
        f"{path}: --unit: got {unit}, expected {expected}: {what} is in {expected}",
        code="unit-differs",
        hint="leave --unit out",
    )
