"""Assignment of CPUs: those that poll, and those for everything else."""

from __future__ import annotations

import itertools
import os
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tailscope.exceptions import TestbedError, UsageError
from tailscope.host.cpus import cpu_list, cpus_by_role, parse_cpus
from tailscope.testbed.tasks import threads_of
from tailscope.units import counted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

_SYSTEM = Path("/sys/devices/system/cpu")


@dataclass(frozen=True)
class Topology:
    """CPUs of a machine."""

    online: tuple[int, ...]
    """CPUs that are online."""
    allowed: tuple[int, ...]
    """CPUs that this process may use."""
    isolated: tuple[int, ...]
    """CPUs that the scheduler leaves alone."""
    siblings: Mapping[int, frozenset[int]]
    """CPUs that share the core of each CPU, itself included."""
    node: Mapping[int, int]
    """NUMA node of each CPU."""


@dataclass(frozen=True)
class Cores:
    """Assignment of CPUs to processes."""

    pollers: tuple[int, ...]
    """CPU of each polling process, in their order; several may share one."""
    housekeeping: tuple[int, ...]
    """CPUs for everything else; those of the pollers if no other is left."""
    warnings: tuple[str, ...] = ()
    anywhere: tuple[int, ...] = ()
    """CPUs that a DuT without pinning may run on; empty if it is pinned."""


def read_topology(system: Path = _SYSTEM) -> Topology:
    """Read the CPUs of this machine."""
    isolated, own = _cpus(system / "isolated"), os.sched_getaffinity(0)
    # A process is kept off isolated CPUs until it asks for them; one that has some was given these.
    with staying_on(own if own.intersection(isolated) else own.union(isolated)):
        allowed = tuple(sorted(os.sched_getaffinity(0)))
    online = tuple(_cpus(system / "online")) or allowed
    return Topology(
        online=online,
        allowed=allowed,
        isolated=tuple(isolated),
        siblings={
            cpu: frozenset(_cpus(system / f"cpu{cpu}/topology/thread_siblings_list") or [cpu])
            for cpu in online
        },
        node={cpu: _node(system / f"cpu{cpu}") for cpu in online},
    )


def pick_cores(topology: Topology, roles: Sequence[str], wanted: str | None = None) -> Cores:
    """Choose a CPU for each polling process.

    Isolated CPUs come first, then those of the same NUMA node. Two processes share a core only if
    there are too few cores, and CPU 0, which serves most interrupts, comes last.
    """
    given = {} if wanted is None else cpus_by_role(wanted, "--cpus")
    for role, cpus in given.items():
        _check(topology, cpus, "--cpus")
        if role not in ("", "housekeeping", *roles):
            expected = ", ".join(dict.fromkeys(roles))
            raise UsageError(
                f"--cpus: got CPUs of {role!r}, expected those of {expected}", code="cpu-role"
            )
    chosen = given.get("") or _by_role(topology, roles, given)
    warnings = []
    if len(set(chosen)) < len(roles):
        cpus_text = counted(len(set(chosen)), "CPU")
        warnings.append(
            f"{len(roles)} processes poll on {cpus_text}: they wait for each other,"
            " and the figures mean little"
        )
        chosen = [chosen[at % len(chosen)] for at in range(len(roles))]
    elif len({topology.siblings[cpu] for cpu in chosen[: len(roles)]}) < len(roles):
        warnings.append("polling CPUs share a core: they slow each other down")
    pollers = tuple(chosen[: len(roles)])
    # The scheduler does not spread threads over isolated CPUs: only pollers are put there.
    shared = [cpu for cpu in topology.allowed if cpu not in topology.isolated]
    left = [cpu for cpu in topology.allowed if cpu not in pollers]
    rest = tuple(
        given.get("housekeeping") or [cpu for cpu in left if cpu not in topology.isolated] or left
    )
    if not rest or not set(rest) - set(pollers):
        warnings.append(
            "no CPU is left for anything but polling: other work, tailscope's own included, shows"
            " as stalls"
        )
    anywhere = tuple(shared or topology.allowed) if given.get("dut") == [] else ()
    return Cores(pollers, rest or tuple(sorted(set(pollers))), tuple(warnings), anywhere)


