"""Which CPUs poll, and which do everything else."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tailscope.exceptions import TestbedError
from tailscope.host.cpus import cpu_list, parse_cpus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["Cores", "Topology", "check_cpus", "pick_cores", "read_topology", "staying_on"]

_SYSTEM = Path("/sys/devices/system/cpu")


@dataclass(frozen=True)
class Topology:
    """The CPUs of this machine.

    Attributes
    ----------
    online, allowed, isolated : tuple of int
        CPUs that run, that this process may use, and that the scheduler leaves alone.
    siblings : Mapping of int to frozenset of int
        For each CPU, those that share its core, itself included.
    node : Mapping of int to int
        The NUMA node of each CPU.
    """

    online: tuple[int, ...]
    allowed: tuple[int, ...]
    isolated: tuple[int, ...]
    siblings: Mapping[int, frozenset[int]]
    node: Mapping[int, int]


@dataclass(frozen=True)
class Cores:
    """What each CPU is for.

    Attributes
    ----------
    pollers : tuple of int
        One for each polling process, in their order; equal ones share a CPU.
    housekeeping : tuple of int
        CPUs for everything else; those of the pollers where no other is left.
    warnings : tuple of str
    """

    pollers: tuple[int, ...]
    housekeeping: tuple[int, ...]
    warnings: tuple[str, ...] = ()


def read_topology(system: Path = _SYSTEM) -> Topology:
    """Read the CPUs of this machine.

    Parameters
    ----------
    system : Path
        The kernel's folder of CPUs.
    """
    allowed = tuple(sorted(os.sched_getaffinity(0)))
    online = tuple(_cpus(system / "online")) or allowed
    return Topology(
        online=online,
        allowed=allowed,
        isolated=tuple(_cpus(system / "isolated")),
        siblings={
            cpu: frozenset(_cpus(system / f"cpu{cpu}/topology/thread_siblings_list") or [cpu])
            for cpu in online
        },
        node={cpu: _node(system / f"cpu{cpu}") for cpu in online},
    )


def pick_cores(topology: Topology, count: int, wanted: str | None = None) -> Cores:
    """Choose CPUs for `count` polling processes.

    Isolated CPUs come first, then those of the same NUMA node; two processes never share a core
    where there are enough cores, and CPU 0, which serves most interrupts, comes last.

    Parameters
    ----------
    topology : Topology
    count : int
        How many processes poll.
    wanted : str, optional
        The CPUs to take, as a list such as ``1,3``.

    Raises
    ------
    TestbedError
        If one of the wanted CPUs is not there or may not be used.
    """
    chosen = _wanted(topology, wanted, "--cpus") if wanted is not None else _best(topology, count)
    warnings = []
    if len(chosen) < count:
        cpus = "1 CPU" if len(chosen) == 1 else f"{len(chosen)} CPUs"
        warnings.append(
            f"{count} processes poll on {cpus}: they wait for each other,"
            " and the figures mean little"
        )
        chosen = [chosen[at % len(chosen)] for at in range(count)]
    elif len({topology.siblings[cpu] for cpu in chosen[:count]}) < count:
        warnings.append("polling CPUs share a core: they slow each other down")
    pollers = tuple(chosen[:count])
    rest = tuple(cpu for cpu in topology.allowed if cpu not in pollers)
    if not rest:
        warnings.append(
            "no CPU is left for anything but polling: other work, tailscope's own included, shows"
            " as stalls"
        )
    return Cores(pollers, rest or tuple(sorted(set(pollers))), tuple(warnings))


def check_cpus(listed: str | None, option: str) -> None:
    """See that this process may use the CPUs of a list.

    Parameters
    ----------
    listed : str or None
        Such as ``1,3``; None is any.
    option : str
        What names them, for the error.

    Raises
    ------
    TestbedError
        If one of them is not there or may not be used.
    """
    if listed is not None:
        _wanted(read_topology(), listed, option)


@contextmanager
def staying_on(cpus: Iterable[int]) -> Iterator[None]:
    """Keep this thread, and what it starts, on `cpus` within a block."""
    before = os.sched_getaffinity(0)
    with suppress(OSError):
        os.sched_setaffinity(0, set(cpus))
    try:
        yield
    finally:
        with suppress(OSError):
            os.sched_setaffinity(0, before)


def _wanted(topology: Topology, text: str, option: str) -> list[int]:
    cpus = list(dict.fromkeys(parse_cpus(text, option)))
    for cpu in cpus:
        if cpu not in topology.online:
            raise TestbedError(
                f"{option}: got CPU {cpu}, expected one of {cpu_list(topology.online)}",
                hint="`lscpu --extended` lists the CPUs of this machine",
            )
        if cpu not in topology.allowed:
            raise TestbedError(
                f"{option}: got CPU {cpu}, expected one of {cpu_list(topology.allowed)},"
                " to which this process is confined",
                hint="taskset, a container or a systemd unit confines it",
            )
    return cpus


def _best(topology: Topology, count: int) -> list[int]:
    isolated = set(topology.isolated)

    def rank(cpu: int) -> tuple[bool, bool, int]:
        return (cpu not in isolated, 0 in topology.siblings[cpu], cpu)

    ranked = sorted(topology.allowed, key=rank)
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
    found = next(cpu.glob("node[0-9]*"), None)
    return int(found.name.removeprefix("node")) if found else 0
