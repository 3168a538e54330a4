"""Instruments at the device's own wires: tailscope, captures, and samples of its packets."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from tailscope.engine.analysis import analyze_recording
from tailscope.experiment.plan import RunPlan
from tailscope.experiment.run.execute import execute_whole
from tailscope.extra.instruments.reading import Reading, one_in_flight, reordered_share
from tailscope.testbed.places import Here
from tailscope.testbed.programs import find_program
from tailscope.testbed.tcpdump import Tap, recording

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from tailscope.experiment.run.measured import Measured
    from tailscope.testbed.cores import Cores
    from tailscope.testbed.folder import RunFolder
    from tailscope.testbed.wires import WireEnds

    Floats = NDArray[np.float64]

_WARM_UP_NS = 500_000_000
_MOONGEN_TIMEOUT_NS = 15_000_000
"""How long MoonGen's ``measureLatency`` waits for a packet by default."""


def plan_of(device: Mapping[str, str], rate_pps: int, duration_ns: int) -> RunPlan:
    """Return the plan of a measurement of a device over shared memory."""
    return RunPlan(
        dut="delay",
        dut_options=dict(device),
        rate_pps=rate_pps,
        duration_ns=duration_ns,
        warm_up_ns=_WARM_UP_NS,
    )


def _over_veth(plan: RunPlan, driver: str = "af_packet") -> RunPlan:
    return replace(plan, wire="veth", wire_options={"driver": driver})


def memif(plan: RunPlan, cores: Cores) -> Reading:
    """Measure over shared memory."""
    return _reading(plan, cores)


def af_packet(plan: RunPlan, cores: Cores) -> Reading:
    """Measure over links of the kernel, as the programs on hosts do."""
    return _reading(_over_veth(plan), cores)


def moongen(plan: RunPlan, cores: Cores) -> Reading:
    """Sample one packet in flight, among packets at the rate: as MoonGen, but by software."""
    sent_ns, latency_ns, _ = _packets(_over_veth(plan), cores)
    return Reading(one_in_flight(sent_ns, latency_ns, _MOONGEN_TIMEOUT_NS))


def _reading(plan: RunPlan, cores: Cores) -> Reading:
    sent_ns, latency_ns, sent = _packets(plan, cores)
    return Reading(latency_ns, sent, reordered_share(sent_ns, latency_ns))


def _packets(plan: RunPlan, cores: Cores) -> tuple[Floats, Floats, int]:
    """Measure, and return when packets were sent, how long they took, and how many were sent."""
    found: list[tuple[Floats, Floats]] = []

    def inspect(measured: Measured) -> None:
        assert measured.recording is not None, "a generator has recorded it"
        series = analyze_recording(
            measured.recording, trim=plan.trim_ns, window=plan.window_ns, worst=0
        ).series
        assert series is not None, "it is kept"
        since_ns = series.pre_ns - series.pre_ns[:1]
        found.append((since_ns.astype(float), series.latency_ns.astype(float)))

    measured = execute_whole(plan, cores, inspect=inspect)
    [(sent_ns, latency_ns)] = found
    return sent_ns, latency_ns, int(measured.analysis.summary["sent"] or 0)


def tcpdump_and_tshark(plan: RunPlan, cores: Cores) -> Reading:
    """Capture on both sides with the kernel's timestamps, and join what tshark prints."""
    packets: list[dict[str, int]] = []

    @contextmanager
    def around(folder: RunFolder, ends: WireEnds) -> Iterator[None]:
        taps = {"pre": Tap("dut0", ends.dut.command), "post": Tap("gen1", ends.generator.command)}
        with recording(taps, Here(folder.path)):
            yield
        packets.extend(_payload_times(str(tap.path)) for tap in taps.values())

    execute_whole(_over_veth(plan), cores, around=around)
    pre, post = packets
    begin_ns = min(pre.values(), default=0) + _WARM_UP_NS
    sent = {payload: at_ns for payload, at_ns in pre.items() if at_ns >= begin_ns}
    came = [(at_ns - begin_ns, post[key] - at_ns) for key, at_ns in sent.items() if key in post]
    sent_ns, latency_ns = np.array(came, float).reshape(-1, 2).T
    return Reading(latency_ns, len(sent), reordered_share(sent_ns, latency_ns))


def _payload_times(capture: str) -> dict[str, int]:
    program = str(find_program("instruments", "tshark", "tshark"))
    command = [program, "-n", "-r", capture, "-T", "fields"]
    command += ["-e", "frame.time_epoch", "-e", "udp.payload"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    return {row[1]: _epoch_ns(row[0]) for row in rows if len(row) == 2}


def _epoch_ns(text: str) -> int:
    seconds, _, fraction = text.partition(".")
    return int(seconds) * 1_000_000_000 + int(fraction.ljust(9, "0")[:9])
