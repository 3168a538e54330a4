"""Traces that trace-cmd, perf and babeltrace2 read: their lines, and the spans made of them."""

from __future__ import annotations

import os
import shutil
import subprocess
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from errors import raises
from hypothesis import given
from hypothesis import strategies as st
from runs import AS_ROOT, needed

from tailscope.exceptions import TestbedError, UsageError
from tailscope.noise import traces
from tailscope.noise.attribution import blocked_by
from tailscope.noise.causes import causes_of
from tailscope.noise.spans import eroded, longest_task, read_spans
from tailscope.noise.traces import Lost, TraceEvent, open_trace, parse_line

if TYPE_CHECKING:
    from pathlib import Path

    from tailscope.noise.traces import Reader

FTRACE = "tsx:             mypy-4081  [000] 25342.373965720: call_function_entry: vector=251"
FTRACE_FLAGS = "  <idle>-0     [003] d..2.  12.000001: irq_handler_entry: irq=24 name=eth0-rx"
PERF = "python 3474 [001] 25282.891315124:   irq:softirq_entry: vec=9 [action=RCU]"
PERF_SPACES = (
    "  Web Content  12/14 [000]  5.000000001: sched:sched_switch: prev_comm=a b prev_pid=1"
)
CTF = "[1795341395.346975053] (+?.?????????) sched:sched_switch: { cpu_id = 0 }, { next_pid = 18 }"
LTTNG = "[5.000000007] box irq_handler_exit: { cpu_id = 2 }, { irq = 16, ret = 1 }"


@pytest.mark.parametrize(
    ("reader", "line", "expected"),
    [
        ("trace-cmd", FTRACE, (25342_373965720, 0, "call_function_entry", "vector=251")),
        ("trace-cmd", FTRACE_FLAGS, (12_000001000, 3, "irq_handler_entry", "irq=24 name=eth0-rx")),
        ("perf", PERF, (25282_891315124, 1, "softirq_entry", "vec=9 [action=RCU]")),
        ("perf", PERF_SPACES, (5_000000001, 0, "sched_switch", "prev_comm=a b prev_pid=1")),
        ("babeltrace2", CTF, (1795341395_346975053, 0, "sched_switch", "{ next_pid = 18 }")),
        ("babeltrace2", LTTNG, (5_000000007, 2, "irq_handler_exit", "{ irq = 16, ret = 1 }")),
    ],
)
def test_each_line_is_an_event(
    reader: Reader, line: str, expected: tuple[int, int, str, str]
) -> None:
    assert parse_line(reader, line) == TraceEvent(*expected)


def test_lost_events_and_headings_are_known() -> None:
    assert parse_line("trace-cmd", "CPU:1 [12 EVENTS DROPPED]") == Lost(1, 12)
    assert parse_line("trace-cmd", "tsx: CPU:1 [EVENTS DROPPED]") == Lost(1, 1)
    assert parse_line("perf", "a 1 [000] 5.000000001: PERF_RECORD_LOST lost 7") == Lost(None, 7)
    assert parse_line("trace-cmd", "cpus=2") == "cpus=2"
    assert parse_line("perf", "# captured on") == "# captured on"


@given(
    st.sampled_from(["trace-cmd", "perf", "babeltrace2"]),
    st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=80),
)
def test_any_text_is_an_event_or_is_not(reader: Reader, text: str) -> None:
    found = parse_line(reader, text)
    assert found is None or isinstance(found, (TraceEvent, Lost)) or found == text


COMMS = st.text(st.characters(codec="ascii", categories=("L", "N", "P")), min_size=1, max_size=15)


@given(COMMS, st.integers(0, 4_194_304), st.integers(0, 255), st.integers(0, 2 * 10**18), COMMS)
def test_what_perf_writes_is_read_back(
    comm: str, tid: int, cpu: int, time_ns: int, fields: str
) -> None:
    seconds, rest = divmod(time_ns, 10**9)
    line = f"{comm:>16} {tid:7} [{cpu:03}] {seconds}.{rest:09}: irq:irq_handler_entry: {fields}"
    assert parse_line("perf", line) == TraceEvent(time_ns, cpu, "irq_handler_entry", fields)


def event(time_ns: int, name: str, fields: str = "", cpu: int = 0) -> TraceEvent:
    return TraceEvent(time_ns, cpu, name, fields)


