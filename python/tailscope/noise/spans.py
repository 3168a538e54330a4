"""Intervals in which CPUs were taken, by the events of a trace beside captures.

A span is anything with a beginning and an end: an interrupt, a softirq, a task. Of two that are
open on a CPU the inner one has it. A span whose beginning or end is missing has no pieces:
nothing is said of it.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tailscope.noise.causes import event_durations_ns
from tailscope.noise.events import VECTORS, Events, name_of
from tailscope.noise.timeline import Timeline, make_timeline
from tailscope.noise.traces import Lost

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from tailscope.noise.attribution import Blocked
    from tailscope.noise.traces import TraceEvent

    Integers = NDArray[np.int64]
    Kind = tuple[str, int, str]

_MORE_VECTORS = ("local_timer", "reschedule")
_NUMBER = {"irq": re.compile(r"\birq ?= ?(\d+)"), "softirq": re.compile(r"\bvec ?= ?(\d+)")}
_IRQ_NAME = re.compile(r'\bname ?= ?"?([^",]*?)"?(?:,.*)?$')
_NEXT = re.compile(r'\bnext_comm ?= ?"?(?P<comm>.*?)"?,? next_[pt]id ?= ?(?P<pid>\d+)')
_NEXT_SHORT = re.compile(r"==> (?P<comm>.*):(?P<pid>\d+) \[-?\d+\]$")
# By name: an address says nothing.
_WORK = re.compile(r"\bfunction[ =]+(?![0-9a-f]{8,16}\b)(?P<name>[A-Za-z_][\w.]*)")
_REMOTE = re.compile(r"remote shootdown|\breason ?[:=] ?(?:\"?TLB_REMOTE_SHOOTDOWN|1\b)")
_FLUSH_CALL = re.compile(r"\bfunc ?= ?flush_tlb")
_CALLS = ("call_function", "call_function_single")
_IDLE = 0
_BOUND = re.compile(r"kworker/\d")
"""Beginning of the name of a worker that runs on one CPU only."""


@dataclass(frozen=True)
class ReadTrace:
    """The contents of a trace for some CPUs."""

    timelines: list[Timeline]
    """Timelines, one for each CPU."""
    span_ns: tuple[int, int]
    """Times of the first and the last event of any CPU."""
    used: int
    lost: int
    """Number of events used, and of events lost."""
    unused: dict[str, int]
    """Counts by name of events of these CPUs that do not say when a CPU was taken."""


def read_spans(events: Iterable[TraceEvent | Lost], cpus: Sequence[int]) -> ReadTrace | None:
    """Build timelines from events."""
    by_cpu = {cpu: _Cpu(cpu) for cpu in cpus}
    unused: Counter[str] = Counter()
    used = lost = 0
    first, last = None, 0
    for event in events:
        if isinstance(event, Lost):
            lost += event.events
            for cpu in by_cpu.values() if event.cpu is None else [by_cpu.get(event.cpu)]:
                if cpu is not None:
                    cpu.forget()
            continue
        first = event.time_ns if first is None else min(first, event.time_ns)
        last = max(last, event.time_ns)
        if event.cpu in by_cpu:
            if by_cpu[event.cpu].take(event):
                used += 1
            else:
                unused[event.name] += 1
    if first is None:
        return None
    timelines = [
        make_timeline(cpu, _NOTHING, _NOTHING, spans.events(first, last))
        for cpu, spans in by_cpu.items()
    ]
    return ReadTrace(timelines, (first, last), used, lost, dict(sorted(unused.items())))


_NOTHING = (np.zeros(0, np.int64), np.zeros(0, np.int64))


def longest_task(timeline: Timeline, lasted_ns: int) -> str | None:
    """Return the task that had a CPU for more than half of the time, which is its purpose."""
    took = event_durations_ns(timeline)
    by_cause = np.bincount(timeline.cause, weights=took, minlength=len(timeline.causes))
    for code, cause in enumerate(timeline.causes):
        if cause.startswith("task ") and 2 * by_cause[code] > lasted_ns:
            return cause
    return None


def eroded(blocked: Blocked, offset_ns: int, error_ns: int) -> Blocked:
    """Move intervals to another clock, and keep the part that holds whatever its error."""
    start = blocked.start_ns + offset_ns + error_ns
    end = blocked.end_ns + offset_ns - error_ns
    is_left = end > start
    return blocked._replace(
        start_ns=start[is_left],
        end_ns=end[is_left],
        cause=blocked.cause[is_left],
        detail=blocked.detail[is_left],
        is_dut=blocked.is_dut[is_left],
    )


class _Open(NamedTuple):
    """A span that has begun: the event that ends it, and its number."""

    key: tuple[str, int, str]
    number: int


@dataclass
class _Cpu:
    """The spans of a CPU while its events are read."""

    cpu: int
    kinds: list[Kind] = field(default_factory=list)
    details: list[str] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    flushed: set[int] = field(default_factory=set)
    dropped: set[int] = field(default_factory=set)
    pieces: list[tuple[int, int, int]] = field(default_factory=list)
    stack: list[_Open] = field(default_factory=list)
    task: int | None = None
    since_ns: int = 0
    works: dict[int, str] = field(default_factory=dict)
    """Functions of workqueues that workers have begun here, by the worker's number."""
    worked: dict[int, str] = field(default_factory=dict)
    """The same by the number of the span, of each that was one."""

    def take(self, event: TraceEvent) -> bool:
        """Process an event; return False if it concerns no span."""
        name = event.name.removeprefix("x86_irq_vectors_").replace("irq_softirq_", "softirq_")
        if name == "sched_switch":
            return self._switch(event)
        if name in ("tlb_flush", "csd_function_entry"):
            return self._flush(event)
        if name in ("workqueue_execute_start", "workqueue_execute_end"):
            return self._work(event)
        what, _, edge = name.rpartition("_")
        if edge not in ("entry", "exit"):
            return False
        kind = _kind(what, event.fields)
        if kind is None:
            return False
        if edge == "entry":
            self._enter(kind, event.time_ns)
        else:
            self._leave(kind, event.time_ns)
        return True

    def forget(self) -> None:
        """Drop all open spans, as lost events may have ended them."""
        self.dropped.update(span.number for span in self.stack)
        self.task = None
        self.stack.clear()
        self.works.clear()

    def _enter(self, kind: Kind, now_ns: int) -> None:
        if any(_key(kind) == span.key for span in self.stack):
            # It cannot interrupt itself: the end of the first one is missing.
            self._drop_above(_key(kind), now_ns)
            self.dropped.add(self.stack.pop().number)
            self.since_ns = now_ns
        self._piece(now_ns)
        self.stack.append(_Open(_key(kind), self._new(kind, "", now_ns)))

    def _leave(self, kind: Kind, now_ns: int) -> None:
        if all(_key(kind) != span.key for span in self.stack):
            return
        self._drop_above(_key(kind), now_ns)
        self._piece(now_ns)
        self.stack.pop()

    def _drop_above(self, key: Kind | None, now_ns: int) -> None:
        """Drop the spans within one; all of them for None. Who had the CPU since is not known."""
        while self.stack and self.stack[-1].key != key:
            self.dropped.add(self.stack.pop().number)
            self.since_ns = now_ns

    def _switch(self, event: TraceEvent) -> bool:
        match = _NEXT.search(event.fields) or _NEXT_SHORT.search(event.fields)
        if match is None:
            return False
        # Nothing switches tasks within an interrupt: the end of what is open is missing.
        self._drop_above(None, event.time_ns)
        self._piece(event.time_ns)
        if self.task is not None and not _BOUND.match(self.kinds[self.task][2]):
            # It may go on elsewhere, and end there what it has begun.
            self.works.pop(self.kinds[self.task][1], None)
        self._run(int(match["pid"]), match["comm"], event.time_ns)
        return True

    def _run(self, pid: int, comm: str, now_ns: int) -> None:
        """Begin a span of a task."""
        self.task = None
        if pid != _IDLE:
            self.task = self._new(("task", pid, comm), f"pid {pid}", now_ns)
            self._tell(self.works.get(pid, ""))

    def _work(self, event: TraceEvent) -> bool:
        """Handle the begin or the end of a workqueue's function, in the task that runs.

        It tells what the task has done since its turn began, or the function before was begun.
        """
        if self.stack or self.task is None:
            return False
        _, pid, comm = self.kinds[self.task]
        match = _WORK.search(event.fields)
        work, is_end = match["name"] if match else "", event.name.endswith("_end")
        self.works.pop(pid, None)
        if is_end and self.task in self.worked:
            return True
        if self.task in self.worked or (is_end and not work):
            self._piece(event.time_ns)
            self._run(pid, comm, event.time_ns)
        self._tell(work)
        if work and not is_end:
            self.works[pid] = work
        return True

    def _tell(self, work: str) -> None:
        """Tell the task by a function, if it has a name."""
        if work and self.task is not None:
            _, pid, comm = self.kinds[self.task]
            self.worked[self.task], self.details[self.task] = work, f"pid {pid} {comm}"

    def _flush(self, event: TraceEvent) -> bool:
        """Handle a TLB flush for another CPU, within a function call."""
        asked = _REMOTE if event.name == "tlb_flush" else _FLUSH_CALL
        calls = [span for span in self.stack if span.key[2] in _CALLS]
        if not calls or not asked.search(event.fields):
            return False
        self.flushed.add(calls[-1].number)
        return True

    def _new(self, kind: Kind, detail: str, start_ns: int) -> int:
        self.kinds.append(kind)
        self.details.append(detail)
        self.starts.append(start_ns)
        return len(self.kinds) - 1

    def _piece(self, now_ns: int) -> None:
        """End the piece of the innermost span."""
        number = self.stack[-1].number if self.stack else self.task
        if number is not None and now_ns > self.since_ns:
            since_ns = max(self.since_ns, self.starts[number])
            self.pieces.append((since_ns, now_ns, number))
        self.since_ns = now_ns

    def events(self, from_ns: int, to_ns: int) -> Events:
        """Return everything that had a beginning and an end."""
        open_still = {span.number for span in self.stack}
        bad = self.dropped | open_still
        pieces = np.array([piece for piece in self.pieces if piece[2] not in bad], np.int64)
        start, end, number = pieces.reshape(-1, 3).T
        names = [
            name_of(kind, {}, flush=at in self.flushed, work=self.worked.get(at, ""))
            for at, kind in enumerate(self.kinds)
        ]
        causes = {name: code for code, name in enumerate(dict.fromkeys(names))}
        details = {text: code for code, text in enumerate(dict.fromkeys(["", *self.details]))}
        return Events(
            cpu=self.cpu,
            causes=list(causes),
            details=list(details),
            cause=np.array([causes[name] for name in names], np.int64),
            detail=np.array([details[text] for text in self.details], np.int64),
            start_ns=np.array(self.starts, np.int64),
            sent_ns=np.array(self.starts, np.int64),
            piece_start_ns=start,
            piece_end_ns=end,
            piece_event=number,
            lost=0,
            untold_switches=0,
            from_ns=from_ns,
            to_ns=to_ns,
            gap_start_ns=_NOTHING[0],
            gap_end_ns=_NOTHING[1],
        )


def _kind(what: str, fields: str) -> Kind | None:
    if what == "irq_handler":
        number, name = _NUMBER["irq"].search(fields), _IRQ_NAME.search(fields)
        return None if number is None else ("irq", int(number[1]), name[1] if name else "")
    if what == "softirq":
        number = _NUMBER["softirq"].search(fields)
        return None if number is None else ("softirq", int(number[1]), "")
    return ("vector", 0, what) if what in VECTORS or what in _MORE_VECTORS else None


def _key(kind: Kind) -> Kind:
    """Return the key that the end of a span must match: of an interrupt only its number."""
    return ("irq", kind[1], "") if kind[0] == "irq" else kind
