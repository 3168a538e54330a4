"""The device ``testpmd``: DPDK's own forwarder for tests."""

from __future__ import annotations

import queue
import re
import signal
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tailscope.duts.dut import Dut, DutContext, Running, one_of
from tailscope.duts.program import RunningProgram, wait_for
from tailscope.exceptions import UsageError
from tailscope.host.cpus import cpu_list
from tailscope.testbed.waiting import Countdown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tailscope.store.records.dataplane import DutCounts, TestpmdCounts
    from tailscope.testbed.places import Process

_PROGRAM = "dpdk-testpmd"
_BY_LINES = ("stdbuf", "--output=L")
"""Words that make testpmd flush each line, which it does not do into a pipe."""
_LINE_BUFFERS = tuple(
    Path("/usr", folder, "coreutils/libstdbuf.so") for folder in ("libexec", "lib")
)
_READY_S, _END_S = 30.0, 30.0
_BUFFERS = 16_384
_SECONDS_OF_A_DAY = 86_400
"""Period of the statistics, in seconds: without one, testpmd waits for input and ends."""
# testpmd prints its version only together with some other action.
_ASKED = [
    "sh",
    "-c",
    f"{_PROGRAM} -v --no-huge -m 64 --no-pci --no-shconf --no-telemetry -- --help 2>&1",
]
_VERSION = re.compile(r"RTE Version: '([^']+)'")
_STATISTICS = re.compile(r"Forward statistics for port (\d+)(.*?)-{60,}", re.DOTALL)
_COUNTED = {
    "RX-packets": "rx_packets",
    "TX-packets": "tx_packets",
    "RX-error": "rx_errors",
    "RX-dropped": "rx_dropped",
    "RX-nombufs": "rx_nombuf",
    "TX-dropped": "tx_dropped",
}


def _burst(name: str, value: str) -> int:
    if not value.isdecimal() or not 1 <= int(value) <= 512:
        raise UsageError(
            f"--dut-option {name}: got {value!r}, expected 1 to 512 packets", code="dut-option"
        )
    return int(value)


class Testpmd(Dut):
    """DPDK's testpmd, which forwards between two ports on one CPU."""

    name = "testpmd"
    about = "DPDK's testpmd: forwards between two ports"
    options = {"mode": one_of("io", "mac", "macswap"), "burst": _burst}  # noqa: RUF012
    programs = {_PROGRAM: "dpdk-dev", "stdbuf": "coreutils"}  # noqa: RUF012

    @property
    def starts_in_s(self) -> float:
        """Return the time to allocate the buffers, in seconds."""
        return 1.0

    def guest_files(self) -> tuple[Path, ...]:
        """Return the library that flushes its output by lines."""
        return tuple(path for path in _LINE_BUFFERS if path.is_file())

    @contextmanager
    def open(self, context: DutContext) -> Iterator[Running]:
        """Start testpmd, and wait until it forwards."""
        printed = _VERSION.search(context.place.run(_ASKED))
        version = f"testpmd ({printed[1] if printed else 'unknown'})"
        command = [*self._environment(context), "--", *self._own()]
        with context.place.start(
            "dut", command, cpus=context.allowed, merged=True, urgent=True
        ) as process:
            wait_for(_PROGRAM, process, r"packets/burst=", timeout_s=_READY_S)
            yield _Running(process, version=version, configuration=command)

    def _environment(self, context: DutContext) -> list[str]:
        """Return DPDK's options: the forwarding thread runs on the device's CPU alone."""
        others = context.housekeeping or context.cpus
        working = f"1@({cpu_list(context.working)})"
        lcores = f"--lcores=0@({cpu_list(others)}),{working}"
        return [*_BY_LINES, _PROGRAM, lcores, "--no-telemetry", *context.side.eal]

    def _own(self) -> Sequence[str]:
        burst = self.given.get("burst", "32")
        return [
            f"--forward-mode={self.given.get('mode', 'io')}",
            "--auto-start",
            "--disable-link-check",
            "--nb-cores=1",
            f"--burst={burst}",
            f"--total-num-mbufs={_BUFFERS}",
            f"--stats-period={_SECONDS_OF_A_DAY}",
        ]


class _Running(RunningProgram):
    def __init__(self, process: Process, *, version: str, configuration: list[str]) -> None:
        super().__init__(
            _PROGRAM,
            process,
            version=version,
            configuration=configuration,
            counts=lambda: _counts("\n".join(self._output)),
        )
        self._output: list[str] = []

    def stop(self) -> DutCounts | None:
        """Stop testpmd, and read the statistics that it prints."""
        self._process.signal(signal.SIGTERM)
        countdown = Countdown(_END_S)
        while not countdown.is_over():
            with suppress(queue.Empty):
                if (line := self._process.next_line(countdown.pause_s)) is None:
                    break
                self._output.append(line)
        return super().stop()


def _counts(output: str) -> TestpmdCounts | None:
    """Read the statistics of each port; None if none were printed."""
    from tailscope.store.records.dataplane import TestpmdCounts, TestpmdPortCounts

    ports = []
    for number, text in _STATISTICS.findall(output):
        counts = dict.fromkeys(_COUNTED.values(), 0)
        for name, field in _COUNTED.items():
            if match := re.search(rf"{name}: (\d+)", text):
                counts[field] = int(match[1])
        ports.append(TestpmdPortCounts(port=int(number), **counts))
    return TestpmdCounts(ports=ports) if ports else None
