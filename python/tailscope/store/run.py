"""The content of a run, apart from its single packets: all that a report draws."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tailscope.exceptions import RunCorruptError
from tailscope.store.grid import grid_for
from tailscope.store.info import shown_as
from tailscope.store.kept import Conclusions
from tailscope.store.notes import Remarks
from tailscope.store.tables import FLOW_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from tailscope.engine.analysis import (
        Analysis,
        Figure,
        Group,
        Histogram,
        LossRun,
        Quantile,
        Rate,
        Side,
        Worst,
    )
    from tailscope.engine.columns import Column
    from tailscope.store.records.explanation import Explanation
    from tailscope.store.records.run import RunInfo

    TableColumns: TypeAlias = Mapping[str, NDArray[np.generic]]
    """Columns of a table by their names."""
    NewColumns: TypeAlias = Mapping[str, Column | Sequence[object]]
    """Columns of a table that is to be written."""
    ExplainedColumns: TypeAlias = Mapping[str, NDArray[Any] | Sequence[str]]
    """Parts of the worst packets' latencies, and their causes."""

SIDES: tuple[Side, Side] = ("pre", "post")

_SUMS = {
    "pre_packets": (
        "pre_trimmed",
        "pre_unkeyed",
        "ambiguous",
        "repeated",
        "reverse",
        "local",
        "sent",
    ),
    "sent": ("count", "lost", "late", "negative", "outside", "corrupt", "resegmented", "untimed"),
    "post_packets": (
        "post_trimmed",
        "post_unkeyed",
        "count",
        "duplicated",
        "post_negative",
        "post_reverse",
        "post_ambiguous",
        "post_late",
        "post_outside",
        "post_resegmented",
        "post_untimed",
        "post_corrupt",
        "post_unknown",
    ),
}

_LATER = {"post_corrupt": 0, "untimed": 0, "post_untimed": 0}
"""What runs of earlier versions did not count."""


class Edges(NamedTuple):
    """Non-empty buckets of a histogram of others; they may overlap."""

    low_ns: NDArray[np.uint64]
    high_ns: NDArray[np.uint64]
    """A latency in a bucket is at least the one, and at most the other."""
    counts: NDArray[np.uint64]


@dataclass(frozen=True)
class Run:
    """One run: a pair of captures that was analysed, or a measurement."""

    label: str
    """Name of the run in figures."""
    info: RunInfo
    """The content of ``run.json``."""
    summary: Mapping[str, Figure]
    """Every figure by its flat name."""
    warnings: tuple[str, ...]
    percentiles: list[Quantile]
    """Percentiles from the minimum up to the last quantile that has a sample beyond."""
    latency: Histogram
    gaps: Mapping[Side, Histogram]
    rate: Mapping[Side, Rate]
    worst: Worst
    edges: Edges | None = None
    """Buckets of an imported histogram, with both edges."""
    worst_explained: ExplainedColumns = field(default_factory=dict)
    """The parts of the worst packets' latencies and their causes; empty where nothing is known."""
    worst_flows: NewColumns = field(default_factory=dict)
    """Flow and size of the worst packets; empty where flows are not known."""
    flows: Sequence[Group] = ()
    """Figures of each flow; empty where flows are not known."""
    loss_runs: Sequence[LossRun] = ()
    """Runs of lost packets, the longest first."""
    explanation: Explanation | None = None
    """Explanation of the tail; None where nothing is known."""
    path: Path | None = None
    """Its directory, with tables that are read when they are asked for."""
    kept: Conclusions = field(default_factory=Conclusions)
    """Conclusions that were kept beside the run."""
    remarks: Remarks = field(default_factory=Remarks)
    """Tags and notes of its user."""

    @classmethod
    def of(
        cls,
        analysis: Analysis,
        *,
        label: str,
        info: RunInfo,
        bucket_ns: int,
        path: Path | None = None,
    ) -> Run:
        """Collect the content of a run from an analysis."""
        flows = analysis.worst_flows
        return cls(
            worst_flows={} if flows is None else _named_flows(*flows),
            flows=analysis.groups("flow"),
            loss_runs=analysis.loss_runs,
            label=shown_as(label, info),
            info=info,
            summary=analysis.summary,
            warnings=analysis.warnings,
            percentiles=analysis.quantiles(grid_for(int(analysis.summary["count"] or 0))),
            latency=analysis.histogram(bucket_ns),
            gaps={side: analysis.gaps(side, bucket_ns) for side in SIDES},
            rate={side: analysis.rate(side) for side in SIDES},
            worst=analysis.worst,
            path=path,
        )


def _named_flows(names: Sequence[str], sizes: Sequence[int]) -> NewColumns:
    import numpy as np

    return dict(zip(FLOW_COLUMNS, (names, np.array(sizes, np.uint64)), strict=True))


def check_conservation(
    summary: Mapping[str, Figure], source: str, *, is_imported: bool = False
) -> None:
    """Check that no packet got lost between the figures."""
    for whole, parts in _SUMS.items():
        numbers = {name: summary.get(name, _LATER.get(name)) for name in (whole, *parts)}
        if is_imported and None in numbers.values():
            continue
        for name, number in numbers.items():
            if not isinstance(number, int):
                raise RunCorruptError(
                    f"{source}: {name}: expected a count, got {number!r}", code="field-value"
                )
        total = sum(numbers[part] for part in parts)  # type: ignore[misc]
        if total != numbers[whole]:
            equation = " + ".join(parts)
            raise RunCorruptError(
                f"{source}: {whole} = {equation}: expected {numbers[whole]}, got {total}",
                code="sum-of-parts",
            )
