"""Recording of links by packet sockets, with timestamps converted to one clock."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tailscope.engine.analysis import retime
from tailscope.exceptions import TestbedError
from tailscope.extra.laboratory.stamps.packet_sockets import SocketRecorder
from tailscope.extra.laboratory.stamps.phc import comparing
from tailscope.store.records.run import PortClocks, SideCounts
from tailscope.testbed.messages import missed_frames

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from tailscope.extra.laboratory.stamps.phc import Comparison
    from tailscope.extra.laboratory.stamps.stamping import Stamping
    from tailscope.store.records.run import ClockSource
    from tailscope.testbed.places import Place


@dataclass
class Recorded:
    """The description of a recording; lost frames and clocks are set at its end."""

    clock: ClockSource
    timestamp_type: str
    """Type of the timestamps, as in ``run.json``."""
    dropped: SideCounts = field(init=False)
    port_clocks: PortClocks | None = None
    warnings: list[str] = field(default_factory=list)


@contextmanager
def by_socket(
    names: Sequence[str],
    captures: Path,
    stamping: Stamping,
    *,
    place: Place,
    cpus: Iterable[int] = (),
) -> Iterator[Recorded]:
    """Record two links within a block, and convert their times to one clock afterwards."""
    recorded = Recorded(*_KINDS[stamping.by_cards])
    recorder = SocketRecorder(names, captures, place=place, by_cards=stamping.by_cards, cpus=cpus)
    if stamping.clocks is None:
        with recorder:
            yield recorded
            _finish(recorder, recorded, captures)
        return
    # The clocks are read before the first frame and after the last one.
    with comparing(*stamping.clocks) as compared, recorder:
        yield recorded
        _finish(recorder, recorded, captures)
    clocks = (stamping.clocks[0].name, stamping.clocks[1].name)
    recorded.port_clocks, warning = on_one_clock(captures / "post.pcapng.zst", compared, clocks)
    recorded.warnings += [] if warning is None else [warning]


_KINDS: dict[bool, tuple[ClockSource, str]] = {
    True: ("kernel-hardware", "hardware"),
    False: ("kernel-software", "software"),
}


def _finish(recorder: SocketRecorder, recorded: Recorded, captures: Path) -> None:
    result = recorder.finish()
    links = result.socket
    if not all((captures / link.file).exists() for link in (links.pre, links.post)):
        raise TestbedError(f"timestamper: {'; '.join(result.partial)}", code="no-captures")
    recorded.dropped = SideCounts(pre=missed_frames(links.pre), post=missed_frames(links.post))
    recorded.warnings += result.partial
    for side, link in (("before", links.pre), ("behind", links.post)):
        if link.unstamped == link.received - link.foreign - link.dropped > 0:
            raise TestbedError(
                f"timestamper: the card {side} the device timestamped none of {link.unstamped:,}"
                " frames, although it was asked to timestamp all",
                code="no-timestamps",
                hint="choose another card, or take the kernel's times by `method: tcpdump`",
            )


def on_one_clock(
    post: Path, compared: Comparison, names: tuple[str, str]
) -> tuple[PortClocks, str | None]:
    """Convert the times of the capture behind the device to the clock before it."""
    from tailscope.extra.laboratory.models.drift import fit_drift

    if len(compared.first_ns) < 2:
        raise TestbedError(
            f"timestamper: the clocks {names[0]} and {names[1]} could be compared"
            f" {len(compared.first_ns)} times, expected at least 2",
            code="clocks-not-compared",
            hint="is a program setting them, or the system's clock? `chronyc tracking` and"
            " `ps -C ptp4l,phc2sys,ts2phc` tell",
        )
    drift = fit_drift(compared.first_ns, compared.second_ns, compared.error_ns)
    raw = post.with_name(f"raw-{post.name}")
    post.rename(raw)
    retime(raw, post, drift.knots)
    raw.unlink()
    warning = None
    if not drift.is_even:
        warning = (
            f"the clocks of the timestamper's ports, {names[0]} and {names[1]}, did not drift"
            f" evenly: latencies may be off by {drift.error_ns:,} ns. Nothing should adjust these"
            " clocks during a measurement (`ps -C ptp4l,phc2sys,ts2phc`)"
        )
    return PortClocks(
        pre=names[0],
        post=names[1],
        readings=drift.readings,
        left_out=drift.left_out + compared.failed,
        offset_ns=drift.offset_ns,
        drift_ppb=drift.drift_ppb,
        pieces=max(1, len(drift.knots) - 1),
        residual_ns=drift.residual_ns,
        error_ns=drift.error_ns,
    ), warning
