"""``tailscope trace``: a run as a timeline for ui.perfetto.dev."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tailscope.registry import require


def command(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="A run directory, or one of tailscope noise.")
    ],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="FILE", help="File of the trace.", show_default=True),
    ] = Path("trace.pftrace"),
) -> int:
    """Open the file at ui.perfetto.dev, or query it in SQL by Perfetto's trace processor.

    Of a run with more than 200,000 packets or interruptions of CPUs, it has about as many: those
    within 5 ms of the very worst packets.
    """
    from tailscope.extra.trace.perfetto import write_trace
    from tailscope.store.atomic import replacing
    from tailscope.units import count_text, printable

    require("trace")
    with replacing(out) as file:
        traced = write_trace(run, file)
    shown = (
        ("packets", traced.packets, traced.all_packets),
        ("interruptions of CPUs", traced.intervals, traced.all_intervals),
    )
    print(printable(str(out)))
    for name, some, every in shown:
        if every:
            print(f"{count_text(some)} of {count_text(every)} {name}")
    if traced.worst:
        parts = " with the parts of their latency" if traced.is_explained else ""
        print(f"{count_text(traced.worst)} worst packets{parts}")
    if traced.around < traced.worst:
        print(f"drawn with all that was within 5 ms: the {count_text(traced.around)} worst of them")
    return 0
