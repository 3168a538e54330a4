"""Every instrument before every truth, again and again; what each says beside what is true."""

from __future__ import annotations

import statistics
import subprocess
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from tailscope import __version__
from tailscope.exceptions import TailscopeError
from tailscope.extra.instruments import testpmd, tools, wires
from tailscope.extra.instruments.hosts import hosts
from tailscope.extra.instruments.reading import QUANTILES, Reading
from tailscope.testbed.programs import which

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tailscope.experiment.plan import RunPlan
    from tailscope.extra.instruments.hosts import Hosts
    from tailscope.extra.instruments.truths import Truth
    from tailscope.testbed.cores import Cores

SHARES = ("lost", "reordered")
STATISTICS: dict[str, float | None] = {**QUANTILES, **dict.fromkeys(("mean", "max", *SHARES))}
"""What is compared, with the quantile of those that are one."""


class Instrument(NamedTuple):
    """A way to measure latency."""

    about: str
    version: Sequence[str]
    """Command that prints the version; none for tailscope's own."""
    on_wire: Callable[[RunPlan, Cores], Reading] | None = None
    on_hosts: Callable[[Hosts, int, int], Reading] | None = None
    """The measurement: at the device's wires, or between two hosts."""


INSTRUMENTS = {
    "tailscope-memif": Instrument("every packet, one way, shared memory", (), wires.memif),
    "tailscope": Instrument("every packet, one way, AF_PACKET", (), wires.af_packet),
    "tcpdump+tshark": Instrument(
        "every packet, one way, kernel timestamps",
        ("tcpdump", "--version"),
        wires.tcpdump_and_tshark,
    ),
    "moongen-sampling": Instrument("one packet in flight, one way, in software", (), wires.moongen),
    "testpmd-latencystats": Instrument(
        "packets inside testpmd, from receiving to sending",
        ("dpkg-query", "-W", "-f", "${Version}", "dpdk"),
        testpmd.latency_statistics,
    ),
    "ping": Instrument(
        "closed loop where answers take up to 10 ms, round trip",
        ("ping", "-V"),
        on_hosts=tools.ping,
    ),
    "irtt": Instrument("open loop, round trip", ("irtt", "version"), on_hosts=tools.irtt),
    "sockperf-under-load": Instrument(
        "open loop, round trip",
        ("sockperf", "--version"),
        on_hosts=tools.sockperf_under_load,
    ),
    "sockperf-ping-pong": Instrument(
        "closed loop, round trip", ("sockperf", "--version"), on_hosts=tools.sockperf_ping_pong
    ),
    "sockperf-tcp": Instrument(
        "closed loop, round trip over TCP", ("sockperf", "--version"), on_hosts=tools.sockperf_tcp
    ),
    "iperf3": Instrument(
        "the kernel's estimate of TCP, round trip",
        ("iperf3", "--version"),
        on_hosts=tools.iperf3_tcp,
    ),
    "iperf3-udp": Instrument(
        "loss and order, one way", ("iperf3", "--version"), on_hosts=tools.iperf3_udp
    ),
    "closed-loop": Instrument("closed loop, round trip", (), on_hosts=tools.closed_loop),
    "open-loop": Instrument(
        "open loop, round trip, from when a request was due", (), on_hosts=tools.open_loop
    ),
}
"""The instruments by name."""

NOT_TO_BE_HAD = {
    "netperf": "no package; `sockperf-tcp` does what TCP_RR does, `sockperf-ping-pong` UDP_RR",
    "Pktgen": "no package of Pktgen-DPDK",
    "TRex": "no package; its archives come from its own site only",
    "MoonGen": "no package; `moongen-sampling` samples as it does, without its hardware timestamps",
    "wrk2": "no package; `closed-loop` and `open-loop` ask and count as wrk and wrk2 do",
}
"""Instruments that no package registry has."""


