"""One device with a known law, seen by several instruments.

After the study of measuring tools at the scale of microseconds (microsecond2017): how far can each
be trusted?
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple

from tailscope.duts.catalogue import dut_named
from tailscope.duts.dut import DutContext
from tailscope.engine.analysis import Clock, Recording, analyze, analyze_recording
from tailscope.exceptions import TailscopeError, TestbedError
from tailscope.experiment.plan import RunPlan
from tailscope.experiment.run.execute import execute_whole
from tailscope.testbed.cores import staying_on
from tailscope.testbed.folder import RunFolder
from tailscope.testbed.places import Here
from tailscope.testbed.programs import find_program
from tailscope.testbed.tcpdump import Tap, recording
from tailscope.testbed.wires import Veth, wire_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from tailscope.engine.analysis import Analysis
    from tailscope.testbed.cores import Cores
    from tailscope.testbed.wires import WireEnds

LOW_NS, HIGH_NS, _SHARE = 20_000, 200_000, 0.01
"""The law: 20 µs, and of one packet in a hundred 200 µs."""
TRUTH = ((LOW_NS / 4, 1), (LOW_NS, 1), (LOW_NS, _SHARE), (HIGH_NS, _SHARE), (HIGH_NS, 1e-6))
"""The law as corners of its complementary distribution: (latency_ns, share)."""

_LAW = {"law": f"bimodal:{LOW_NS}ns,{HIGH_NS}ns,{_SHARE}"}
_PORT = 11_111
_CLIENT, _SERVER = "10.99.0.1", "10.99.0.2"


class Seen(NamedTuple):
    """The result of an instrument."""

    name: str
    analysis: Analysis | None
    """The analysis; None when it could not be used here, or saw nothing."""
    why_not: str = ""
    """The reason then."""


def compare(
    cores: Cores,
    *,
    rate_pps: int,
    duration_ns: int,
    tell: Callable[[str], None],
) -> list[Seen]:
    """Let every instrument look at the same device; those that cannot say why."""
    found = []
    for name, look in INSTRUMENTS.items():
        tell(name)
        plan = RunPlan(
            dut="delay",
            dut_options=_LAW,
            rate_pps=rate_pps,
            duration_ns=duration_ns,
            warm_up_ns=2_000_000_000,
        )
        try:
            analysis = look(plan, cores)
            seen_any = bool(analysis.summary["count"])
            found.append(Seen(name, analysis) if seen_any else Seen(name, None, "saw no packet"))
        except (TailscopeError, OSError, subprocess.SubprocessError) as error:
            found.append(Seen(name, None, str(error)))
    return found


def _memif(plan: RunPlan, cores: Cores) -> Analysis:
    return execute_whole(plan, cores).analysis


def _af_packet(plan: RunPlan, cores: Cores) -> Analysis:
    return execute_whole(_over_veth(plan, "af_packet"), cores).analysis


def _af_xdp(plan: RunPlan, cores: Cores) -> Analysis:
    return execute_whole(_over_veth(plan, "af_xdp"), cores).analysis


def _tcpdump(plan: RunPlan, cores: Cores) -> Analysis:
    """Kernel timestamps on both sides of the device, taken where packets are received."""
    seen: list[Analysis] = []

    @contextmanager
    def around(folder: RunFolder, ends: WireEnds) -> Iterator[None]:
        taps = {"pre": Tap("dut0", ends.dut.command), "post": Tap("gen1", ends.generator.command)}
        with recording(taps, Here(folder.path)):
            yield
        pre, post = (tap.path for tap in taps.values())
        seen.append(analyze(pre, post, match_on="probe", trim="1s", clocks="same"))

    execute_whole(_over_veth(plan, "af_packet"), cores, around=around)
    return seen[0]


def _sockperf(plan: RunPlan, cores: Cores) -> Analysis:
    """Half of the time that a request and its answer take, each through the device."""
    import numpy as np

    program, ethtool = (
        str(find_program("comparison", name, name)) for name in ("sockperf", "ethtool")
    )
    wire = wire_named("veth", {})
    wire.check()
    assert isinstance(wire, Veth)
    with ExitStack() as stack:
        stack.enter_context(staying_on(cores.housekeeping))
        folder = stack.enter_context(RunFolder())
        ends = stack.enter_context(wire.open(folder))
        addresses = {"gen0": _CLIENT, "gen1": _SERVER}
        hosts = stack.enter_context(wire.hosts(folder, ends.generator, addresses))
        for link, inside in hosts.items():
            # A device that is no part of the kernel cannot fill in checksums.
            subprocess.run(  # noqa: S603
                [*inside, ethtool, "-K", link, "tx", "off"], check=True, capture_output=True
            )
        place = Here(folder.path, ends.dut.command, mark=folder.name)
        device = dut_named("delay", _LAW, wire.name)
        cpus = (cores.pollers[1],)
        context = DutContext(place, ends.dut, cpus, cores.housekeeping, wire.stall_ns)
        stack.enter_context(device.open(context))
        server = [*hosts["gen1"], program, "server", "-i", _SERVER, "-p", str(_PORT)]
        stack.enter_context(_started(server, folder, "sockperf-server"))
        time.sleep(1)
        log = folder.path / "sockperf.csv"
        seconds = str(max(1, plan.duration_ns // 1_000_000_000))
        client = [
            *hosts["gen0"],
            program,
            "ping-pong",
            "-i",
            _SERVER,
            "-p",
            str(_PORT),
            "-t",
            seconds,
            "--full-log",
            str(log),
        ]
        done = subprocess.run(client, capture_output=True, text=True, timeout=120, check=False)  # noqa: S603
        if done.returncode != 0 or not log.exists():
            raise TestbedError(
                f"sockperf: {(done.stderr or done.stdout).strip()[-300:]}", code="sockperf-failed"
            )
        sent_ns, received_ns = _full_log(log)
    order = np.arange(len(sent_ns), dtype=np.uint64)
    none = np.zeros(0, np.uint64)
    arrival = sent_ns + (received_ns - sent_ns) // 2
    clock = Clock(1_000_000_000, 0, 0)
    recording = Recording(clock, sent_ns, sent_ns, order, arrival, none, none, none)
    return analyze_recording(recording, series=False)


INSTRUMENTS = {
    "memif, TSC": _memif,
    "AF_XDP, TSC": _af_xdp,
    "AF_PACKET, TSC": _af_packet,
    "tcpdump, kernel": _tcpdump,
    "sockperf, sockets": _sockperf,
}
"""Each instrument by its name, with its clock."""


def _over_veth(plan: RunPlan, driver: str) -> RunPlan:
    from msgspec.structs import replace

    return replace(plan, wire="veth", wire_options={"driver": driver})


@contextmanager
def _started(command: list[str], folder: RunFolder, name: str) -> Iterator[Path]:
    """A process that is ended by SIGINT, as a person would; what it says on standard error."""
    said, output = (folder.path / f"{name}.{what}" for what in ("log", "out"))
    with said.open("wb") as log, output.open("wb") as out:
        process = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=log, start_new_session=True
        )
    try:
        yield said
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGINT)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _full_log(path: Path) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Times of sending and receiving in ns, of the packets that were answered."""
    import numpy as np

    rows = []
    for line in path.read_text().splitlines():
        parts = line.split(",")
        try:
            sent, received = (_ns(part) for part in parts[1:3])
        except ValueError:
            continue
        if received > sent:
            rows.append((sent, received))
    if not rows:
        raise TestbedError("sockperf: its log holds no packets", code="sockperf-no-packets")
    sent_ns, received_ns = np.ascontiguousarray(np.array(rows, np.uint64).T)
    return sent_ns, received_ns


def _ns(seconds: str) -> int:
    """Seconds as text, with nine decimals, in ns."""
    whole, _, fraction = seconds.strip().partition(".")
    return int(whole) * 1_000_000_000 + int(fraction.ljust(9, "0")[:9] or 0)
