"""The kernel's interrupt counters: snapshots, series, and the authors' files.

Counters say how often, never when. Whoever samples them often is heard on the CPUs that he asks
about: the papers' authors found their own poller in their worst packets.
"""

from __future__ import annotations

import os
import re
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple, Self

import numpy as np

from tailscope.exceptions import RunCorruptError, UsageError
from tailscope.testbed.steady import SteadyClock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

COUNTER_THREAD = "tailscope-irqs"
"""Name of the thread that samples counters during a measurement."""

SAMPLING_WARNING = (
    "interrupt counters are read during the measurement, which itself interrupts CPUs;"
    " before you trust a spike, measure again without --counter-interval"
)
_PROC = Path("/proc")
_MOST = 2**63 - 1
_SECONDS = re.compile(r"\d{1,10}(\.\d+)?")
_CPUS = re.compile(r"\s*CPU\d{1,6}(\s+CPU\d{1,6})*\s*")
_AUTHORS_COLUMN = re.compile(r"(?P<name>.+)_CPU(?P<cpu>\d{1,6})")
_COUNT = re.compile(r"\d{1,20}")
"""Count of up to 20 digits, as 64 bits can hold."""


class CounterSample(NamedTuple):
    """All counters at one moment."""

    unix_ns: int
    counts: dict[tuple[str, int], int]
    """Counts by name and CPU. Names are the kernel's: ``LOC Local timer interrupts``, ``softirq
    TIMER``."""


def read_counters(proc: Path = _PROC) -> CounterSample:
    """Read ``/proc/interrupts`` and ``/proc/softirqs``."""
    now_ns = time.time_ns()
    counts: dict[tuple[str, int], int] = {}
    for name, prefix in (("interrupts", ""), ("softirqs", "softirq ")):
        with suppress(OSError):
            counts.update(_table((proc / name).read_text(errors="replace"), prefix))
    return CounterSample(now_ns, counts)


def read_steal_ns(proc: Path = _PROC) -> dict[int, int]:
    """Read the time that a hypervisor took from each CPU since boot, as far as it reports it.

    The kernel counts in ticks: 10 ms, mostly.
    """
    tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    steal_ns = {}
    with suppress(OSError):
        for line in (proc / "stat").read_text(errors="replace").splitlines():
            name, *fields = line.split()
            if name.startswith("cpu") and name[3:].isdecimal() and len(fields) > 7:
                steal_ns[int(name[3:])] = int(fields[7]) * tick_ns
    return steal_ns


