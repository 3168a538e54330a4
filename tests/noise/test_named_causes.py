"""Disturbances that were made on purpose are found, by name, where they happened.

The truth is the program's own: when it disturbed the CPU of its loop, by what. And the kernel's:
how often it says that interrupted by what.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
import pytest
from measurements import Place, said_to_nobody
from numpy.typing import NDArray
from runs import AS_ROOT

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("dataplane", "alone")

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Integers = NDArray[np.int64]
InAWatch = Callable[[Callable[["Seen"], bool]], bool]

CPU = max(os.sched_getaffinity(0))
KINDS = {
    "tlb": "TLB shootdown",
    "call": "function call",
    "reschedule": "task disturb",
    "busy": "task disturb",
    "fault": "page fault",
}
WATCH = ("noise", "--cpus", str(CPU), "--duration", "4s", "--stall-ns", "300")
WOKEN = ("reschedule", "busy")
"""Disturbances that wake the same task on the CPU; the kernel may send an interrupt for it."""
WATCHES = 4
"""Most watches that are made: other programs may spoil one, and a fault of ours spoils all."""
SENT = ("tlb", "call")
"""Disturbances by interrupts from another CPU that runs the program, too."""
ENOUGH = 10
"""Of 80 in a watch: on a busy machine, other tasks have the CPU at most of them."""
ALMOST = 0.98
WAKES_WITHIN_NS = 1_000_000
"""Longest time between the interrupt that wakes a task and its first instruction."""
EDGE_NS = 5_000
WITHIN_NS = 500


class Rows(NamedTuple):
    """Intervals of one kind and cause."""

    event: Integers
    start: Integers
    end: Integers
    detail: Any

    def meet(self, start: int, end: int) -> bool:
        return bool(((self.start < end) & (self.end > start)).any())


@dataclass
class Seen:
    """The record and table of `tailscope noise`."""

    record: dict[str, Any]
    table: dict[str, Any]

    def rows(self, kind: str, cause: str | None = None) -> Rows:
        is_chosen = self.table["kind"] == kind
        if cause is not None:
            is_chosen &= self.table["cause"] == cause
        start = self.table["start_ns"][is_chosen]
        end = start + self.table["duration_ns"][is_chosen]
        return Rows(self.table["event"][is_chosen], start, end, self.table["detail"][is_chosen])


def read(folder: Path) -> Seen:
    table = pq.read_table(folder / "noise.parquet")
    columns = {name: np.array(table[name].to_pylist()) for name in table.column_names}
    return Seen(json.loads((folder / "noise.json").read_text()), columns)


@pytest.fixture(scope="module")
def watches(tmp_path_factory: pytest.TempPathFactory, tailscope: Run) -> Callable[[int], Seen]:
    """Watches disturbed by everything in turn, each made when it is asked for."""

    @cache
    def watch(at: int) -> Seen:
        out = tmp_path_factory.mktemp("noise") / f"seen-{at}"
        disturb = ("--disturb", ",".join(KINDS), "--noise", "events", "--out", out)
        done = tailscope(*WATCH, *disturb)
        assert done.returncode == 0, done.stderr
        return read(out)

    return watch


@pytest.fixture
def seen(watches: Callable[[int], Seen]) -> Seen:
    return watches(0)


@pytest.fixture
def in_a_watch(watches: Callable[[int], Seen]) -> InAWatch:
    """Whether something holds in one of the watches; no more are made than it takes."""
    return lambda holds: any(holds(watches(at)) for at in range(WATCHES))


def around(seen: Seen, kind: str) -> tuple[Integers, Integers]:
    """Return the intervals in which a disturbance of a kind must be visible."""
    truth = seen.rows("injected", kind)
    before = WAKES_WITHIN_NS if kind in WOKEN else EDGE_NS
    return truth.start - before, truth.end + EDGE_NS


def away(seen: Seen, start: int, end: int) -> bool:
    """Return True if another task had the CPU, so that nothing could disturb the loop."""
    table = seen.table
    other = (table["kind"] == "cause") & np.char.startswith(table["cause"], "task ")
    begun, lasted = table["start_ns"][other], table["duration_ns"][other]
    return bool(((begun < end) & (begun + lasted > start)).any())


@AS_ROOT
@pytest.mark.parametrize("kind", KINDS)
def test_every_disturbance_is_found_by_name(in_a_watch: InAWatch, kind: str) -> None:
    assert in_a_watch(lambda seen: almost_all(named(seen, kind)))


def almost_all(true: list[bool]) -> bool:
    return len(true) >= ENOUGH and float(np.mean(true)) >= ALMOST


def named(seen: Seen, kind: str) -> list[bool]:
    """Return for each disturbance of a kind whether it has its name."""
    rows = seen.rows("cause", KINDS[kind])
    return [
        rows.meet(*when)
        for when in zip(*around(seen, kind), strict=True)
        if kind in WOKEN or not away(seen, *when)
    ]


@AS_ROOT
@pytest.mark.parametrize("kind", KINDS)
def test_what_has_a_name_was_there(in_a_watch: InAWatch, kind: str) -> None:
    """Of all events of a name, those that were made on purpose, or that this program did itself.

    What other programs and the kernel do to the CPU of their own accord is as true: it is known by
    who asked for it, where the kernel tells.
    """
    assert in_a_watch(lambda seen: almost_all(was_there(seen, kind)))


def was_there(seen: Seen, kind: str) -> list[bool]:
    """Return for each event of a disturbance's name whether there was a disturbance."""
    named = seen.rows("cause", KINDS[kind])
    truth = [around(seen, each) for each in (WOKEN if kind in WOKEN else (kind,))]
    low, high = (np.concatenate(ends) for ends in zip(*truth, strict=True))
    tells_senders = any("from" in detail for detail in named.detail)
    true: dict[int, bool] = {}
    for event, start, end, detail in zip(*named, strict=True):
        if tells_senders and kind in SENT and "from tailscope-dp/" not in detail:
            continue
        there = bool(((low < end) & (high > start)).any())
        true[event] = true.get(event, False) or there
    return list(true.values())


