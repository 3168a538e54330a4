"""Run directories of what was imported."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tailscope.extra.imports.figures import run_of
from tailscope.store.records.plan import ImportPlan

if TYPE_CHECKING:
    from pathlib import Path

    from tailscope.extra.imports.foreign import ForeignRun
    from tailscope.store.records.about import AboutRecord
    from tailscope.store.run import Run


def write_import(source: ForeignRun, about: AboutRecord | None, out: Path) -> Run:
    """Write a run directory of what was imported; a failure leaves nothing behind."""
    from tailscope.report.of_run import page_of
    from tailscope.store.directory import RunWriter, check_whole
    from tailscope.store.provenance import import_info

    plan = ImportPlan(
        kind=source.kind,
        source=source.source,
        tag=source.tag,
        unit=source.unit,
        bucket_ns=source.bucket_ns,
        trim_ns=source.trim_ns,
    )
    packets = source.packets
    with RunWriter(out, draw=page_of, has_packets=packets is not None) as writer:
        if packets is not None:
            seq = np.arange(len(packets.pre_ns), dtype=np.uint64)
            writer.sink(seq, packets.pre_ns, packets.latency_ns)
            writer.close_packets()
        run = run_of(source, import_info(plan, source.files, about), out)
        lacks = writer.finish_import(run)
    check_whole(out, lacks)
    return run
