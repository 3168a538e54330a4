"""The results of a standard's tests as tables, for people: a terminal's and a page's."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tailscope.extra.standards.asked import STANDARDS
from tailscope.extra.standards.clauses import IPDV, Clause
from tailscope.units import count_text, duration_text, quantity_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tailscope.extra.standards.records import (
        ClauseRecord,
        FrameSizeResult,
        RateLimits,
        Spread,
        StandardRecord,
    )

_NOTHING = "-"
_LIMITED = {
    "loss": "frames lost",
    "back-pressure": "device took no more",
    "not-offered": "instrument: not offered",
    "max-rate": "instrument: highest rate",
}


class ResultTable(NamedTuple):
    """A test's results by size."""

    title: str
    """The name of the test, and the clauses that say how it is measured."""
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def result_tables(record: StandardRecord) -> list[ResultTable]:
    """One table a test, in the order of the standard."""
    found = [make(record.standard, record.sizes) for make in _TABLES]
    return [table for table in found if table is not None]


def clause_texts(clauses: Iterable[ClauseRecord]) -> dict[str, str]:
    """Say of each clause how the tests conform to it or deviate from it."""
    return {
        f"{Clause(each.document, each.section, each.title).cited} {each.title}": (
            f"{'conforms' if each.conforms else 'deviates'}: {each.says}"
        )
        for each in clauses
    }


def frame_text(size: FrameSizeResult) -> str:
    """Frames of a size, or of a mix of them."""
    return f"{size.frame_bytes} bytes" if size.frame_mix is None else size.frame_mix


def _titled(standard: str, test: str) -> str:
    """The name of a test, and its clause."""
    return f"{test.capitalize()} ({STANDARDS[standard].tests[test].cited})"


def _rates(
    test: str, of: Callable[[FrameSizeResult], RateLimits | None]
) -> Callable[[str, Sequence[FrameSizeResult]], ResultTable | None]:
    def make(standard: str, sizes: Sequence[FrameSizeResult]) -> ResultTable | None:
        rows = [
            (
                frame_text(size),
                _rate_text(found.rate_pps, found.is_lower_bound),
                _bits_text(size, found.rate_pps),
                _count_text(found.fails_at_pps),
                _LIMITED[found.limited_by],
                count_text(size.max_rate_pps),
            )
            for size in sizes
            if (found := of(size)) is not None
        ]
        header = ("frame", "frames/s", "Mbit/s", "fails at", "limited by", "highest rate")
        return ResultTable(_titled(standard, test), header, rows) if rows else None

    return make


def _latency(standard: str, sizes: Sequence[FrameSizeResult]) -> ResultTable | None:
    rows = [
        (
            frame_text(size),
            count_text(found.rate_pps),
            duration_text(found.latency_ns_mean),
            duration_text(found.latency_ns_min),
            duration_text(found.latency_ns_max),
            str(found.repetitions),
            str(found.tainted),
        )
        for size in sizes
        if (found := size.latency) is not None
    ]
    header = ("frame", "frames/s", "mean", "min", "max", "streams", "tainted")
    return ResultTable(_titled(standard, "latency"), header, rows) if rows else None


def _delays(standard: str, sizes: Sequence[FrameSizeResult]) -> ResultTable | None:
    rows = [
        (
            frame_text(size),
            count_text(found.rate_pps),
            _spread_text(found.typical_latency),
            _spread_text(found.worst_case_latency),
            _spread_text(found.pdv),
            _spread_text(found.ipdv_min),
            _spread_text(found.ipdv_median),
            _spread_text(found.ipdv_max),
            str(found.repetitions),
            f"{found.tainted_ratio:.1%}",
        )
        for size in sizes
        if (found := size.delays) is not None
    ]
    header = (
        *("frame", "frames/s", "TL", "WCL", "PDV", "IPDV Dmin", "Dmed", "Dmax"),
        *("streams", "tainted"),
    )
    if not rows:
        return None
    tests = STANDARDS[standard].tests
    cited = ", ".join(each.cited for each in (tests["latency"], tests["pdv"], IPDV))
    return ResultTable(f"Latency and its variation ({cited})", header, rows)


def _loss(standard: str, sizes: Sequence[FrameSizeResult]) -> ResultTable | None:
    rows = [
        (
            frame_text(size),
            f"{point.max_rate_ratio:.0%}",
            count_text(point.rate_pps),
            count_text(point.frames_sent),
            count_text(point.frames_received),
            "not offered" if point.loss_percent is None else f"{point.loss_percent:.4f} %",
        )
        for size in sizes
        for point in size.loss
    ]
    header = ("frame", "of highest", "frames/s", "sent", "received", "loss")
    return ResultTable(_titled(standard, "loss"), header, rows) if rows else None