@AS_ROOT
def test_as_many_interrupts_are_named_as_the_kernel_counts(in_a_watch: InAWatch) -> None:
    """The counters are read a moment before recording begins, and after it has ended."""
    assert in_a_watch(are_as_counted)


def are_as_counted(seen: Seen) -> bool:
    named = {cause["cause"]: cause["count"] for cause in seen.record["causes"]}
    counted = {
        name.split()[0]: counts[str(CPU)] for name, counts in seen.record["interrupts"].items()
    }
    calls = named["function call"] + named["TLB shootdown"]
    pairs = (
        (named["local timer"], counted["LOC"]),
        (named["reschedule"], counted["RES"]),
        (calls, counted["CAL"]),
        (named["TLB shootdown"], counted["TLB"]),
    )
    return all(ours == pytest.approx(its, rel=1 - ALMOST, abs=10) for ours, its in pairs)


@AS_ROOT
@pytest.mark.parametrize("kind", ["busy", "fault"])
def test_known_durations_are_named_in_full(in_a_watch: InAWatch, kind: str) -> None:
    """The whole time that the program knows of is named, including what interrupted it."""
    assert in_a_watch(lambda seen: are_small(duration_errors_ns(seen, kind)))


def are_small(errors_ns: list[int]) -> bool:
    return len(errors_ns) >= ENOUGH and float(np.quantile(errors_ns, 0.95)) <= WITHIN_NS


def duration_errors_ns(seen: Seen, kind: str) -> list[int]:
    whole, cause = seen.rows("cause"), seen.rows("cause", KINDS[kind])
    outside = seen.rows("cause", "hypervisor/SMI")
    truth = seen.rows("injected", kind)
    errors = []
    for start, end in zip(truth.start, truth.end, strict=True):
        if not cause.meet(start, end):
            continue
        errors.append(abs((end - start) - shared(whole, start, end) + shared(outside, start, end)))
    return errors


@AS_ROOT
@pytest.mark.parametrize("kind", KINDS)
def test_a_stall_is_divided_among_its_causes(in_a_watch: InAWatch, kind: str) -> None:
    """The loop's loss around a disturbance is the sum of its causes."""
    assert in_a_watch(lambda seen: are_small(undivided_ns(seen, kind)))


def undivided_ns(seen: Seen, kind: str) -> list[int]:
    whole, stalls = seen.rows("cause"), seen.rows("stall")
    errors = []
    for low, high in zip(*around(seen, kind), strict=True):
        for at in np.flatnonzero((stalls.start < high) & (stalls.end > low)):
            start, end = stalls.start[at], stalls.end[at]
            errors.append(abs((end - start) - shared(whole, start, end)))
    return errors


def shared(rows: Rows, start: int, end: int) -> int:
    length = np.minimum(rows.end, end) - np.maximum(rows.start, start)
    return int(length[length > 0].sum())


@AS_ROOT
def test_who_asked_is_known_where_the_kernel_tells(seen: Seen) -> None:
    details = {cause["cause"]: cause["details"] for cause in seen.record["causes"]}
    if not any(detail for texts in details.values() for detail in texts if "from" in detail):
        pytest.skip("this kernel has no events of interrupts that are sent")
    for cause, function in (("TLB shootdown", "flush_tlb_func"), ("function call", "ipi_mb")):
        assert any(f"{function} from tailscope-dp/" in text for text in details[cause])


@AS_ROOT
def test_the_recorder_says_what_it_costs(seen: Seen) -> None:
    cost = seen.record["cost"]
    assert 0 < cost["share_without"] < 1
    assert 0 < cost["share_with"] < 1
    assert cost["without_s"] > 3


@pytest.mark.long
def test_an_ordinary_user_finds_the_same_stalls_without_names(place: Place, tailscope: Run) -> None:
    kinds = ("tlb", "call", "busy", "fault")
    shares: list[dict[str, float]] = []
    while len(shares) < WATCHES and not (shares and min(shares[-1].values()) >= ALMOST):
        out = place.path / f"out-{len(shares)}"
        disturb = ("--disturb", ",".join(kinds), "--json", "-", "--out", out)
        if os.geteuid() == 0:
            text = said_to_nobody(place, *WATCH, *map(str, disturb))
        else:
            done = tailscope(*WATCH, *disturb, env=place.environment)
            assert done.returncode == 0, done.stderr
            text = done.stdout
        found = json.loads(text)
        assert "cap_dac_override" in found["events_missing_because"]
        assert {cause["cause"] for cause in found["causes"]} == {"stall"}
        assert found["cost"] is None
        seen = read(out)
        stalls = seen.rows("stall")
        hits = {
            kind: [stalls.meet(*when) for when in zip(*around(seen, kind), strict=True)]
            for kind in kinds
        }
        shares.append({kind: float(np.mean(are_hit)) for kind, are_hit in hits.items()})
    assert min(shares[-1].values()) >= ALMOST, shares
