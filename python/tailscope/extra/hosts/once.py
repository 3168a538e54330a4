"""A measurement of a path that keeps its figures alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tailscope.extra.hosts.ends import Sender, address_of
from tailscope.extra.hosts.figures import hosts_record, times
from tailscope.extra.hosts.passages import read_passages
from tailscope.testbed.folder import RunFolder
from tailscope.testbed.places import Here

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tailscope.extra.hosts.records import TimesRecord


class PathFigures(NamedTuple):
    """What a measurement found."""

    sent: int
    lost: int
    """Queries without an answer, wherever they were lost."""
    lost_in_ends: int
    """Of those, what one of the hosts had no room for, or refused."""
    lost_where_unknown: int
    """Of those, what the network or a host that did not run may have lost."""
    latency: TimesRecord | None
    """The time in the network, of answers of which kernels took all times, if there are any; None
    without an answer."""


def measure_path(
    to: str,
    *,
    rate_pps: int,
    duration_ns: int,
    key_file: Path | None,
    is_over: Callable[[], bool],
) -> PathFigures:
    """Measure the path to another host, until it is over."""
    address = address_of(to)
    with RunFolder() as folder:
        recording = folder.make("recording")
        options = [f"--to={address}", f"--rate={rate_pps}", f"--duration={duration_ns}ns"]
        options += [f"--record={recording}"]
        options += [] if key_file is None else [f"--key-file={key_file}"]
        with Sender(options, place=Here(folder.path)) as sender:
            result = sender.follow(is_over)
        passages = read_passages(recording)
        loss = hosts_record(to, address, passages, result.sender).loss
        return PathFigures(
            sent=result.sender.sent,
            lost=loss.lost,
            lost_in_ends=loss.of_ends,
            lost_where_unknown=loss.where_unknown,
            latency=times(passages.latency_ns[passages.surest]),
        )