def switch(time_ns: int, pid: int, comm: str) -> TraceEvent:
    fields = f"prev_comm=x prev_pid=9 prev_prio=1 prev_state=S ==> next_comm={comm} next_pid={pid}"
    return event(time_ns, "sched_switch", f"{fields} next_prio=120")


def pieces(events: list[TraceEvent | Lost]) -> list[tuple[str, int, int]]:
    """Cause, start and end of each piece of time of CPU 0."""
    read = read_spans(events, [0])
    assert read is not None
    [line] = read.timelines
    causes = [line.causes[line.cause[at]] for at in line.event]
    return [*zip(causes, line.start_ns.tolist(), line.end_ns.tolist(), strict=True)]


def test_the_inner_span_has_the_cpu() -> None:
    assert pieces(
        [
            switch(100, 7, "l2 fwd"),
            event(200, "irq_handler_entry", "irq=16 name=eth0"),
            event(210, "local_timer_entry", "vector=236"),
            event(230, "local_timer_exit", "vector=236"),
            event(250, "irq_handler_exit", "irq=16 ret=handled"),
            event(250, "softirq_entry", "vec=3 [action=NET_RX]"),
            event(280, "softirq_exit", "vec=3 [action=NET_RX]"),
            switch(300, 0, "swapper/0"),
            event(400, "x86_irq_vectors_reschedule_entry", "{ vector = 253 }"),
            event(410, "x86_irq_vectors_reschedule_exit", "{ vector = 253 }"),
        ]
    ) == [
        ("task l2 fwd", 100, 200),
        ("irq 16 eth0", 200, 210),
        ("local timer", 210, 230),
        ("irq 16 eth0", 230, 250),
        ("softirq NET_RX", 250, 280),
        ("task l2 fwd", 280, 300),
        ("reschedule", 400, 410),
    ]


def test_the_processors_own_interrupts_have_names_on_arm() -> None:
    """There they are interrupts like those of devices."""
    assert pieces(
        [
            event(100, "irq_handler_entry", "irq=11 name=arch_timer"),
            event(120, "irq_handler_exit", "irq=11 ret=handled"),
            event(200, "irq_handler_entry", "irq=2 name=IPI"),
            event(230, "irq_handler_exit", "irq=2 ret=handled"),
        ]
    ) == [("local timer", 100, 120), ("inter-processor interrupt", 200, 230)]


def test_a_flush_within_a_call_is_a_shootdown() -> None:
    call = [event(100, "call_function_entry"), event(190, "call_function_exit")]
    for flush in (
        event(120, "tlb_flush", "pages:-1 reason:remote shootdown (1)"),
        event(120, "tlb_flush", "{ reason = 1, pages = 3 }"),
        event(120, "csd_function_entry", "func=flush_tlb_func csd=0x1"),
    ):
        assert pieces([call[0], flush, call[1]]) == [("TLB shootdown", 100, 190)]
    other = event(120, "tlb_flush", "pages:0 reason:flush on task switch (0)")
    assert pieces([call[0], other, call[1]]) == [("function call", 100, 190)]


def work(time_ns: int, function: str) -> TraceEvent:
    fields = f"work struct 0xffff888100000000: function {function}"
    return event(time_ns, "workqueue_execute_start", fields)


def ended(time_ns: int, function: str) -> TraceEvent:
    return work(time_ns, function)._replace(name="workqueue_execute_end")


def test_a_worker_is_told_by_the_function_that_it_runs() -> None:
    assert pieces(
        [
            switch(100, 33, "kworker/1:2"),
            work(110, "vmstat_update"),
            event(120, "local_timer_entry", "vector=236"),
            event(130, "local_timer_exit", "vector=236"),
            ended(150, "vmstat_update"),
            work(155, "nf_ct_gc [nf_conntrack]"),
            # It sleeps within, and goes on later.
            switch(170, 7, "l2fwd"),
            switch(200, 33, "kworker/1:2"),
            event(210, "workqueue_execute_end", "{ work = 0xFFFF888100000000 }"),
            switch(220, 0, "swapper/1"),
            # It looks for work, and finds none.
            switch(230, 33, "kworker/1:2"),
            switch(235, 0, "swapper/1"),
        ]
    ) == [
        ("task kworker: vmstat_update", 100, 120),
        ("local timer", 120, 130),
        ("task kworker: vmstat_update", 130, 155),
        ("task kworker: nf_ct_gc", 155, 170),
        ("task l2fwd", 170, 200),
        ("task kworker: nf_ct_gc", 200, 220),
        ("task kworker/1:2", 230, 235),
    ]


