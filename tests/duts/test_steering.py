"""The CPUs that a device is given handle what arrives at its links."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from errors import raises
from runs import AS_ROOT, needed

from tailscope.duts.dut import DutContext
from tailscope.duts.steering import steer
from tailscope.exceptions import TestbedError
from tailscope.testbed.folder import RunFolder
from tailscope.testbed.namespaces import inside
from tailscope.testbed.places import Here
from tailscope.testbed.wires import Veth

if TYPE_CHECKING:
    from collections.abc import Sequence

FRAMES, LIMIT_S = 200, 10
LAST_CPU = 36
"""Place of a task's last CPU in its ``stat``, behind its name."""
FRAME = bytes.fromhex("ffffffffffff 020000000002 88b5") + bytes(46)


class Isolated(Here):
    """This machine, as if Linux isolated CPU 1: then it steers no packets there."""

    def run(self, command: Sequence[str], *, timeout_s: float = 30) -> str:
        if command[-1].endswith("/isolated"):
            return "1\n"
        if command[-1].endswith("/rps_cpus"):
            raise TestbedError("printf: I/O error", code="command-failed")
        return super().run(command, timeout_s=timeout_s)


def pollers() -> dict[str, Path]:
    """Return the kernel's threads that poll links, by name."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/comm"):
        name = path.read_text().strip()
        if name.startswith("napi/dut"):
            found[name] = path.parent
    return found


def turns(thread: Path) -> int:
    """Return how often a thread had a CPU."""
    return int(thread.joinpath("schedstat").read_text().split()[2])


@AS_ROOT
def test_threads_of_the_kernel_take_packets_on_isolated_cpus() -> None:
    needed("ethtool", "ip", "taskset")
    with RunFolder() as folder, Veth({}).open(folder) as ends:
        others = pollers()
        place = Isolated(folder.path, ends.dut.command)
        context = DutContext(place, ends.dut, (1,), (0,), 1, generator=ends.generator)
        assert steer(context)
        own = {name: at for name, at in pollers().items() if name not in others}
        assert [os.sched_getaffinity(int(at.name)) for at in own.values()] == [{1}, {1}]
        [first] = [at for name, at in own.items() if name.startswith("napi/dut0-")]
        with inside(ends.generator.namespace):
            raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        with raw:
            raw.bind(("gen0", 0))
            for _ in range(FRAMES):
                before, until_s = turns(first), time.monotonic() + LIMIT_S
                raw.send(FRAME)
                while turns(first) == before:
                    assert time.monotonic() < until_s, "the thread took no packet"
                    time.sleep(0.001)
        assert first.joinpath("stat").read_text().rpartition(")")[2].split()[LAST_CPU] == "1"
        received = ["cat", f"/sys/class/net/{ends.dut.links[0]}/statistics/rx_packets"]
        assert int(place.run(received)) == FRAMES


@AS_ROOT
@pytest.mark.parametrize(("cpus", "code"), [((1,), "isolated-cpus"), ((0, 1), "command-failed")])
def test_links_that_threads_cannot_poll_are_refused(cpus: tuple[int, ...], code: str) -> None:
    """The wire's own links could be polled; somebody's own stay as they are."""
    with RunFolder() as folder, Veth({}).open(folder) as ends:
        place = Isolated(folder.path, ends.dut.command)
        with raises(TestbedError, code):
            steer(DutContext(place, ends.dut, cpus, (0,), 1))
