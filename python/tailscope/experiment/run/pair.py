"""One pair of captures: its figures, and the files that were asked for.

The same function serves a process that takes one pair after the other and the workers of a
scheduler, so that the files are the same, byte for byte.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tailscope.exceptions import ClocksApartError, KeyChangesError, UsageError
from tailscope.store.records.plan import AnalysisPlan
from tailscope.words.clocks import doubts_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailscope.engine.analysis import (
        Analysis,
        ClockDoubt,
        Figure,
        Group,
        LossRun,
        PacketSink,
        Progress,
        Side,
        Sink,
    )
    from tailscope.store.directory import Draw, RunWriter
    from tailscope.store.records.about import AboutRecord


class Figures(NamedTuple):
    """The figures and warnings shown of one pair."""

    summary: Mapping[str, Figure]
    """Every figure by its flat name."""
    warnings: tuple[str, ...]
    """Warnings that a reader of the figures must know."""
    groups: Mapping[str, Sequence[Group]] = {}
    """Figures of packets that have something in common, by what it is."""
    loss_runs: Sequence[LossRun] = ()
    """Runs of lost packets, the longest first."""
    first_ns: int = 0
    """When the first packet was seen before the device, since 1970."""
    clock_doubts: Sequence[ClockDoubt] | None = None
    """When a clock was in doubt; None where no log of a clock was given."""

    def record(self) -> dict[str, object]:
        """The figures as ``--json`` writes them."""
        groups = {
            "groups": {
                by: [group._asdict() for group in groups] for by, groups in self.groups.items()
            }
        }
        return {
            **self.summary,
            "warnings": list(self.warnings),
            **(groups if self.groups else {}),
            **({} if self.clock_doubts is None else {"clock_doubts": self._doubts()}),
        }

    def _doubts(self) -> list[dict[str, object]]:
        return [doubt._asdict() for doubt in self.clock_doubts or ()]


class Find(Protocol):
    """Analyses a pair, and hands out its packets."""

    def __call__(self, *, sink: Sink | None, packets: PacketSink | None) -> Analysis:
        """Return the analysis; `packets` hears of flows, too."""


@dataclass(frozen=True)
class PairPlan:
    """The plan of an analysis of one pair."""

    pre: str
    post: str
    """The captures; ``"-"`` is standard input."""
    match_on: str
    trim_ns: int
    window_ns: int
    bucket_ns: int
    """Durations in ns."""
    worst: int
    """Number of worst packets to keep."""
    csv_folder: Path | None
    """Folder for the authors' CSV files."""
    out: Path | None
    """The run directory."""
    by: tuple[str, ...] = ()
    """What packets are grouped by."""
    clocks: str = "detect"
    about: AboutRecord | None = None
    """The user's own words about the pair."""
    clock_doubts: tuple[ClockDoubt, ...] | None = None
    """When logs of clocks leave them in doubt; None without a log."""

    def doubted(self, side: Side) -> list[tuple[int, int]]:
        """When the clock of a side is in doubt."""
        doubts = self.clock_doubts or ()
        return [(doubt.start_ns, doubt.end_ns) for doubt in doubts if doubt.side == side]

    def record(self) -> AnalysisPlan:
        """The resolved options as ``run.json`` keeps them."""
        return AnalysisPlan(
            pre=self.pre,
            post=self.post,
            match_on=self.match_on,
            clocks=self.clocks,
            trim_ns=self.trim_ns,
            window_ns=self.window_ns,
            bucket_ns=self.bucket_ns,
            worst=self.worst,
        )


def analyze_pair(plan: PairPlan, draw: Draw, progress: Progress | None = None) -> Figures:
    """Analyse one pair and write what was asked for; a failure leaves nothing behind.

    Where the clocks turn out to be apart and nobody said how, files are read again and the
    difference is estimated, of clocks whose offset is known the drift; where packets change their
    form, they are matched by the key that joins them. The figures say so.
    """
    from tailscope.engine.analysis import ESTIMATED_DRIFT, reads_twice

    clocks, joined_by = plan.clocks, None
    while True:
        try:
            return _analyze_by(plan, draw, clocks, joined_by, progress)
        except ClocksApartError:
            again = all(file.is_file() for file in (*files_of(plan.pre), *files_of(plan.post)))
            # What logs say of clocks, an estimate would take back.
            if reads_twice(clocks) or not again or plan.clock_doubts is not None:
                raise
            clocks = "estimate" if clocks == "detect" else clocks + ESTIMATED_DRIFT
        except KeyChangesError as changes:
            joined_by = changes.key


