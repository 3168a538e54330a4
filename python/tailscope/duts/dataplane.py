"""Devices that are programs of ``tailscope-dp``."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar

from tailscope.duts.dut import Dut, DutContext, Running, as_it_is, one_of
from tailscope.exceptions import UsageError
from tailscope.testbed.process import Dataplane, find_binary
from tailscope.units import duration_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tailscope.exceptions import DataplaneError
    from tailscope.store.records.dataplane import ForwarderCounts
    from tailscope.store.records.messages import LoopProgress
    from tailscope.testbed.messages import ForwarderResult

LOOP = "loop"


def _batch(name: str, value: str) -> list[str]:
    size = _number(name, value)
    return [f"--rx-burst={size}", f"--tx-burst={size}"]


def _burst(name: str, value: str) -> list[str]:
    return [f"--{name}={_number(name, value)}"]


def _number(name: str, value: str) -> int:
    if not value.isdecimal() or not 1 <= int(value) <= 512:
        raise UsageError(
            f"--dut-option {name}: got {value!r}, expected 1 to 512 packets", code="dut-option"
        )
    return int(value)


def _drain(name: str, value: str) -> list[str]:
    ns = duration_ns(value, f"--dut-option {name}")
    if ns % 1000:
        raise UsageError(
            f"--dut-option {name}: got {value}, expected whole microseconds", code="dut-option"
        )
    return [f"--tx-drain-us={ns // 1000}"]


def _mac_updating(name: str, value: str) -> list[str]:
    return [] if one_of("on", "off")(name, value) == "on" else ["--no-mac-updating"]


def _flag(name: str, value: str) -> list[str]:
    return [f"--{name}"] if one_of("on", "off")(name, value) == "on" else []


def _cpus(name: str, value: str) -> list[str]:
    """Check the number of CPUs; the program has as many loops as it is given."""
    one_of("1", "2")(name, value)
    return []


def _times(name: str, value: str) -> list[str]:
    times = [duration_ns(text, f"--dut-option {name}") for text in value.split(",")]
    return [f"--{name}={','.join(f'{ns}ns' for ns in times)}"]


def _handed_on(name: str, value: str) -> list[str]:
    return [f"--{name}={as_it_is(name, value)}"]


class Forwarder(Dut):
    """A program of ``tailscope-dp``."""

    options: ClassVar[Mapping[str, Callable[[str, str], list[str]]]]
    notes_stages = True

    def arguments(self, cpus: Sequence[int]) -> list[str]:  # noqa: ARG002
        """Return the program's own options, where it runs on `cpus`."""
        return [
            argument
            for name, value in self.given.items()
            for argument in self.options[name](name, value)
        ]

    def guest_programs(self) -> tuple[Path, ...]:
        """Return the data plane itself."""
        return (find_binary()[0],)

    def process(self, context: DutContext) -> Dataplane[LoopProgress, ForwarderResult]:
        """Return the process of the program, which is not started yet."""
        from tailscope.testbed.messages import FORWARDERS

        own = [*self.arguments(context.cpus), f"--stall-ns={context.stall_ns}"]
        if context.record is not None:
            own.append(f"--record={context.record}")
        if context.stages_every is not None:
            own.append(f"--stages-every={context.stages_every}")
        if context.hold is not None:
            own.append(f"--hold={context.hold}")
        return Dataplane(
            "dut",
            FORWARDERS[self.name],
            context.side.eal,
            own,
            place=context.place,
            lcores=context.cpus,
            housekeeping=context.housekeeping,
            pinned=context.pinned,
        )

    @contextmanager
    def open(self, context: DutContext) -> Iterator[Running]:
        """Start the program."""
        with self.process(context) as process:
            process.wait_ready()
            yield _Running(process)


class _Running(Running):
    def __init__(self, process: Dataplane[LoopProgress, ForwarderResult]) -> None:
        self.process = process
        self.version, self.configuration = process.version, process.command
        assert process.ready is not None, "it is ready"
        self.clock = process.ready.clock

    @property
    def is_running(self) -> bool:
        return self.process.is_running

    def failure(self) -> DataplaneError:
        return self.process.failure()

    def stop(self) -> ForwarderCounts | None:
        from tailscope.testbed.messages import forwarder_counts

        self.process.stop()
        result = self.process.finish()
        if result is None:
            return None
        self.partial, self.passed = result.partial, result.stages
        return forwarder_counts(result)


