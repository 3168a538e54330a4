"""``tailscope explain`` of a tap's run: what delayed each of the worst packets."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tailscope.extra.tap import RECORD
from tailscope.extra.tap.records import TAP_FORMAT, TapRecord
from tailscope.store.files import MOST_RECORD_BYTES, is_there, read_file
from tailscope.store.records.base import read_record
from tailscope.units import counted, duration_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tailscope.cli.view import View
    from tailscope.extra.tap.records import DelayedPacket
    from tailscope.store.records.run import RunInfo

_MOST_CAUSES = 3
_SMALL = 0.01
"""Share of a latency below which a cause is not shown."""
_UNEXPLAINED = "unexplained"


def explain_tapped(
    run: Path, _info: RunInfo, _quantile: float | None
) -> tuple[dict[str, object], Callable[[View], None]] | None:
    """Return what delayed the worst packets of a tap, and what prints it; None for other runs."""
    if not is_there(run, RECORD):
        return None
    content = read_file(run, RECORD, most_bytes=MOST_RECORD_BYTES)
    record = read_record(content, TapRecord, run / RECORD, newest=TAP_FORMAT)

    def show(view: View) -> None:
        _show(record, view)

    return {"worst": record.worst}, show


def _show(record: TapRecord, view: View) -> None:
    if not record.worst:
        view.say("no captures of the worst packets were kept: there is nothing to explain")
        return
    view.say(f"{counted(len(record.worst), 'packet')}, the worst of a second each, waited for:")
    view.say("")
    totals: Counter[str] = Counter()
    packets: Counter[str] = Counter()
    for packet in record.worst:
        for cause, waited_ns in _waits(packet).items():
            totals[cause] += waited_ns
            packets[cause] += 1
    whole_ns = sum(totals.values())
    rows = [
        (cause, f"{waited_ns / whole_ns:.1%}", str(packets[cause]), duration_text(waited_ns))
        for cause, waited_ns in totals.most_common()
        if waited_ns >= _SMALL * whole_ns
    ]
    view.print_table(("waited for", "share", "packets", "total"), [rows], ())
    view.say("")
    lines = [
        (
            f"{datetime.fromtimestamp(packet.pre_ns / 1e9, UTC):%H:%M:%S.%f}",
            duration_text(packet.latency_ns),
            packet.flow,
            ", ".join(map(str, packet.cpus)) or "-",
            _causes_text(packet),
        )
        for packet in record.worst
    ]
    view.print_table(("came", "latency", "flow", "CPU", "waited for"), [lines], ())
    if record.events_missing_because is not None:
        view.say_named("warning", f"causes cannot be named: {record.events_missing_because}")
    if record.events_lost:
        view.say_named("warning", f"{record.events_lost:,} kernel events were lost")


def _waits(packet: DelayedPacket) -> dict[str, int]:
    """Return how long a packet waited for each cause, and for what is not known."""
    waits = {delay.cause: delay.waited_ns for delay in packet.delays}
    if packet.unexplained_ns:
        waits[_UNEXPLAINED] = packet.unexplained_ns
    return waits


def _causes_text(packet: DelayedPacket) -> str:
    details = {delay.cause: delay.details for delay in packet.delays}
    waits = sorted(_waits(packet).items(), key=lambda wait: -wait[1])
    texts = []
    for cause, waited_ns in waits[:_MOST_CAUSES]:
        if waited_ns >= _SMALL * packet.latency_ns:
            more = f" ({', '.join(details[cause])})" if details.get(cause) else ""
            texts.append(f"{cause}{more} {duration_text(waited_ns)}")
    return ", ".join(texts)