@dataclass(frozen=True)
class Cell:
    """One figure by one instrument of one truth."""

    instrument: str
    truth: str
    statistic: str
    """A quantile such as ``p99``, or ``mean``, ``max``, ``lost``, ``reordered``."""
    true: float
    values: tuple[float, ...]
    """Measured figures, one for each repeat that has it: in ns, or shares."""

    @property
    def measured(self) -> float:
        """Return the median of the repeats."""
        return statistics.median(self.values)

    def record(self) -> dict[str, object]:
        """Return the cell as JSON has it."""
        is_share = self.statistic in SHARES
        unit = "share" if is_share else "ns"
        return {
            "instrument": self.instrument,
            "truth": self.truth,
            "quantile": self.statistic,
            "unit": unit,
            "true": self.true,
            "measured": self.measured,
            "ci_low": min(self.values),
            "ci_high": max(self.values),
            "level": level_of(len(self.values)),
            "repeats": len(self.values),
            "values": list(self.values),
        }


@dataclass(frozen=True)
class Failure:
    """A measurement that an instrument could not make."""

    instrument: str
    truth: str
    reason: str


class Board(NamedTuple):
    """What all instruments said."""

    cells: list[Cell]
    failures: list[Failure]


def level_of(repeats: int) -> float:
    """Return the confidence that the median lies between the least and the largest of repeats."""
    return 1 - 2.0 ** (1 - repeats)


def measure(
    names: Sequence[str],
    given: Mapping[str, Truth],
    cores: Cores,
    *,
    rate_pps: int,
    duration_ns: int,
    repeats: int,
    tell: Callable[[str], None],
    keep: Callable[[Board], None],
) -> Board:
    """Measure by turns: each repeat goes through all truths, and each truth through all names.

    Each of them is kept when it is done. Ctrl-C ends all early, with what there is.
    """
    values: dict[tuple[str, str, str], list[float]] = {}
    failures: dict[tuple[str, str], str] = {}
    try:
        for repeat in range(repeats):
            for truth, known in given.items():
                device = {**known.device, "one-way": "on"}
                for name, look in _looks(names, device, cores, rate_pps, duration_ns):
                    tell(f"{truth}, {repeat + 1} of {repeats}: {name}")
                    try:
                        reading = look()
                    except (TailscopeError, OSError, subprocess.SubprocessError) as error:
                        failures[name, truth] = str(error)
                        continue
                    for statistic, value in reading.values().items():
                        values.setdefault((name, truth, statistic), []).append(value)
                keep(_board(names, given, values, failures))
    except KeyboardInterrupt:
        if not values:
            raise
    return _board(names, given, values, failures)


def _board(
    names: Sequence[str],
    given: Mapping[str, Truth],
    values: Mapping[tuple[str, str, str], Sequence[float]],
    failures: Mapping[tuple[str, str], str],
) -> Board:
    cells = [
        Cell(name, truth, statistic, known.value(statistic, q), tuple(found))
        for name in names
        for truth, known in given.items()
        for statistic, q in STATISTICS.items()
        if (found := values.get((name, truth, statistic)))
    ]
    return Board(cells, [Failure(*key, reason) for key, reason in failures.items()])


def _looks(
    names: Sequence[str],
    device: Mapping[str, str],
    cores: Cores,
    rate_pps: int,
    duration_ns: int,
) -> Iterator[tuple[str, Callable[[], Reading]]]:
    """Yield the measurements of one device; those between hosts share hosts and device."""
    plan = wires.plan_of(device, rate_pps, duration_ns)
    for name in names:
        on_wire = INSTRUMENTS[name].on_wire
        if on_wire is not None:
            yield name, partial(on_wire, plan, cores)
    with ExitStack() as stack:
        up: list[Hosts] = []

        def between_hosts(look: Callable[[Hosts, int, int], Reading]) -> Reading:
            """Put them up when they are first asked for: an error is that of the measurement."""
            if not up:
                up.append(stack.enter_context(hosts(device, cores)))
            return look(up[0], rate_pps, duration_ns)

        for name in names:
            on_hosts = INSTRUMENTS[name].on_hosts
            if on_hosts is not None:
                yield name, partial(between_hosts, on_hosts)


def versions(names: Sequence[str]) -> dict[str, str | None]:
    """Return the version of each instrument as it tells it; None if it is not installed."""
    found: dict[str, str | None] = {}
    for name in names:
        command = INSTRUMENTS[name].version
        if not command:
            found[name] = f"tailscope {__version__}"
        elif which(command[0]) is None:
            found[name] = None
        else:
            done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
            lines = (done.stdout or done.stderr).strip().splitlines()
            found[name] = lines[0] if lines else None
    return found
