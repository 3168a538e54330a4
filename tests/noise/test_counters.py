"""Counters of interrupts: the kernel's tables, and those of the papers' authors."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from errors import raises

from tailscope.exceptions import UsageError
from tailscope.noise.counters import (
    CounterSample,
    CounterSampler,
    columns,
    increments,
    read_authors_csv,
    read_counters,
    read_steal_ns,
)

if TYPE_CHECKING:
    from pathlib import Path

INTERRUPTS = """           CPU0       CPU2
  8:          1          2  IR-IO-APIC   8-edge      rtc0
NMI:          0          7   Non-maskable interrupts
LOC:       1000       2000   Local timer interrupts
ERR:          3
"""
SOFTIRQS = """                    CPU0       CPU2
          HI:          0          5
       TIMER:         10         20
"""
STAT = """cpu  1 2 3 4 5 6 7 9 0 0
cpu0 1 2 3 4 5 6 7 2 0 0
cpu2 1 2 3 4 5 6 7 7 0 0
intr 5
"""


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    for name, text in (("interrupts", INTERRUPTS), ("softirqs", SOFTIRQS), ("stat", STAT)):
        (tmp_path / name).write_text(text)
    return tmp_path


def test_tables_are_read_by_name_and_cpu(proc: Path) -> None:
    counts = read_counters(proc).counts
    assert counts["LOC Local timer interrupts", 2] == 2000
    assert counts["8 IR-IO-APIC 8-edge rtc0", 0] == 1
    assert counts["softirq TIMER", 2] == 20
    assert len(counts) == 10


def test_a_machine_without_tables_has_no_counters(tmp_path: Path) -> None:
    assert read_counters(tmp_path).counts == {}
    assert read_steal_ns(tmp_path) == {}


def test_steal_is_in_ticks(proc: Path) -> None:
    assert read_steal_ns(proc) == {0: 20_000_000, 2: 70_000_000}


def test_only_what_counted_is_told() -> None:
    before = CounterSample(1, {("LOC", 0): 5, ("LOC", 1): 5, ("RES", 1): 1})
    after = CounterSample(2, {("LOC", 0): 9, ("LOC", 1): 6, ("RES", 1): 1, ("TLB", 1): 2})
    assert increments([before, after], [1]) == {"LOC": {1: 1}, "TLB": {1: 2}}
    table = columns([before, after])
    assert table["unix_ns"] == [1, 1, 1, 2, 2, 2, 2]
    assert table["count"][:3] == [5, 5, 1]


def test_this_machine_counts_its_own_ticks() -> None:
    with CounterSampler(0.05) as sampler:
        end_s = time.monotonic() + 0.5
        while time.monotonic() < end_s:
            pass
    assert len(sampler.samples) >= 4
    times = [sample.unix_ns for sample in sampler.samples]
    assert times == sorted(times)
    cpus = [cpu for _, cpu in sampler.samples[0].counts]
    counted = increments(sampler.samples, cpus)
    assert sum(counted["LOC Local timer interrupts"].values()) > 10


def test_the_authors_counters_are_read(data: Path) -> None:
    [path] = (data / "noms2020" / "dpdk-l2fwd" / "hw").glob("irq-*.csv")
    samples = read_authors_csv(path)
    assert len(samples) == len(path.read_text().splitlines()) - 1
    counted = increments(samples, range(4))
    lasted_s = (samples[-1].unix_ns - samples[0].unix_ns) / 1e9
    timer = {cpu: count / lasted_s for cpu, count in counted["LOC Local timer interrupts"].items()}
    # noms2020 V-C: the timer's interrupts come at 250 Hz on the CPU that processes packets.
    assert any(abs(rate - 250) < 5 for rate in timer.values()), timer
    assert set(counted["IWI IRQ work interrupts"])


@pytest.mark.parametrize(
    ("text", "code", "where"),
    [
        ("a;b\n1;2\n", "counters-header", "line 1: "),
        ("timestamp_us;LOC_x_CPU0\n1\n", "counters-columns", "line 2: got 1 "),
        ("LOC_x_CPU0;timestamp_us\n1;2\n-3;4\n", "counters-count", "line 3, LOC_x_CPU0: got '-3'"),
    ],
)
def test_what_is_no_table_of_counters_is_refused(
    tmp_path: Path, text: str, code: str, where: str
) -> None:
    path = tmp_path / "irq.csv"
    path.write_text(text)
    with raises(UsageError, code) as error:
        read_authors_csv(path)
    assert f"{path}: {where}" in str(error.value)
