"""The choice of CPUs on machines of other sizes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from errors import raises
from wording import assert_wording

from tailscope.exceptions import TestbedError, UsageError
from tailscope.host.cpus import cpus_by_role, parse_cpus
from tailscope.testbed.cores import Topology, pick_cores, read_topology, staying_on

if TYPE_CHECKING:
    from pathlib import Path

BOTH = ("generator", "dut")


def machine(
    cpus: int, *, threads: int = 1, nodes: int = 1, isolated: tuple[int, ...] = ()
) -> Topology:
    """Return a machine; with two threads, CPUs n and n + cpus/2 share a core."""
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
    cores = pick_cores(topology, BOTH)
    assert cores.pollers == pollers
    assert bool(set(cores.housekeeping) - set(pollers)) == (len(topology.online) > 2)


def test_doubtful_choices_are_warned_of() -> None:
    for name, cores in {
        "one-cpu": pick_cores(machine(1), BOTH),
        "one-core": pick_cores(machine(4, threads=2), BOTH, "1,3"),
        "no-cpu-left": pick_cores(machine(2), BOTH),
    }.items():
        assert_wording(f"cores/{name}", "\n".join(cores.warnings))
    assert pick_cores(machine(8), BOTH).warnings == ()


def test_wishes_are_met_or_refused() -> None:
    assert pick_cores(machine(8), BOTH, "5,3").pollers == (5, 3)
    with raises(TestbedError, "cpu-offline") as offline:
        pick_cores(machine(8), BOTH, "8")
    assert "CPU 8" in str(offline.value) and "0-7" in str(offline.value)
    confined = Topology(**{**vars(machine(8)), "allowed": (0, 2, 3)})
    with raises(TestbedError, "cpu-not-allowed") as refused:
        pick_cores(confined, BOTH, "4")
    assert "CPU 4" in str(refused.value) and "0,2-3" in str(refused.value)


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


def test_isolated_cpus_are_allowed_though_nobody_is_put_there(tmp_path: Path) -> None:
    """The kernel starts all processes on the others, as after a boot with isolcpus."""
    before = os.sched_getaffinity(0)
    if len(before) < 2:
        pytest.skip("a single CPU cannot be isolated")
    first, *isolated = sorted(before)
    (tmp_path / "online").write_text(f"{','.join(map(str, sorted(before)))}\n")
    (tmp_path / "isolated").write_text(f"{','.join(map(str, isolated))},4095\n")
    with staying_on([first]):
        topology = read_topology(tmp_path)
        assert os.sched_getaffinity(0) == {first}
    assert set(topology.allowed) == before
    assert pick_cores(topology, ["dut"]).pollers == (isolated[0],)


@pytest.mark.parametrize(
    ("wanted", "pollers", "housekeeping"),
    [
        ("dut=5,6", (1, 5, 6), {0, 2, 3, 4, 7}),
        ("dut=5-6,generator=0", (0, 5, 6), {1, 2, 3, 4, 7}),
        ("generator=3,dut=3", (3, 3, 3), {0, 1, 2, 4, 5, 6, 7}),
        ("housekeeping=0,7", (1, 2, 3), {0, 7}),
        ("generator=1,dut=2,3,housekeeping=1", (1, 2, 3), {1}),
    ],
)
def test_cpus_are_wanted_by_role(
    wanted: str, pollers: tuple[int, ...], housekeeping: set[int]
) -> None:
    cores = pick_cores(machine(8), ("generator", "dut", "dut"), wanted)
    assert cores.pollers == pollers
    assert set(cores.housekeeping) == housekeeping
    warnings = " ".join(cores.warnings)
    assert ("poll on" in warnings) == (len(set(pollers)) < 3)
    assert ("no CPU" in warnings) == (housekeeping <= set(pollers))


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("dut=1,dut=2", "dut once"),
        ("device=1", "generator, dut"),
        ("dut=", "got ''"),
        ("1,dut=2", "generator, dut"),
        ("dut", "got 'dut'"),
    ],
)
def test_roles_that_cannot_be_read_are_refused(wanted: str, expected: str) -> None:
    with pytest.raises(UsageError) as error:
        cpus_by_role(wanted, "--cpus")
    assert expected in str(error.value)


def test_a_role_that_nothing_has_is_refused() -> None:
    with raises(UsageError, "cpu-role") as error:
        pick_cores(machine(8), ["watch"], "dut=1")
    assert "'dut'" in str(error.value) and "watch" in str(error.value)


def test_a_device_may_be_left_to_the_scheduler() -> None:
    cores = pick_cores(machine(8), BOTH, "generator=3,dut=any")
    assert cores.pollers == (3, 1) and cores.anywhere == tuple(range(8))
    assert pick_cores(machine(8), BOTH, "3,1").anywhere == ()
    with pytest.raises(UsageError) as error:
        cpus_by_role("generator=any", "--cpus")
    assert "got 'any'" in str(error.value)