@pytest.mark.parametrize(
    "function", ["0xffffffff8123abc0", "ffffffff8123abc0", "(____ptrval____)", "0x0"]
)
def test_an_address_of_a_function_says_nothing(function: str) -> None:
    told = pieces(
        [
            switch(0, 33, "kworker/1:2"),
            work(10, function),
            ended(20, function),
            work(25, "vmstat_update"),
            work(27, function),
            switch(30, 0, "swapper/1"),
        ]
    )
    unnamed = "task kworker/1:2"
    assert told == [(unnamed, 0, 20), ("task kworker: vmstat_update", 20, 27), (unnamed, 27, 30)]


@pytest.mark.parametrize(
    ("comm", "then"),
    [("kworker/1:2", "kworker: flush_to_ldisc"), ("kworker/u8:2", "kworker/u8:2"), ("wb", "wb")],
)
def test_a_worker_that_may_go_on_elsewhere_is_told_by_what_it_ends(comm: str, then: str) -> None:
    told = pieces(
        [
            switch(0, 33, comm),
            work(0, "flush_to_ldisc"),
            switch(20, 7, "l2fwd"),
            switch(30, 33, comm),
            switch(40, 0, "swapper/1"),
            switch(50, 33, comm),
            ended(60, "flush_to_ldisc"),
            switch(70, 0, "swapper/1"),
        ]
    )
    assert told == [
        ("task kworker: flush_to_ldisc", 0, 20),
        ("task l2fwd", 20, 30),
        (f"task {then}", 30, 40),
        ("task kworker: flush_to_ldisc", 50, 70),
    ]


def test_a_span_without_a_beginning_or_an_end_says_nothing() -> None:
    timer = [event(500, "local_timer_entry"), event(600, "local_timer_exit")]
    whole = [("local timer", 500, 600)]
    assert pieces([event(100, "softirq_exit", "vec=1"), *timer]) == whole
    assert pieces([*timer, event(700, "softirq_entry", "vec=1")]) == whole
    # An end is missing before a switch, before the next of its kind, and within another.
    assert (
        pieces([event(100, "softirq_entry", "vec=1"), switch(200, 0, "swapper/0"), *timer]) == whole
    )
    assert pieces([event(100, "local_timer_entry"), *timer]) == whole
    inner = [timer[0], event(550, "softirq_entry", "vec=1"), timer[1]]
    assert pieces(inner) == [("local timer", 500, 550)]
    assert pieces([event(100, "softirq_entry", "vec=1"), Lost(0, 3), *timer]) == whole


@given(
    st.lists(
        st.tuples(
            st.integers(0, 5),
            st.sampled_from(["local_timer", "softirq", "irq_handler", "switch", "work", "lost"]),
            st.booleans(),
            st.integers(0, 2),
        ),
        max_size=40,
    )
)
def test_pieces_are_disjoint_whatever_is_missing(
    steps: list[tuple[int, str, bool, int]],
) -> None:
    now_ns, events = 0, [event(0, "other")]
    taken: list[TraceEvent | Lost] = [*events]
    for gap, what, begins, number in steps:
        now_ns += gap
        if what == "lost":
            taken.append(Lost(None, 1))
        elif what == "switch":
            taken.append(switch(now_ns, number, f"kworker/{number}:1"))
        elif what == "work":
            function = f"work{number}" if number else "0xffff"
            taken.append((work if begins else ended)(now_ns, function))
        else:
            edge = "entry" if begins else "exit"
            taken.append(event(now_ns, f"{what}_{edge}", f"irq={number} vec={number} name=x"))
    found = pieces(taken)
    assert all(start < end for _, start, end in found)
    assert all(one[2] <= other[1] for one, other in pairwise(found))
    read = read_spans(taken, [0])
    assert read is not None
    assert read.lost == sum(isinstance(each, Lost) for each in taken)


def test_an_error_of_the_clock_shortens_what_is_certain() -> None:
    read = read_spans(
        [
            event(100, "local_timer_entry"),
            event(200, "local_timer_exit"),
            event(300, "reschedule_entry"),
            event(304, "reschedule_exit"),
        ],
        [0],
    )
    assert read is not None
    found = eroded(blocked_by(read.timelines, ()), 1000, 10)
    assert (found.start_ns.tolist(), found.end_ns.tolist()) == ([1110], [1190])