def _back_to_back(standard: str, sizes: Sequence[FrameSizeResult]) -> ResultTable | None:
    rows = [
        (
            frame_text(size),
            ("≥ " if found.is_lower_bound else "") + f"{found.frames_mean:,.1f}",
            count_text(found.longest_frames),
            count_text(found.rate_pps),
            quantity_text(found.implied_buffer_s, "s"),
            (
                _NOTHING
                if found.corrected_buffer_s is None
                else quantity_text(found.corrected_buffer_s, "s")
            ),
            str(found.repetitions),
        )
        for size in sizes
        if (found := size.back_to_back) is not None
    ]
    header = ("frame", "frames", "longest tried", "frames/s", "buffer", "corrected", "searches")
    return ResultTable(_titled(standard, "back-to-back"), header, rows) if rows else None


def _recovery(standard: str, sizes: Sequence[FrameSizeResult]) -> ResultTable | None:
    rows = [
        (
            frame_text(size),
            count_text(found.overload_pps),
            count_text(found.reduced_pps),
            quantity_text(found.recovery_s_mean, "s") if found.has_lost else "no loss",
            quantity_text(found.recovery_s_max, "s") if found.has_lost else _NOTHING,
            str(found.repetitions),
        )
        for size in sizes
        if (found := size.recovery) is not None
    ]
    header = ("frame", "overload, frames/s", "then", "recovery, mean", "max", "trials")
    return ResultTable(_titled(standard, "recovery"), header, rows) if rows else None


def _soak(standard: str, sizes: Sequence[FrameSizeResult]) -> ResultTable | None:
    rows = [
        (
            frame_text(size),
            count_text(found.rate_pps),
            f"{found.duration_s:g} s",
            count_text(found.frames_sent),
            count_text(found.frames_sent - found.frames_received) if found.offered else _NOTHING,
            _NOTHING if found.latency_ns_p50 is None else duration_text(found.latency_ns_p50),
            _NOTHING if found.latency_ns_p999 is None else duration_text(found.latency_ns_p999),
        )
        for size in sizes
        if (found := size.soak) is not None
    ]
    header = ("frame", "frames/s", "lasts", "sent", "lost", "p50", "p99.9")
    return ResultTable(_titled(standard, "soak"), header, rows) if rows else None


def _goals(standard: str, sizes: Sequence[FrameSizeResult]) -> ResultTable | None:
    rows = [
        (
            frame_text(size),
            goal.goal,
            _rate_text(
                goal.relevant_lower_bound_pps, goal.limited_by not in ("loss", "back-pressure")
            ),
            _count_text(goal.relevant_upper_bound_pps),
            (
                _NOTHING
                if goal.conditional_throughput_pps is None
                else f"{goal.conditional_throughput_pps:,.0f}"
            ),
            "regular" if goal.is_regular else "irregular",
            _LIMITED[goal.limited_by] if goal.limited_by else _NOTHING,
        )
        for size in sizes
        for goal in size.goals
    ]
    header = (
        *("frame", "Search Goal", "Relevant Lower Bound", "Relevant Upper Bound"),
        *("Conditional Throughput", "Goal Result", "limited by"),
    )
    return ResultTable(_titled(standard, "goals"), header, rows) if rows else None


_TABLES: tuple[Callable[[str, Sequence[FrameSizeResult]], ResultTable | None], ...] = (
    _rates("throughput", lambda size: size.throughput),
    _rates("capacity", lambda size: size.capacity),
    _latency,
    _delays,
    _loss,
    _back_to_back,
    _recovery,
    _soak,
    _goals,
)


def _rate_text(rate_pps: int | None, is_lower_bound: bool) -> str:
    if rate_pps is None:
        return "not known" if is_lower_bound else "none"
    return ("≥ " if is_lower_bound else "") + count_text(rate_pps)


def _count_text(count: int | None) -> str:
    return _NOTHING if count is None else count_text(count)


def _bits_text(size: FrameSizeResult, rate_pps: int | None) -> str:
    """Bits of frames, without what an Ethernet puts between them."""
    if rate_pps is None or size.frame_bytes is None:
        return _NOTHING
    return f"{rate_pps * size.frame_bytes * 8 / 1e6:,.1f}"


def _spread_text(found: Spread | None) -> str:
    return _NOTHING if found is None else duration_text(found.median_ns)


def remarks_of(record: StandardRecord) -> Iterator[str]:
    """Yield the remarks on each size, such as what was not measured."""
    for size in record.sizes:
        for remark in size.remarks:
            yield f"{frame_text(size)}: {remark}"