def files_of(capture: str) -> list[Path]:
    """The files of a capture."""
    from tailscope.engine.analysis import source_of

    return [Path(file) for file, _ in source_of(capture)]


def _analyze_by(
    plan: PairPlan, draw: Draw, clocks: str, joined_by: str | None, progress: Progress | None
) -> Figures:
    from tailscope.engine.analysis import analyze

    def find(*, sink: Sink | None, packets: PacketSink | None) -> Analysis:
        return analyze(
            plan.pre,
            plan.post,
            match_on=plan.match_on,
            joined_by=joined_by,
            clocks=clocks,
            doubts=(plan.doubted("pre"), plan.doubted("post")),
            trim=plan.trim_ns,
            window=plan.window_ns,
            worst=plan.worst,
            series=False,
            sink=sink,
            packets=packets,
            progress=progress,
        )

    return write_pair(plan, draw, find)


def write_pair(plan: PairPlan, draw: Draw, find: Find) -> Figures:
    """Write what was asked for of one pair; a failure leaves nothing behind."""
    with ExitStack() as stack:
        csv_writer = run_writer = None
        if plan.csv_folder is not None:
            from tailscope.store.authors import CsvWriter

            csv_writer = stack.enter_context(
                CsvWriter(
                    plan.csv_folder,
                    files_of(plan.pre)[0],
                    trim_ns=plan.trim_ns,
                    bucket_ns=plan.bucket_ns,
                    worst=plan.worst,
                )
            )
        if plan.out is not None:
            from tailscope.store.directory import RunWriter

            has_doubts = plan.clock_doubts is not None
            run_writer = stack.enter_context(
                RunWriter(plan.out, draw=draw, has_flows=True, has_doubts=has_doubts)
            )
        analysis = find(sink=None if csv_writer is None else csv_writer.sink, packets=run_writer)
        doubts = _doubts_within(plan, analysis)
        if csv_writer is not None:
            csv_writer.finish(analysis)
        if run_writer is not None:
            if doubts is not None:
                run_writer.add_clock_doubts(doubts)
            _finish(run_writer, analysis, plan)
        groups = {by: analysis.groups(by) for by in plan.by}
        runs = analysis.loss_runs
        first_ns = int(analysis.rate("pre").start_ns[0]) if runs else 0
    return Figures(dict(analysis.summary), analysis.warnings, groups, runs, first_ns, doubts)


def _doubts_within(plan: PairPlan, analysis: Analysis) -> list[ClockDoubt] | None:
    """Return the doubts that concern times of the captures, and warn of them."""
    if plan.clock_doubts is None:
        return None
    from tailscope.store.run import SIDES

    found: list[ClockDoubt] = []
    for side in SIDES:
        begin_ns, end_ns = _span(analysis, side)
        within = [
            doubt._replace(start_ns=max(doubt.start_ns, begin_ns), end_ns=min(doubt.end_ns, end_ns))
            for doubt in plan.clock_doubts
            if doubt.side == side and doubt.start_ns <= end_ns and begin_ns <= doubt.end_ns
        ]
        if any(
            (doubt.start_ns, doubt.end_ns, doubt.reason) == (begin_ns, end_ns, "silence")
            for doubt in within
        ):
            raise UsageError(
                f"--clock-log: the log of {side} says nothing of the time of its capture",
                code="clock-log-elsewhere",
                hint="@SECONDS behind the file is added to the times of the log",
            )
        if within:
            analysis.warnings += (doubts_text(within, begin_ns),)
        found += within
    return found


def _span(analysis: Analysis, side: Side) -> tuple[int, int]:
    """Return when the first and the last packet of a side were seen, on its own clock."""
    offset_ns = analysis.summary["clock_offset_ns"] if side == "post" else None
    seconds, duration_s = analysis.rate(side).start_ns, analysis.summary[f"{side}_duration_s"]
    begin_ns = int(seconds[0]) if len(seconds) else 0
    begin_ns += int(offset_ns or 0)
    return begin_ns, begin_ns + round(float(duration_s or 0) * 1e9)


def _finish(writer: RunWriter, analysis: Analysis, plan: PairPlan) -> None:
    from tailscope.store.directory import check_whole
    from tailscope.store.provenance import analysis_info

    lacks = writer.finish(
        analysis,
        info=analysis_info(plan.record(), analysis.summary, plan.about),
        bucket_ns=plan.bucket_ns,
    )
    check_whole(writer.path, lacks)
