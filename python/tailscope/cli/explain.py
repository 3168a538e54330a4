"""``tailscope explain``: what the tail of a run waited for, or one of its packets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tailscope.cli.options import STANDARD, JsonFile, without_format, write_json
from tailscope.exceptions import UsageError

if TYPE_CHECKING:
    from tailscope.noise.story import Story
    from tailscope.store.records.explanation import Explanation

__all__ = ["command"]


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    packet: Annotated[
        int | None,
        typer.Option(
            "--packet", min=0, metavar="SEQ", help="Packet to explain.  [default: the worst]"
        ),
    ] = None,
    quantile: Annotated[
        str | None,
        typer.Option("--quantile", metavar="Q", help="Start of the tail.  [default: p99.9]"),
    ] = None,
    json_file: JsonFile = None,
) -> int:
    from tailscope.noise.explanation import TAIL_QUANTILE, Packets, explain_tail
    from tailscope.noise.story import tell
    from tailscope.noise.table import read_blocked
    from tailscope.store.reader import read_packets, read_run
    from tailscope.units import quantile_of

    beginning = TAIL_QUANTILE if quantile is None else quantile_of(quantile, "--quantile")
    if not 0 <= beginning < 1:
        raise UsageError(f"--quantile: got {beginning:g}, expected at least 0 and less than 1")
    found = read_run(run)
    blocked = read_blocked(run, found.info)
    packets = Packets.of(read_packets(run, found.info))
    tail = explain_tail(packets, blocked, beginning)
    story = tell(packets, blocked, packet)
    if json_file is not None:
        write_json(json_file, {"tail": without_format(tail), "packet": story.record()})
    if json_file == STANDARD:
        return 0
    if packet is None:
        _print_tail(tail)
    _print_story(story)
    why_not = None if found.info.noise is None else found.info.noise.events_missing_because
    if why_not is not None:
        from tailscope.units import printable

        print(f"\ncauses cannot be named: {printable(why_not)}")
    return 0


def _print_tail(tail: Explanation) -> None:
    from tailscope.cli.table import aligned
    from tailscope.wording import cause_rows, explained_text

    print(explained_text(tail))
    print()
    header = ("waited for", "share", "packets", "total", "largest")
    for line in aligned(header, [cause_rows(tail)]):
        print(line)


def _print_story(story: Story) -> None:
    from tailscope.cli.table import aligned
    from tailscope.units import count_text, duration_text, printable
    from tailscope.wording import part_text

    print(
        f"packet {story.seq}, sent {duration_text(story.sent_after_ns)} after the first: rank"
        f" {count_text(story.rank)} of {count_text(story.packets)} by latency. It took"
        f" {duration_text(story.latency_ns)}:"
    )
    print()
    rows = [
        (
            printable(part_text(line.part, line.cause)),
            duration_text(line.waited_ns),
            f"{line.share:.1%}",
            printable("; ".join(line.details)),
        )
        for line in story.lines
    ]
    rows.append(("total", duration_text(story.latency_ns), "100.0%", ""))
    for line in aligned(("waited for", "time", "share", ""), [rows]):
        print(line)
