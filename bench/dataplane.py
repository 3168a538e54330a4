"""The data plane against DPDK's own test program, over the same wire, on the same cores."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import statistics
import subprocess
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple

from bench.clock import say
from bench.table import Row
from tailscope.experiment.plan import RunPlan
from tailscope.experiment.run.execute import execute_whole
from tailscope.experiment.search.calibration import STALLS, check_stalls
from tailscope.testbed.cores import Cores, pick_cores, read_topology
from tailscope.testbed.folder import RunFolder
from tailscope.testbed.messages import FORWARDERS, GENERATOR
from tailscope.testbed.places import Here
from tailscope.testbed.process import Dataplane
from tailscope.testbed.wires import Memif

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tailscope.experiment.run.measured import Measured
    from tailscope.store.records.messages import LoopProgress
    from tailscope.testbed.messages import ForwarderResult

TESTPMD = "dpdk-testpmd"
ROUNDS = 3
# More than either carries here; every packet that cannot be sent costs the generator time too.
OFFERED = "20M"
SECONDS = 2
_RATE = re.compile(r"Rx-pps:\s+(\d+)")


def dataplane_rows() -> list[Row]:
    """Packets per second beside testpmd's; departures and stalls beside what they should be."""
    cores = pick_cores(read_topology(), ["generator", "dut"])
    ways = {
        "l2fwd": lambda: overloaded(cores, None),
        "io": lambda: overloaded(cores, "io"),
        "flowgen": lambda: received_by_testpmd(cores, "flowgen", "io"),
        "txonly": lambda: received_by_testpmd(cores, "txonly", "rxonly"),
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    for done in range(ROUNDS):
        for name, way in ways.items():
            found[name].append(way())
        say(f"gen and l2fwd against testpmd: round {done + 1} of {ROUNDS}")
    l2fwd, io, flowgen, txonly = (statistics.median(found[name]) / 1e6 for name in found)
    return [
        Row("l2fwd on memif", "testpmd io", "rate", l2fwd, io, "Mpps", 1.1),
        Row("gen, stamped and matched", "testpmd flowgen", "rate", io, flowgen, "Mpps", 1.0),
        Row("gen, stamped and matched", "testpmd txonly", "rate", io, txonly, "Mpps", 0.8),
        *trust_rows(cores),
    ]


def trust_rows(cores: Cores) -> list[Row]:
    """Departure error at 100 kpps, and injected stalls."""
    departures, errors, shares = [], [], []

    def inspect(measured: Measured) -> None:
        stalls, _ = check_stalls(measured)
        errors.extend(stalls.duration_error_ns.tolist())
        shares.append(stalls.found / stalls.injected)

    plan = RunPlan(dut="delay", dut_options=STALLS, rate_pps=100_000, duration_ns=4_000_000_000)
    for _ in range(ROUNDS):
        summary = execute_whole(plan, cores, inspect=inspect).analysis.summary
        departures.append(float(summary["untainted_departure_error_ns_p999"] or 0))
    error_ns = sorted(errors)[-(-99 * len(errors) // 100) - 1]
    departure_us = statistics.median(departures) / 1e3
    return [
        Row("departure error, 100 kpps, p99.9", "", "absolute", departure_us, None, "us", 0.2),
        Row("stalls of 5 us to 5 ms found", "", "share", 100 * min(shares), None, "%", 100),
        Row("error of their duration, p99", "", "absolute", float(error_ns), None, "ns", 200),
    ]


def overloaded(
    cores: Cores, testpmd_mode: str | None, *packets: str, seconds: float = SECONDS
) -> float:
    """Packets per second that come back to a generator that sends more than the wire carries.

    By our l2fwd where there is no mode of testpmd; `packets` are options of the generator.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(RunFolder())
        ends = stack.enter_context(Memif({}).open(folder))
        if testpmd_mode is None:
            stack.enter_context(dut(folder, ends.dut.eal, cores))
        else:
            stack.enter_context(
                testpmd(folder, testpmd_mode, ends.dut.eal, cores, cores.pollers[1])
            )
        times = ["--warm-up=500ms", f"--duration={seconds * 1000:.0f}ms", "--drain=100ms"]
        options = [f"--rate={OFFERED}", *times, *packets]
        generator = Dataplane(
            "generator",
            GENERATOR,
            ends.generator.eal,
            options,
            place=Here(folder.path),
            lcores=[cores.pollers[0]],
            housekeeping=cores.housekeeping,
        )
        result = stack.enter_context(generator).finish()
    assert result is not None, "the generator says what came back"
    return float(result.gen.matched) / seconds


def received_by_testpmd(cores: Cores, generator: str, device: str) -> float:
    """Packets per second that the receiving one of two testpmds counts.

    `flowgen` sends and takes back what `io` forwards, as our generator does, but stamps and matches
    nothing; what `txonly` sends, `rxonly` drops.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(RunFolder())
        ends = stack.enter_context(Memif({}).open(folder))
        behind = stack.enter_context(testpmd(folder, device, ends.dut.eal, cores, cores.pollers[1]))
        before = stack.enter_context(
            testpmd(folder, generator, ends.generator.eal, cores, cores.pollers[0])
        )
        time.sleep(SECONDS + 2)
        counted = before if device == "io" else behind
        text = counted.output.read_text(errors="replace")
    rates = [int(rate) for rate in _RATE.findall(text) if int(rate)]
    return statistics.median(rates)


class Forwarder(NamedTuple):
    """Our running forwarder, and the number of its process."""

    pid: int
    process: Dataplane[LoopProgress, ForwarderResult]


class Testpmd(NamedTuple):
    """A running testpmd by the number of its process, and the file with what it prints."""

    pid: int
    output: Path


@contextmanager
def dut(folder: RunFolder, end: Sequence[str], cores: Cores) -> Iterator[Forwarder]:
    """Our forwarder, which changes nothing, as io does."""
    with Dataplane(
        "dut",
        FORWARDERS["l2fwd"],
        end,
        ["--no-mac-updating"],
        place=Here(folder.path),
        lcores=[cores.pollers[1]],
        housekeeping=cores.housekeeping,
    ) as process:
        process.wait_ready()
        assert process.ready is not None, "it was waited for"
        yield Forwarder(process.ready.pid, process)


@contextmanager
def testpmd(
    folder: RunFolder, mode: str, end: Sequence[str], cores: Cores, cpu: int
) -> Iterator[Testpmd]:
    """A testpmd that forwards on one CPU."""
    binary = shutil.which(TESTPMD)
    assert binary is not None, "looked for beforehand"
    output = folder.path / f"testpmd-{mode}.log"
    # Its main lcore, which waits for a line on standard input, is not the one that forwards.
    lcores = f"--lcores=0@({','.join(map(str, cores.housekeeping))}),1@{cpu}"
    eal = [lcores, "--no-telemetry", *end]
    own = [f"--forward-mode={mode}", "--auto-start", "--nb-cores=1", "--stats-period=1"]
    environment = {**os.environ, "RUNTIME_DIRECTORY": str(folder.path)}
    with output.open("wb") as out:
        process = subprocess.Popen(
            [binary, *eal, "--", *own, "--total-num-mbufs=16384"],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment,
        )
        try:
            _wait_for(process, output)
            yield Testpmd(process.pid, output)
        finally:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()


def _wait_for(process: subprocess.Popen[bytes], output: Path) -> None:
    for _ in range(300):
        assert process.poll() is None, output.read_text(errors="replace")
        if "start packet forwarding" in output.read_text(errors="replace"):
            return
        time.sleep(0.05)
    raise AssertionError(output.read_text(errors="replace"))
