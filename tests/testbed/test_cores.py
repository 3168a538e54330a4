"""Which CPUs are chosen on machines that are not this one."""

from __future__ import annotations

import os

import pytest

from tailscope.exceptions import TestbedError, UsageError
from tailscope.host.cpus import parse_cpus
from tailscope.testbed.cores import Topology, pick_cores, read_topology, staying_on


def machine(
    cpus: int, *, threads: int = 1, nodes: int = 1, isolated: tuple[int, ...] = ()
) -> Topology:
    """CPUs n and n + cpus/2 share a core where there are two threads; nodes are halves."""
    cores = cpus // threads
    return Topology(
        online=tuple(range(cpus)),
        allowed=tuple(range(cpus)),
        isolated=isolated,
        siblings={cpu: frozenset(range(cpu % cores, cpus, cores)) for cpu in range(cpus)},
        node={cpu: (cpu % cores) * nodes // cores for cpu in range(cpus)},
    )


@pytest.mark.parametrize(
    ("topology", "pollers"),
    [
        (machine(1), (0, 0)),
        (machine(2), (0, 1)),
        (machine(4), (1, 2)),
        (machine(8, threads=2), (1, 2)),
        (machine(4, threads=2), (1, 0)),
        (machine(8, nodes=2), (1, 2)),
        (machine(8, nodes=2, isolated=(6, 7)), (6, 7)),
        (machine(8, nodes=2, isolated=(6,)), (6, 4)),
    ],
)
def test_the_best_cores_poll(topology: Topology, pollers: tuple[int, ...]) -> None:
    cores = pick_cores(topology, 2)
    assert cores.pollers == pollers
    assert bool(set(cores.housekeeping) - set(pollers)) == (len(topology.online) > 2)


def test_doubtful_choices_are_warned_of() -> None:
    assert any("on 1 CPU" in text for text in pick_cores(machine(1), 2).warnings)
    assert any(
        "share a core" in text for text in pick_cores(machine(4, threads=2), 2, "1,3").warnings
    )
    assert any("no CPU is left" in text for text in pick_cores(machine(2), 2).warnings)
    assert pick_cores(machine(8), 2).warnings == ()


def test_wishes_are_met_or_refused() -> None:
    assert pick_cores(machine(8), 2, "5,3").pollers == (5, 3)
    with pytest.raises(TestbedError, match=r"got CPU 8, expected one of 0-7"):
        pick_cores(machine(8), 2, "8")
    confined = Topology(**{**vars(machine(8)), "allowed": (0, 2, 3)})
    with pytest.raises(TestbedError, match=r"got CPU 4, expected one of 0,2-3"):
        pick_cores(confined, 2, "4")


def test_lists_are_read_as_the_kernel_writes_them() -> None:
    assert parse_cpus("0,2-4") == [0, 2, 3, 4]
    for text in ("", "a", "3-1", "-1", "1,,2"):
        with pytest.raises(UsageError):
            parse_cpus(text)


def test_this_machine_has_cpus_and_they_are_given_back() -> None:
    topology = read_topology()
    before = os.sched_getaffinity(0)
    assert before <= set(topology.online)
    with staying_on([min(before)]):
        assert os.sched_getaffinity(0) == {min(before)}
    assert os.sched_getaffinity(0) == before