def test_the_task_that_a_cpu_is_for_is_known_by_its_time() -> None:
    read = read_spans(
        [
            switch(0, 7, "l2fwd"),
            switch(60, 8, "kworker"),
            switch(70, 0, "swapper"),
            event(100, "x"),
        ],
        [0, 1],
    )
    assert read is not None
    assert [longest_task(line, 100) for line in read.timelines] == ["task l2fwd", None]
    assert read.unused == {"x": 1}


def test_what_is_no_trace_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "trace.txt"
    file.write_text("hello\n")
    with raises(UsageError, "trace-format"):
        open_trace(file)
    with raises(UsageError, "trace-unreadable"):
        open_trace(tmp_path / "none")
    with raises(UsageError, "trace-metadata"):
        open_trace(tmp_path)
    file.write_text(f"{PERF}\nhello\n")
    with raises(UsageError, "trace-line") as error:
        list(open_trace(file).lines())
    assert all(part in str(error.value) for part in (f"{file}: line 2 ", "'hello'"))
    file.write_bytes(b"\x17\x08\x44tracing6\0")
    monkeypatch.setattr(traces.shutil, "which", lambda _: None)
    with raises(TestbedError, "trace-reader-missing") as missing:
        list(open_trace(file).lines())
    assert "apt install trace-cmd" in (missing.value.hint or "")


def test_a_damaged_trace_is_an_error_of_its_reader(tmp_path: Path) -> None:
    needed("trace-cmd")
    file = tmp_path / "trace.dat"
    file.write_bytes(b"\x17\x08\x44tracing6\0")
    with raises(TestbedError, "trace-reader-failed") as error:
        list(open_trace(file).lines())
    assert "trace-cmd" in str(error.value)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of this machine by perf, by the monotonic clock."""
    needed("perf")
    path = tmp_path_factory.mktemp("perf") / "perf.data"
    events = ("irq_vectors:local_timer_entry", "irq_vectors:local_timer_exit", "sched:sched_switch")
    chosen = [text for each in events for text in ("-e", each)]
    done = subprocess.run(
        ["perf", "record", "-k", "mono", *chosen, "-a", "-o", path, "sleep", "0.5"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"perf may not record here: {done.stderr.strip()[-200:]}")
    return path


@AS_ROOT
def test_perf_is_read_by_itself_and_as_text(recorded: Path, tmp_path: Path) -> None:
    cpus = range(os.cpu_count() or 1)
    trace = open_trace(recorded)
    assert trace.reader == "perf"
    # perf notes its clock beside Unix time: the recording was made now.
    assert trace.to_unix_ns is not None
    read = read_spans(trace.lines(), cpus)
    assert read is not None
    began_s = (read.span_ns[0] + trace.to_unix_ns) / 1e9
    assert abs(began_s - recorded.stat().st_mtime) < 60
    assert any(cause.cause.startswith("task ") for cause in causes_of(read.timelines, 10**9))
    said = subprocess.run(
        ["perf", "script", "--ns", "-i", recorded, "-F", "comm,tid,cpu,time,event,trace"],
        capture_output=True,
        text=True,
        check=True,
    )
    text = tmp_path / "perf.txt"
    text.write_text(said.stdout)
    again = read_spans(open_trace(text).lines(), cpus)
    assert again is not None
    assert (again.span_ns, again.used, again.unused) == (read.span_ns, read.used, read.unused)
    for one, other in zip(read.timelines, again.timelines, strict=True):
        assert np.array_equal(one.start_ns, other.start_ns)


@AS_ROOT
def test_ctf_says_the_same_as_perf(recorded: Path, tmp_path: Path) -> None:
    needed("babeltrace2")
    folder = tmp_path / "ctf"
    done = subprocess.run(
        ["perf", "data", "convert", "--force", f"--to-ctf={folder}", "-i", recorded],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode or shutil.which("babeltrace2") is None:
        pytest.skip(f"perf makes no CTF here: {done.stderr.strip()[-200:]}")
    cpus = range(os.cpu_count() or 1)
    mine, other = (read_spans(open_trace(path).lines(), cpus) for path in (recorded, folder))
    assert mine is not None
    assert other is not None
    assert mine.used == other.used
    for one, another in zip(mine.timelines, other.timelines, strict=True):
        assert np.array_equal(np.diff(one.start_ns), np.diff(another.start_ns))
        assert one.causes == another.causes