class CounterSampler:
    """A sampler of all counters at both ends of a block, and at an interval within it."""

    def __init__(
        self, interval_s: float | None = None, *, clock: SteadyClock | None = None
    ) -> None:
        self._interval_s = interval_s
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._clock = clock or SteadyClock()
        self.samples: list[CounterSample] = []

    def __enter__(self) -> Self:
        self._take()
        if self._interval_s is not None:
            self._thread = threading.Thread(target=self._sample, name=COUNTER_THREAD, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join()
        self._take()

    def _take(self) -> None:
        now_ns = self._clock.now_ns()
        self.samples.append(read_counters()._replace(unix_ns=now_ns))

    def _sample(self) -> None:
        assert self._interval_s is not None
        while not self._end.wait(self._interval_s):
            self._take()


def increments(samples: Sequence[CounterSample], cpus: Sequence[int]) -> dict[str, dict[int, int]]:
    """Return by name and CPU the counts between the first and the last sample, without zeros."""
    first, last = samples[0].counts, samples[-1].counts
    increased: dict[str, dict[int, int]] = {}
    for (name, cpu), count in last.items():
        more = count - first.get((name, cpu), 0)
        if cpu in cpus and more > 0:
            increased.setdefault(name, {})[cpu] = more
    return increased


def columns(samples: Sequence[CounterSample]) -> dict[str, list[int] | list[str]]:
    """Return samples as columns of ``interrupts.parquet``: one row per counter and CPU."""
    rows = [
        (sample.unix_ns, name, cpu, count)
        for sample in samples
        for (name, cpu), count in sorted(sample.counts.items())
    ]
    unix_ns, names, cpus, counts = zip(*rows, strict=True) if rows else ((), (), (), ())
    return {
        "unix_ns": list(unix_ns),
        "interrupt": list(names),
        "cpu": list(cpus),
        "count": list(counts),
    }


def rates_hz(samples: Sequence[CounterSample], path: Path) -> dict[str, list[float]]:
    """Return by name the rate of each counter on each CPU on which it counted, in hertz."""
    lasted_s = (samples[-1].unix_ns - samples[0].unix_ns) / 1e9 if samples else 0
    if lasted_s <= 0:
        raise UsageError(
            f"{path}: expected at least two readings of counters, got {len(samples)}",
            code="counters-few",
        )
    cpus = sorted({cpu for _, cpu in samples[-1].counts})
    counted = increments(samples, cpus)
    return {
        name: [count / lasted_s for count in counts.values()] for name, counts in counted.items()
    }


@dataclass(frozen=True)
class Readings:
    """A series of counters, all of which are in every reading."""

    name: str
    file: str
    """Name of the series, and name of its file."""
    times_ns: NDArray[np.int64]
    """Times of the readings, ascending, by the recording's own clock."""
    counts: NDArray[np.int64]
    """Counts by reading and counter, never falling."""
    names: list[tuple[str, int]]
    """Interrupt and CPU of each counter."""
    incomplete: int
    """Number of counters omitted because some reading lacks them."""

    @property
    def span_ns(self) -> tuple[int, int]:
        """Return the times of the first and the last reading."""
        return int(self.times_ns[0]), int(self.times_ns[-1])

    @property
    def period_ns(self) -> int:
        """Return the median time between readings."""
        return int(np.median(np.diff(self.times_ns)))

    def increments(self) -> NDArray[np.int64]:
        """Return the counts between consecutive readings."""
        return np.diff(self.counts, axis=0)


def read_readings(path: Path, name: str) -> Readings:
    """Read a series of counters."""
    samples = read_samples(path)
    _check_sizes(samples, path)
    if len(samples) < 2:
        raise UsageError(
            f"{path}: got {len(samples)} readings of counters, expected at least two",
            code="counters-few",
        )
    all_names = {key for sample in samples for key in sample.counts}
    names = sorted(set.intersection(*(set(sample.counts) for sample in samples)))
    times_ns = np.array([sample.unix_ns for sample in samples], np.int64)
    counts = np.array([[sample.counts[key] for key in names] for sample in samples], np.int64)
    if len(back := np.flatnonzero(np.diff(times_ns) <= 0)):
        at = int(back[0])
        raise UsageError(
            f"{path}: reading {at + 2}: got time {times_ns[at + 1]} ns, expected one after"
            f" {times_ns[at]} ns",
            code="counters-order",
        )
    fallen = np.argwhere(np.diff(counts, axis=0) < 0)
    if len(fallen):
        at, which = (int(index) for index in fallen[0])
        counter, cpu = names[which]
        raise UsageError(
            f"{path}: reading {at + 2}, {counter}, CPU {cpu}: got {counts[at + 1, which]}, expected"
            f" at least {counts[at, which]}",
            code="counters-fall",
            hint="the machine was restarted in between: pass the part before or after",
        )
    return Readings(name, path.name, times_ns, counts, names, len(all_names) - len(names))


def read_samples(path: Path) -> list[CounterSample]:
    """Read counters: ``interrupts.parquet`` of a run, the authors' CSV, or snapshots."""
    if path.suffix != ".parquet":
        with _opened(path) as lines:
            is_csv = ";" in lines.readline()
        return read_authors_csv(path) if is_csv else read_snapshots(path)
    from tailscope.store.parquet import TableFile
    from tailscope.store.tables import INTERRUPTS

    try:
        with TableFile(path.open("rb"), str(path), INTERRUPTS) as file:
            rows = file.read(INTERRUPTS.names)
    except RunCorruptError as error:
        raise UsageError(
            f"not counters of interrupts: {error}", code="counters-unreadable"
        ) from None
    counts_at: dict[int, dict[tuple[str, int], int]] = {}
    for unix_ns, name, cpu, count in zip(*(of.tolist() for of in rows.values()), strict=True):
        counts_at.setdefault(unix_ns, {})[name, cpu] = count
    return [CounterSample(unix_ns, counts) for unix_ns, counts in counts_at.items()]


def read_authors_csv(path: Path) -> list[CounterSample]:
    """Read the counters that the authors of noms2020 have published.

    A line for each sample; columns in any order, divided by semicolons: ``timestamp_us``, and one
    for each interrupt and CPU, such as ``LOC_Local_timer_interrupts_CPU2``. An empty cell is a
    counter that was not there.
    """
    with _opened(path) as lines:
        header = lines.readline().rstrip("\n").split(";")
        if "timestamp_us" not in header:
            raise UsageError(
                f"{path}: line 1: expected a column timestamp_us", code="counters-header"
            )
        named = [(column, _AUTHORS_COLUMN.fullmatch(column)) for column in header]
        return [
            _authors_sample(path, number, line.rstrip("\n").split(";"), named)
            for number, line in enumerate(lines, 2)
            if line.strip()
        ]


def read_snapshots(path: Path) -> list[CounterSample]:
    """Read copies of ``/proc/interrupts``, each below a line with its Unix time in seconds.

    ``while date +%s.%N; do cat /proc/interrupts; sleep 1; done`` writes such a file.
    """
    samples = []
    with _opened(path) as lines:
        text = lines.read().splitlines()
    starts = [at for at, line in enumerate(text) if _SECONDS.fullmatch(line.strip())]
    if not starts or starts[0] != 0:
        raise UsageError(
            f"{path}: line 1: expected the authors' CSV, with timestamp_us, or a Unix time in"
            " seconds above a copy of /proc/interrupts",
            code="counters-format",
            hint="while date +%s.%N; do cat /proc/interrupts; sleep 1; done > FILE",
        )
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        table = text[start + 1 : end]
        if not table or not _CPUS.fullmatch(table[0]):
            got = table[0].strip() if table else "the end"
            raise UsageError(
                f"{path}: line {start + 2}: got {got!r}, expected CPU0 CPU1 ...",
                code="counters-cpus",
            )
        seconds, _, fraction = text[start].strip().partition(".")
        time_ns = int(seconds) * 1_000_000_000 + int(fraction.ljust(9, "0")[:9])
        samples.append(CounterSample(time_ns, dict(_table("\n".join(table), ""))))
    return samples


def _check_sizes(samples: Sequence[CounterSample], path: Path) -> None:
    """Check that times and counts fit into the kernel's integers."""
    for number, sample in enumerate(samples, 1):
        for name, value in [("time", sample.unix_ns), *sample.counts.items()]:
            if value > _MOST:
                what = name if isinstance(name, str) else f"{name[0]}, CPU {name[1]}"
                raise UsageError(
                    f"{path}: reading {number}, {what}: got {value}, expected at most {_MOST}",
                    code="counters-range",
                )


@contextmanager
def _opened(path: Path) -> Iterator[IO[str]]:
    """Open a text file; raise `UsageError` if it cannot be read."""
    try:
        with path.open(encoding="utf-8") as lines:
            yield lines
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path}: not counters of interrupts: {error}", code="counters-unreadable"
        ) from None


