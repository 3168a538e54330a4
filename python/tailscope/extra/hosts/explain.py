"""What both ends of a path say of the packets of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailscope.extra.hosts import RECORD
from tailscope.extra.hosts.records import HOSTS_FORMAT, HostsRecord
from tailscope.extra.hosts.words import (
    TIMES_HEADER,
    card_text,
    departures_text,
    end_lines,
    loss_text,
    median_text,
    one_way_text,
    order_text,
    times_rows,
)
from tailscope.store.files import MOST_RECORD_BYTES, read_file
from tailscope.store.records.base import read_record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tailscope.cli.view import View
    from tailscope.store.records.run import RunInfo


def explain_packets(
    run: Path, _info: RunInfo, _quantile: float | None
) -> tuple[dict[str, HostsRecord], Callable[[View], None]] | None:
    """Say what both ends know of a run between two hosts; None of any other run."""
    record = _record(run)
    if record is None:
        return None

    def show(view: View) -> None:
        show_ends(record, view)

    return {"hosts": record}, show


def repeat_command(run: Path) -> str | None:
    """Return the command that measures a path once more; None of any other run."""
    record = _record(run)
    return None if record is None else record.command


def _record(run: Path) -> HostsRecord | None:
    file = run / RECORD
    if not file.is_file():
        return None
    content = read_file(run, RECORD, most_bytes=MOST_RECORD_BYTES)
    return read_record(content, HostsRecord, file, newest=HOSTS_FORMAT)


def show_ends(record: HostsRecord, view: View) -> None:
    """Print what is of the network, and what is of the ends."""
    view.print_table(TIMES_HEADER, [times_rows(record)], ("min",))
    if median := median_text(record):
        view.say_named("median", median)
    view.say_named("lost", loss_text(record))
    view.say_named("departure", departures_text(record))
    if card := card_text(record):
        view.say_named("clock", card)
    if order := order_text(record):
        view.say_named("order", order)
    view.say_named("one way", one_way_text(record))
    for end, text in end_lines(record):
        view.say_named(end, text)