class Loop(Dut):
    """The generator joined with itself, without a device."""

    name = LOOP
    about = "no device: the generator connected to itself"
    wires = ("memif", "veth", "pci")

    @property
    def cpus(self) -> int:
        """Return 0."""
        return 0

    @contextmanager
    def open(self, context: DutContext) -> Iterator[Running]:
        """Raise an error: there is nothing to start."""
        raise AssertionError(f"a loop has no device: {context}")
        yield


_FORWARDING = {"batch": _batch, "rx-burst": _burst, "tx-burst": _burst}


class L2fwd(Forwarder):
    """The forwarder DPDK l2fwd, as in noms2020 V."""

    name = "l2fwd"
    about = "forwards between two ports"
    options = {  # noqa: RUF012
        **_FORWARDING,
        "tx-drain": _drain,
        "mac-updating": _mac_updating,
        "cpus": _cpus,
    }

    @property
    def cpus(self) -> int:
        """Return the number of loops: one for both ports, or one for each."""
        return int(self.given.get("cpus", "1"))


_ENTRY = re.compile(r"\((\d{1,2}),(\d{1,2}),(\d{1,2})\)")


def _entries(text: str) -> list[tuple[int, int, int]]:
    """Return port, queue and CPU of each entry of l3fwd's ``config``; CPUs count from 0."""
    return [(int(port), int(queue), int(cpu)) for port, queue, cpu in _ENTRY.findall(text)]


def _config(name: str, value: str) -> list[str]:
    """Check l3fwd's ``config``; it becomes options once the CPUs are known."""
    used = {cpu for *_, cpu in _entries(value)}
    if not re.fullmatch(rf"{_ENTRY.pattern}(,{_ENTRY.pattern})*", value) or used != set(
        range(len(used))
    ):
        raise UsageError(
            f"--dut-option {name}: got {value!r}, expected (PORT,QUEUE,CPU),... such as"
            " (0,0,0),(1,0,1), where the DuT's CPUs count from 0",
            code="l3fwd-config",
        )
    return []


class L3fwd(Forwarder):
    """The router DPDK l3fwd, as in containers2024 5.6, on one CPU unless ``config`` names more."""

    name = "l3fwd"
    about = "routes by longest-prefix match"
    options = {  # noqa: RUF012
        **_FORWARDING,
        "routes": _handed_on,
        "lookup": _handed_on,
        "config": _config,
    }

    @property
    def cpus(self) -> int:
        """Return the number of CPUs in the configuration."""
        return len({cpu for *_, cpu in self._entries}) or 1

    @property
    def queues(self) -> int:
        """Return the number of queues of a port in the configuration."""
        return 1 + max((queue for _, queue, _ in self._entries), default=0)

    def arguments(self, cpus: Sequence[int]) -> list[str]:
        """Return the program's own options; the configuration names CPUs of the machine."""
        entries = ",".join(f"({port},{queue},{cpus[cpu]})" for port, queue, cpu in self._entries)
        return [*super().arguments(cpus), *([f"--config={entries}"] if entries else [])]

    @property
    def _entries(self) -> list[tuple[int, int, int]]:
        return _entries(self.given.get("config", ""))


class Delay(Forwarder):
    """A device with a known latency law."""

    name = "delay"
    about = "holds packets by a known law, and stalls at known times"
    options = {  # noqa: RUF012
        "law": _handed_on,
        "gate": _handed_on,
        "one-way": _flag,
        "overtake": _flag,
        "stall-period": _times,
        "stall-duration": _times,
        "stall-jitter": _times,
        "seed": _handed_on,
        "disturb": _handed_on,
        "disturb-period": _times,
        "disturb-duration": _times,
    }


class Work(Forwarder):
    """A device with a known capacity."""

    name = "work"
    about = "works on packets for a known time, and hands on whole batches"
    options = {"law": _handed_on, "batch": _burst, "seed": _handed_on}  # noqa: RUF012