def _authors_sample(
    path: Path, number: int, cells: list[str], named: list[tuple[str, re.Match[str] | None]]
) -> CounterSample:
    if len(cells) != len(named):
        raise UsageError(
            f"{path}: line {number}: got {len(cells)} columns, expected {len(named)}",
            code="counters-columns",
        )
    unix_ns, counts = 0, {}
    for cell, (column, parts) in zip(cells, named, strict=True):
        if not cell:
            continue
        if not _COUNT.fullmatch(cell):
            raise UsageError(
                f"{path}: line {number}, {column}: got {cell!r}, expected a count",
                code="counters-count",
            )
        if column == "timestamp_us":
            unix_ns = int(cell) * 1000
        elif parts is not None:
            counts[parts["name"].replace("_", " "), int(parts["cpu"])] = int(cell)
    return CounterSample(unix_ns, counts)


def _table(text: str, prefix: str) -> Iterator[tuple[tuple[str, int], int]]:
    head, *lines = text.splitlines()
    cpus = [int(name.removeprefix("CPU")) for name in head.split()]
    for line in lines:
        key, _, rest = line.partition(":")
        fields = rest.split()
        numbers = _leading_numbers(fields[: len(cpus)])
        if len(numbers) < len(cpus):
            # ERR and MIS belong to no CPU.
            continue
        name = " ".join([prefix + key.strip(), *fields[len(cpus) :]])
        yield from (((name, cpu), count) for cpu, count in zip(cpus, numbers, strict=True))


def _leading_numbers(fields: Iterable[str]) -> list[int]:
    numbers = []
    for field in fields:
        if not _COUNT.fullmatch(field):
            break
        numbers.append(int(field))
    return numbers
