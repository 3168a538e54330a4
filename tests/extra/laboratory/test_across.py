"""Mapping of the machines' clocks to captures, against a known truth."""

from __future__ import annotations

import re
from typing import Literal

import numpy as np
import pytest
from wording import assert_wording

from tailscope.engine.columns import Column, Texts, values
from tailscope.extra.laboratory.across import (
    OWN_CLOCK,
    Captured,
    Machine,
    MappedClock,
    map_clock,
    noise_on_captures,
)
from tailscope.extra.laboratory.agents import Answers
from tailscope.extra.laboratory.models.two_clocks import Bounds
from tailscope.extra.laboratory.sightings import Sightings
from tailscope.store.records.clocks import MachineClock

S = 1_000_000_000
UNIX = 1_700_000_000 * S
COUNT = 2000
OFFSET_NS, DRIFT = 5_000_000, 30e-6


class World:
    """A simulation of packets through a device, with a true clock and a wrong one."""

    def __init__(self, seed: int = 1, *, resolution_ns: int = 1) -> None:
        rng = np.random.default_rng(seed)
        self.seq = np.arange(COUNT)
        self.came = UNIX + np.arange(COUNT) * (5 * S // COUNT) + rng.integers(0, 1000, COUNT)
        at_device = self.came + rng.exponential(2_000, COUNT).astype(np.int64)
        self.seen = self.by_theirs(at_device)
        self.left = at_device + 1_000 + rng.exponential(20_000, COUNT).astype(np.int64)
        self.sent = self.by_theirs(self.came - rng.exponential(500, COUNT).astype(np.int64) - 50)
        self.back = self.by_theirs(self.left + rng.exponential(500, COUNT).astype(np.int64))
        stamps = [times // resolution_ns * resolution_ns for times in (self.came, self.left)]
        self.captured = Captured(*((self.seq, times) for times in stamps))
        self.rng = rng

    @staticmethod
    def by_theirs(ours: np.ndarray) -> np.ndarray:
        """Convert times to the machine's clock, which lags and drifts."""
        return ours - OFFSET_NS - np.rint((ours - UNIX) * DRIFT).astype(np.int64)

    def answers(self, *, theirs: bool, delay_ns: float = 200_000) -> Answers:
        """Simulate answers to queries on a third clock."""
        asked = np.sort(self.rng.integers(-S // 5, 0, 32))
        asked = np.concatenate([asked, 5 * S - asked[::-1]])
        heard = asked + self.rng.exponential(2 * delay_ns, 64).astype(np.int64)
        answered = heard + 15_000 + self.rng.exponential(delay_ns, 64).astype(np.int64)
        reported = [UNIX + times for times in (heard, heard + 15_000)]
        if theirs:
            reported = [self.by_theirs(times) for times in reported]
        return Answers(
            asked.tolist(), reported[0].tolist(), reported[1].tolist(), answered.tolist()
        )

    def machine(
        self, role: str = "dut", times_by: Literal["tsc", "unix"] = "unix", **other: object
    ) -> Machine:
        first, last = (self.seen, self.seen) if role == "dut" else (self.sent, self.back)
        fields = {
            "sightings": Sightings(self.seq, first, last),
            "pairs": None,
            "answers": self.answers(theirs=True),
            "was_set_by_ns": 0,
            "reports": (),
        }
        return Machine(role=role, times_by=times_by, **{**fields, **other})  # type: ignore[arg-type]

    def mapped(self, machine: Machine, *, asked: bool = True) -> MappedClock:
        answers = self.answers(theirs=False) if asked else None
        span_ns = (int(self.seen[0]) - S, int(self.seen[-1]) + S)
        return map_clock(machine, self.captured, answers, span_ns)


def holds(clock: MappedClock) -> None:
    """Check that times are mapped within the stated error."""
    assert clock.to_captures is not None and clock.record.error_ns is not None
    ours = UNIX + np.arange(0, 5 * S, S // 100)
    off = np.abs(clock.moved(World.by_theirs(ours)) - ours)
    assert off.max() <= clock.record.error_ns


@pytest.mark.parametrize("role", ["dut", "loadgen"])
@pytest.mark.parametrize("resolution_ns", [1, 1000])
def test_packets_bring_a_clock_to_that_of_the_captures(role: str, resolution_ns: int) -> None:
    world = World(resolution_ns=resolution_ns)
    found = world.mapped(world.machine(role))
    holds(found)
    assert found.record.method == "packets"
    packets, answers = found.record.mappings
    assert packets.bounds == COUNT and answers.bounds == 64
    assert packets.offset_ns is not None and packets.error_ns is not None
    assert abs(packets.offset_ns - OFFSET_NS) <= packets.error_ns < 10_000
    assert packets.drift_ppb == pytest.approx(30_000, abs=packets.drift_error_ppb)
    assert answers.error_ns is not None and packets.error_ns < answers.error_ns


def test_without_packets_answers_do() -> None:
    world = World()
    found = world.mapped(world.machine(sightings=Sightings.none()))
    holds(found)
    assert found.record.method == "answers"
    assert found.record.mappings[0].missing_because is not None


def test_a_counter_is_known_by_its_pairs_with_unix_time() -> None:
    """The counter's rate is wrong: it gains 1 ms a second on Unix time."""
    world = World()
    at = world.by_theirs(UNIX + np.arange(0, 6 * S, S))
    counted = at + (at - at[0]) // 1000
    pairs = Bounds.of_pairs(counted, at - counted - 40, at - counted + 40)
    machine = world.machine(times_by="tsc", sightings=Sightings.none(), pairs=pairs)
    found = world.mapped(machine)
    assert found.record.method == "answers" and found.record.error_ns is not None
    ours = UNIX + np.arange(0, 6 * S, S)
    assert np.abs(found.moved(counted) - ours).max() <= found.record.error_ns + 2
    assert np.abs(found.moved_unix(at) - ours).max() <= found.record.error_ns + 10_000


def test_a_counter_of_which_nothing_is_known_is_not_taken_for_unix_time() -> None:
    """This happens if its program dies before it writes anything."""
    world = World()
    found = world.mapped(world.machine(times_by="tsc", sightings=Sightings.none()))
    assert found.record.method is None
    assert_wording("across/no-pairs", found.record.problem("the device") or "")


def test_what_nobody_saw_and_nobody_asked_is_not_known() -> None:
    world = World()
    found = world.mapped(world.machine(sightings=Sightings.none()), asked=False)
    assert found.to_captures is None and found.record.error_ns is None
    assert_wording("across/no-evidence", found.record.problem("the device") or "")


def test_a_clock_that_was_set_meanwhile_says_nothing_by_answers() -> None:
    world = World()
    machine = world.machine(sightings=Sightings.none(), was_set_by_ns=-2 * S)
    found = world.mapped(machine)
    assert found.record.method is None
    assert "-2.000 s" in (found.record.problem("the device") or "")


def test_a_device_that_contradicts_the_captures_is_not_believed() -> None:
    """It claims to have seen some packets before the timestamper did."""
    world = World()
    seen = world.seen.copy()
    seen[1000:1010] -= 400_000
    found = world.mapped(world.machine(sightings=Sightings(world.seq, seen, seen)))
    assert found.to_captures is None and found.record.method is None
    assert " 1700000002." in (found.record.problem("the device") or "")
    assert found.record.mappings[0].error_ns is None
    # The mapping by answers is recorded, and not used.
    assert found.record.mappings[1].error_ns is not None


def test_methods_that_exclude_each_other_are_not_believed() -> None:
    """The capture has other packets of the same numbers, 20 ms later."""
    world = World()
    late = Captured(*((seq, times + 20_000_000) for seq, times in world.captured))
    machine = world.machine()
    span_ns = (int(world.seen[0]), int(world.seen[-1]))
    found = map_clock(machine, late, world.answers(theirs=False), span_ns)
    assert found.record.method is None and found.record.contradiction is not None
    assert re.findall(r" ns by (\w+)", found.record.contradiction) == ["packets", "answers"]


def rows(source: str, start: list[int], lasted: list[int]) -> dict[str, Column]:
    texts = {name: Texts.of([name] * len(start)) for name in ("kind", "cause", "detail")}
    numbers = {"cpu": [1] * len(start), "event": [0] * len(start)}
    numbers |= {"start_ns": start, "duration_ns": lasted}
    columns = {name: np.array(column, np.int64) for name, column in numbers.items()}
    return {"source": Texts.of([source] * len(start)), **texts, **columns}


def test_what_happened_is_kept_by_the_clock_of_the_captures() -> None:
    world = World()
    known = world.mapped(world.machine())
    unknown = MappedClock(MachineClock(times_by="unix"), None)
    ours = UNIX + np.array([S, 2 * S])
    start = world.by_theirs(ours)
    lasted = world.by_theirs(ours + 1_000_000) - start
    found = noise_on_captures(
        [
            (rows("dut", start.tolist(), lasted.tolist()), known),
            (rows("loadgen", [UNIX + 7], [5]), unknown),
        ]
    )
    assert values(found["source"]).tolist() == [OWN_CLOCK, "dut", "dut"]
    moved = values(found["start_ns"]).tolist()
    assert moved[0] == UNIX + 7 and moved == sorted(moved)
    assert np.abs(np.array(moved[1:]) - ours).max() <= (known.record.error_ns or 0)
    assert np.abs(np.array(values(found["duration_ns"])[1:]) - 1_000_000).max() <= 2
