"""Material of figures: a run, and its tables, which are read when a figure asks for them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from tailscope.store.info import foreign_text
from tailscope.store.reader import packets_of, run_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from tailscope.engine.columns import Column
    from tailscope.store.run import Run
    from tailscope.store.tables import Table

TIME_COLUMNS = 240
LATENCY_ROWS = 60
_ERRORS_PER_DECADE = 20
_LONGEST_ERROR = 10
_NS_PER_S = 1_000_000_000
_TABLED = 1 << 18
"""Values below that are looked up."""
_PACKET_COLUMNS = ("pre_ns", "latency_ns", "intended_ns")


@dataclass(frozen=True)
class Density:
    """Counts of packets by time and latency."""

    start_ns: NDArray[np.int64]
    """Edges in time, since the begin of the run."""
    edge_ns: NDArray[np.float64]
    """Edges in latency, each a fixed factor above the one below."""
    counts: NDArray[np.int64]
    matched: NDArray[np.int64]
    """Packets that were sent in each second of the run, and matched."""


@dataclass(frozen=True)
class Departures:
    """Delays of packets behind their intended departure."""

    edge_ns: NDArray[np.float64]
    counts: NDArray[np.int64]
    """Packets in [edge, next edge)."""


class Places:
    """The place of values among edges: the number of edges that are not above a value."""

    def __init__(self, edges: NDArray[np.int64]) -> None:
        self._edges = edges
        ends = np.clip(edges, 0, _TABLED)
        sizes = np.diff(ends, prepend=0, append=_TABLED)
        self._table = np.repeat(np.arange(len(edges) + 1), sizes)

    def of(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the places; most values are small, and looked up in a table."""
        is_large = values.view(np.uint64) >= _TABLED
        if not is_large.any():
            return self._table[values]
        places = self._table[np.where(is_large, 0, values)]
        places[is_large] = np.searchsorted(self._edges, values[is_large], side="right")
        return places


class Material:
    """A run and its tables."""

    def __init__(self, run: Run) -> None:
        self.run = run

    @property
    def label(self) -> str:
        """Return the name of the run."""
        return self.run.label

    @cached_property
    def begin_ns(self) -> int:
        """Begin of the run on its own clock: that of its first second; else of its worst packets.

        Most imports do not say when they began.
        """
        seconds = self.run.rate["pre"].start_ns
        if not len(seconds) and foreign_text(self.run.info) is not None:
            return int(min(self.run.worst.pre_ns, default=0))
        return int(seconds[0]) if len(seconds) else 0

    @cached_property
    def lasts_ns(self) -> int:
        """The time from the beginning of the run to the end of its last second."""
        ends = [int(rate.start_ns[-1]) for rate in self.run.rate.values() if len(rate.start_ns)]
        return max(ends, default=self.begin_ns) + _NS_PER_S - self.begin_ns

    def since_s(self, ns: ArrayLike) -> NDArray[np.float64]:
        """Seconds since the begin of the run."""
        return (np.asarray(ns).astype(np.int64) - self.begin_ns) / _NS_PER_S

    def table(self, table: Table, columns: Sequence[str]) -> Mapping[str, Column] | None:
        """Columns of a table; None where the run has none."""
        return run_table(self.run, table, columns)

    @cached_property
    def density(self) -> Density | None:
        """Latencies over time; None where single packets were not kept."""
        return self._packets[0]

    @cached_property
    def departures(self) -> Departures | None:
        """Errors of departure; None where the run has none."""
        return self._packets[1]

    @cached_property
    def _packets(self) -> tuple[Density | None, Departures | None]:
        """One pass over all packets."""
        low, high = self.run.summary["latency_ns_min"], self.run.summary["latency_ns_max"]
        if low is None or high is None:
            return None, None
        # The last edge lies above the highest latency: it takes one more than that.
        edge_ns = np.geomspace(max(int(low), 1), int(high) + 1, LATENCY_ROWS + 1)
        edge_ns[0], edge_ns[-1] = int(low), int(high) + 1
        inner_ns = np.ceil(edge_ns[1:-1]).astype(np.int64)
        start_ns = np.linspace(0, self.lasts_ns, TIME_COLUMNS + 1).astype(np.int64)
        width_ns = self.lasts_ns / TIME_COLUMNS
        error_ns = np.geomspace(
            1, 10.0**_LONGEST_ERROR, _LONGEST_ERROR * _ERRORS_PER_DECADE + 1
        ).astype(np.int64)
        error_ns = np.concatenate([[0], np.unique(error_ns)])
        rows, lateness = Places(inner_ns), Places(error_ns)
        cells = np.zeros(TIME_COLUMNS * LATENCY_ROWS, np.int64)
        matched = np.zeros(self.lasts_ns // _NS_PER_S, np.int64)
        errors = np.zeros(len(error_ns), np.int64)
        packets = packets_of(self.run)
        if packets is None:
            return None, None
        with packets:
            for pre_ns, latency_ns, intended_ns in packets.batches(*_PACKET_COLUMNS):
                since_ns = pre_ns.view(np.int64) - self.begin_ns
                column = np.clip((since_ns / width_ns).astype(np.int64), 0, TIME_COLUMNS - 1)
                row = rows.of(latency_ns.view(np.int64))
                cells += np.bincount(column * LATENCY_ROWS + row, minlength=len(cells))
                second = np.clip(since_ns // _NS_PER_S, 0, len(matched) - 1)
                matched += np.bincount(second[since_ns >= 0], minlength=len(matched))
                if intended_ns is not None:
                    late_ns = np.maximum(pre_ns.view(np.int64) - intended_ns.view(np.int64), 0)
                    errors += np.bincount(lateness.of(late_ns) - 1, minlength=len(errors))
        density = Density(start_ns, edge_ns, cells.reshape(TIME_COLUMNS, LATENCY_ROWS), matched)
        edges = np.append(error_ns, np.inf).astype(np.float64)
        return density, Departures(edges, errors) if errors.any() else None
