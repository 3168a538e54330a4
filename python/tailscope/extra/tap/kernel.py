"""What the kernel did around the worst packets: events of all CPUs, of which the latest are kept.

The tracer writes pages into files that grow. Here they are taken out of these files as they come,
and stay in memory for as long as a packet may still become one of the worst.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.engine.analysis import Clock
from tailscope.noise.events import read_events
from tailscope.noise.timeline import make_timeline
from tailscope.noise.tracer import Tracer
from tailscope.testbed.cores import read_topology
from tailscope.testbed.steady import ahead_of_kernel_ns, clock_pair

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from tailscope.noise.timeline import Timeline
    from tailscope.noise.tracer import RecordedTrace
    from tailscope.testbed.folder import Folder

_AROUND_NS = 5_000_000
"""Time before a packet came and after it left of which events are kept."""
_MOST_BYTES = 64 << 20
"""Memory for the latest pages of all CPUs."""
_MOST_PAGES = 1024
"""Pages that are kept for a packet, of each CPU."""
_LATE_NS = 4_000_000_000
"""A packet is known to be the worst of its second so long after its window, at the latest."""
_HEADER = struct.Struct("=QQ")
_MISSED = 1 << 31
"""Flag in a page's header: events before it are missing."""
_NEVER = (np.zeros(0, np.int64), np.zeros(0, np.int64))
_ANY_CLOCK = Clock(1_000_000_000, 0, 0)
"""A counter of ticks, which events on the monotonic clock do not need."""


class Passage(NamedTuple):
    """When a packet came, in Unix time, and how long it took to leave."""

    pre_ns: int
    latency_ns: int


class _Page(NamedTuple):
    """A page of the tracer, which begins with the time of its first event and its length."""

    number: int
    content: bytes

    @property
    def time_ns(self) -> int:
        """The time of its first event, on the clock of the trace."""
        return int(_HEADER.unpack_from(self.content)[0])

    def behind_gap(self) -> bytes:
        """Return the page as the tracer writes it where events before it are missing."""
        time_ns, length = _HEADER.unpack_from(self.content)
        return _HEADER.pack(time_ns, length | _MISSED) + self.content[_HEADER.size :]


class _Kept(NamedTuple):
    """The pages around a packet, and Unix time minus that of their clock."""

    pages: dict[int, list[_Page]]
    offset_ns: int


@dataclass
class _Latest:
    """The latest pages of a CPU, taken out of the file that they are written to."""

    file: Path
    pages: deque[_Page] = field(default_factory=deque)
    taken: int = 0

    def take(self, page_bytes: int) -> None:
        """Take what was written, and give its space on the disk back."""
        with self.file.open("r+b") as file:
            file.seek(self.taken * page_bytes)
            while content := file.read(page_bytes):
                self.pages.append(_Page(self.taken, content))
                self.taken += 1
            # The tracer writes on behind it: the file begins with a hole.
            file.truncate(0)

    def forget_before(self, time_ns: int, most: int) -> None:
        """Forget pages of which all events are older, and the oldest of too many."""
        while len(self.pages) > most or (len(self.pages) > 1 and self.pages[1].time_ns < time_ns):
            self.pages.popleft()

    def around(self, begin_ns: int, end_ns: int) -> list[_Page]:
        """Return the pages with events of a time, and the one before, which says who ran then."""
        pages = list(self.pages)
        times = np.array([page.time_ns for page in pages], np.int64)
        first, last = np.searchsorted(times, [begin_ns, end_ns], "right")
        return pages[max(0, int(first) - 2, int(last) - _MOST_PAGES) : int(last)]


class KernelRing(Tracer):
    """A recorder of the latest kernel events on all CPUs, within a block."""

    def __init__(self, folder: Folder, window_ns: int) -> None:
        super().__init__(folder, read_topology().online, clock="mono")
        self._remembered_ns = window_ns + _LATE_NS
        self._lock = threading.Lock()
        self._wanted: frozenset[Passage] = frozenset()
        self._kept: dict[Passage, _Kept] = {}
        self._latest: dict[int, _Latest] = {}

    def keep(self, passages: Iterable[Passage]) -> None:
        """Keep the events around these packets, and of no others."""
        with self._lock:
            self._wanted = frozenset(passages)

    def _drain(self) -> None:
        super()._drain()
        recorded = self._recorded
        assert recorded is not None, "it is recording"
        if not self._latest:
            self._latest = {cpu: _Latest(file) for cpu, file in recorded.events.items()}
        for latest in self._latest.values():
            latest.take(recorded.page_bytes)
        for file in recorded.senders.values():
            os.truncate(file, 0)
        with self._lock:
            wanted = self._wanted
        ahead_ns = ahead_of_kernel_ns()
        offset_ns = clock_pair().offset_ns + ahead_ns
        self._kept = {
            passage: self._kept.get(passage) or self._around(passage, offset_ns)
            for passage in wanted
        }
        oldest_ns = time.monotonic_ns() - ahead_ns - self._remembered_ns
        for latest in self._latest.values():
            latest.forget_before(oldest_ns, _MOST_BYTES // recorded.page_bytes // len(self._latest))

    def _around(self, passage: Passage, offset_ns: int) -> _Kept:
        begin_ns = passage.pre_ns - offset_ns - _AROUND_NS
        end_ns = passage.pre_ns + passage.latency_ns - offset_ns + _AROUND_NS
        pages = {cpu: latest.around(begin_ns, end_ns) for cpu, latest in self._latest.items()}
        return _Kept(pages, offset_ns)

    def timelines(self, recorded: RecordedTrace) -> dict[Passage, list[Timeline]]:
        """Read what each CPU was busy with around each packet that is kept."""
        files = {}
        for cpu in self._latest:
            pages = {page for kept in self._kept.values() for page in kept.pages[cpu]}
            files[cpu] = self._folder.path / f"cpu{cpu}.pages"
            files[cpu].write_bytes(b"".join(_joined(sorted(pages))))
        by_clock = replace(recorded, events=files, senders={}, mono_unix_ns=0)
        events = read_events(by_clock, _ANY_CLOCK, list(files), ())
        timelines = [make_timeline(each.cpu, None, _NEVER, each) for each in events]
        return {
            passage: [
                _moved(timeline, kept.offset_ns, passage)
                for timeline in timelines
                if kept.pages[timeline.cpu]
            ]
            for passage, kept in self._kept.items()
        }


def _joined(pages: list[_Page]) -> Iterator[bytes]:
    """Yield pages in order, and mark those before which others are left out."""
    before = -1
    for page in pages:
        yield page.content if page.number == before + 1 else page.behind_gap()
        before = page.number


def _moved(timeline: Timeline, offset_ns: int, passage: Passage) -> Timeline:
    """Return what lies around a packet, in Unix time."""
    begin_ns = passage.pre_ns - offset_ns - _AROUND_NS
    end_ns = passage.pre_ns + passage.latency_ns - offset_ns + _AROUND_NS
    around = slice(
        int(np.searchsorted(timeline.end_ns, begin_ns)),
        int(np.searchsorted(timeline.start_ns, end_ns)),
    )
    return replace(
        timeline,
        start_ns=timeline.start_ns[around] + offset_ns,
        end_ns=timeline.end_ns[around] + offset_ns,
        event=timeline.event[around],
    )