def check_cpus(listed: str | None, option: str) -> None:
    """Check that this process may use the CPUs of a list."""
    if listed is not None:
        _check(read_topology(), parse_cpus(listed, option), option)


@contextmanager
def confined(cpus: Iterable[int]) -> Iterator[None]:
    """Keep all threads of this process, and all that they start, on `cpus` within a block.

    This includes threads that already run, such as those of libraries.
    """
    chosen, before = set(cpus), {}
    for tid in threads_of(os.getpid()):
        with suppress(OSError):
            before[tid] = os.sched_getaffinity(tid)
            os.sched_setaffinity(tid, chosen)
    try:
        yield
    finally:
        own = before.get(threading.get_native_id())
        for tid in threads_of(os.getpid()):
            # New threads inherited the CPUs of the thread that started them.
            with suppress(OSError):
                os.sched_setaffinity(tid, before.get(tid) or own or chosen)


@contextmanager
def staying_on(cpus: Iterable[int]) -> Iterator[None]:
    """Keep this thread, and all that it starts, on `cpus` within a block."""
    before = os.sched_getaffinity(0)
    with suppress(OSError):
        os.sched_setaffinity(0, set(cpus))
    try:
        yield
    finally:
        with suppress(OSError):
            os.sched_setaffinity(0, before)


def _check(topology: Topology, cpus: Iterable[int], option: str) -> None:
    for cpu in cpus:
        if cpu not in topology.online:
            raise TestbedError(
                f"{option}: got CPU {cpu}, expected one of {cpu_list(topology.online)}",
                code="cpu-offline",
                hint="`lscpu --extended` lists the CPUs of this machine",
            )
        if cpu not in topology.allowed:
            raise TestbedError(
                f"{option}: got CPU {cpu}, expected one of {cpu_list(topology.allowed)},"
                " to which this process is confined",
                code="cpu-not-allowed",
                hint="taskset, a container or a systemd unit confines it",
            )


def _by_role(
    topology: Topology, roles: Sequence[str], given: Mapping[str, Sequence[int]]
) -> list[int]:
    """Return the next CPU of each process's role, or the best of the remaining CPUs."""
    taken = {cpu for cpus in given.values() for cpu in cpus}
    own = {role: itertools.cycle(cpus) for role, cpus in given.items() if cpus}
    left = itertools.cycle(_best(topology, sum(role not in own for role in roles), without=taken))
    return [next(own.get(role, left)) for role in roles]


def _best(topology: Topology, count: int, *, without: Collection[int] = ()) -> list[int]:
    isolated = set(topology.isolated)
    free = [cpu for cpu in topology.allowed if cpu not in without] or topology.allowed

    def rank(cpu: int) -> tuple[bool, bool, int]:
        return (cpu not in isolated, 0 in topology.siblings[cpu], cpu)

    ranked = sorted(free, key=rank)
    if len(ranked) <= count:
        return sorted(ranked)
    home = topology.node[ranked[0]]
    ranked.sort(key=lambda cpu: (topology.node[cpu] != home, *rank(cpu)))
    chosen: list[int] = []
    for cpu in ranked:
        if not any(other in topology.siblings[cpu] for other in chosen):
            chosen.append(cpu)
    chosen += [cpu for cpu in ranked if cpu not in chosen]
    return chosen[:count]


def _cpus(path: Path) -> list[int]:
    try:
        text = path.read_text().strip()
    except OSError:
        return []
    return parse_cpus(text) if text else []


def _node(cpu: Path) -> int:
    node = next(cpu.glob("node[0-9]*"), None)
    return int(node.name.removeprefix("node")) if node else 0
