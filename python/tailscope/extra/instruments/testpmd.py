"""dpdk-testpmd's latency statistics (`--latencystats`), read as its telemetry offers them."""

from __future__ import annotations

import json
import socket
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from tailscope.duts.catalogue import dut_named
from tailscope.duts.dut import DutContext
from tailscope.exceptions import TestbedError
from tailscope.extra.instruments.reading import Reading
from tailscope.testbed.cores import staying_on
from tailscope.testbed.folder import RunFolder
from tailscope.testbed.places import Here
from tailscope.testbed.programs import find_program
from tailscope.testbed.wires import wire_named

if TYPE_CHECKING:
    from pathlib import Path

    from tailscope.experiment.plan import RunPlan
    from tailscope.testbed.cores import Cores

_MBUFS = 8_192
_STARTS_S, _ANSWERS_S = 20.0, 2.0
_BUFFER_BYTES = 65_536


def latency_statistics(plan: RunPlan, cores: Cores) -> Reading:
    """Let testpmd send a burst into the device, and forward around what comes back.

    It stamps packets when it receives them, and looks at the stamp when it sends them on.
    """
    program = str(find_program("instruments", "dpdk-testpmd", "dpdk"))
    wire = wire_named("memif", {})
    with ExitStack() as stack:
        stack.enter_context(staying_on(cores.housekeeping))
        folder = stack.enter_context(RunFolder())
        ends = stack.enter_context(wire.open(folder))
        place = Here(folder.path, mark=folder.name)
        context = DutContext(
            place, ends.dut, (cores.pollers[1],), cores.housekeeping, wire.stall_ns
        )
        stack.enter_context(dut_named("delay", plan.dut_options, wire.name).open(context))
        # Without shared files it would have no folder for its telemetry.
        eal = [word for word in ends.generator.eal if word != "--no-shconf"]
        command = [program, *eal, f"--lcores=0@{cores.housekeeping[0]},1@{cores.pollers[0]}", "--"]
        command += [f"--total-num-mbufs={_MBUFS}", "--latencystats=1", "--no-mlockall"]
        command += ["--tx-first", "--stats-period=86400", "--forward-mode=io"]
        stack.enter_context(place.start("testpmd", command, merged=True))
        telemetry = _wait_socket(folder.path)
        time.sleep(plan.duration_ns / 1e9)
        figures = _global_statistics(telemetry)
    return Reading(said={"mean": figures["avg"], "max": figures["max"]})


def _wait_socket(folder: Path) -> Path:
    """Return the socket of the first telemetry, the one that knows the latency statistics."""
    deadline_s = time.monotonic() + _STARTS_S
    while time.monotonic() < deadline_s:
        for path in folder.rglob("telemetry"):
            return path
        time.sleep(0.05)
    raise TestbedError("testpmd: did not start its telemetry", code="instrument-failed")


def _global_statistics(telemetry: Path) -> dict[str, float]:
    """Ask DPDK's first telemetry for the average and the maximum, which belong to no port."""
    client = telemetry.with_name("client")
    with ExitStack() as stack:
        ours, theirs = (
            stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            for _ in range(2)
        )
        ours.bind(str(client))
        ours.listen(1)
        ours.settimeout(_ANSWERS_S)
        theirs.connect(str(telemetry))
        _say(theirs, {"action": 1, "command": "clients", "data": {"client_path": str(client)}})
        answers, _ = ours.accept()
        stack.enter_context(answers)
        answers.settimeout(_ANSWERS_S)
        _say(answers, {"action": 0, "command": "global_stat_values", "data": None})
        said = json.loads(answers.recv(_BUFFER_BYTES))
    try:
        figures = {each["name"]: float(each["value"]) for each in said["data"][0]["stats"]}
        return {name: figures[f"{name}_latency_ns"] for name in ("avg", "max")}
    except (KeyError, IndexError, TypeError) as error:
        raise TestbedError(
            f"testpmd: expected latency statistics, got {str(said)[:200]}",
            code="instrument-failed",
        ) from error


def _say(to: socket.socket, what: dict[str, Any]) -> None:
    to.send(json.dumps(what).encode())
