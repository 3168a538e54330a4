"""The worst packets of a tap while it goes on, and in the end what delayed each of them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple, Self

from tailscope.exceptions import TailscopeError, TestbedError, said
from tailscope.extra.tap.delays import explain_crossing, passages, read_crossing, usual_pace_ns
from tailscope.extra.tap.kernel import KernelRing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tailscope.engine.analysis import Figure
    from tailscope.extra.tap.delays import Crossing
    from tailscope.extra.tap.kernel import Passage
    from tailscope.extra.tap.plan import TapPlan
    from tailscope.extra.tap.records import DelayedPacket
    from tailscope.noise.timeline import Timeline
    from tailscope.noise.tracer import RecordedTrace
    from tailscope.testbed.folder import Folder

_BY_CARDS = "times are those of cards, and kernel events have another clock"


class Watched(NamedTuple):
    """The worst packets, and what delayed them."""

    packets: tuple[DelayedPacket, ...]
    """The worst first."""
    missing_because: str | None
    """Reason why no kernel events were recorded; None if they were."""
    events_lost: int


class Watch:
    """Looks which packets are the worst, and has kernel events around them kept, within a block."""

    def __init__(self, folder: Folder, captures: Path, plan: TapPlan) -> None:
        self._captures, self._window_ns = captures, plan.window_ns
        self._ring: KernelRing | None = None
        self._missing_because: str | None = _BY_CARDS
        if plan.card_clock is None:
            self._ring = KernelRing(folder.part("kernel"), plan.window_ns)
            self._missing_because = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        try:
            if self._ring is not None:
                self._stack.enter_context(self._ring)
        except TestbedError as error:
            self._ring, self._missing_because = None, str(error)
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def look(self) -> None:
        """Look which packets are the worst by now."""
        if self._ring is not None:
            self._ring.keep(passages(self._captures))

    def finish(self, summary: Mapping[str, Figure]) -> Watched:
        """Stop, and explain the worst packets."""
        self.look()
        recorded = self._finish_ring()
        crossings = list(self._crossings(str(summary["match_on"])))
        service_ns = int(summary["latency_ns_min"] or 0)
        timelines: dict[Passage, list[Timeline]] = {}
        if self._ring is not None and recorded is not None:
            timelines = self._ring.timelines(recorded)
        packets = [
            explain_crossing(
                crossing,
                timelines.get(crossing.passage, []),
                service_ns,
                usual_pace_ns(crossings, crossing),
            )
            for crossing in crossings
        ]
        packets.sort(key=lambda packet: -packet.latency_ns)
        lost = 0 if recorded is None else sum(recorded.lost.values())
        return Watched(tuple(packets), self._missing_because, lost)

    def _finish_ring(self) -> RecordedTrace | None:
        if self._ring is None:
            return None
        try:
            recorded = self._ring.finish()
        except (TestbedError, OSError) as error:
            self._missing_because = said(error)
            return None
        self._missing_because = recorded.ended_because or None
        return recorded

    def _crossings(self, match_on: str) -> Iterator[Crossing]:
        for passage, captures in passages(self._captures).items():
            try:
                crossing = read_crossing(passage, captures, match_on, self._window_ns)
            except TailscopeError:
                # Few packets of an odd kind may tell no key: they stay unexplained.
                continue
            if crossing is not None:
                yield crossing
