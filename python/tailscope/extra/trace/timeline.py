"""``tailscope report --format perfetto``: a run as a timeline for ui.perfetto.dev."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tailscope.units import count_text

if TYPE_CHECKING:
    from collections.abc import Iterator

_FILE = Path("trace.pftrace")


def write_timeline(run: Path, out: Path | None) -> Iterator[str]:
    """Write a run, or what ``tailscope noise`` recorded, as a file for ui.perfetto.dev.

    Perfetto's trace processor queries the file in SQL. Of a run with more than 200,000 packets or
    interruptions of CPUs, it has about as many: those within 5 ms of the very worst packets. It is
    called ``trace.pftrace`` unless ``--out`` says otherwise.
    """
    from tailscope.extra.trace.perfetto import write_trace
    from tailscope.store.atomic import replacing

    out = out or _FILE
    with replacing(out) as file:
        traced = write_trace(run, file)
    shown = (
        ("packets", traced.packets, traced.all_packets),
        ("interruptions of CPUs", traced.intervals, traced.all_intervals),
    )
    yield str(out)
    for name, some, every in shown:
        if every:
            yield f"{count_text(some)} of {count_text(every)} {name}"
    if traced.worst:
        parts = " with the parts of their latency" if traced.is_explained else ""
        yield f"{count_text(traced.worst)} worst packets{parts}"
    if traced.around < traced.worst:
        yield f"drawn with all that was within 5 ms: the {count_text(traced.around)} worst of them"
