"""Clocks by name: counters that count as often."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from errors import raises

from tailscope.exceptions import UsageError
from tailscope.extra.patterns.models.aliasing.naming import counted_as
from tailscope.extra.patterns.models.aliasing.simulation import Periodic
from tailscope.noise.counters import columns, rates_hz, read_samples

if TYPE_CHECKING:
    from pathlib import Path

SHORT = Periodic(4_000_195, 7_475, every=3, teeth=(0, 1))
LONG = Periodic(4_000_195, 10_413, every=3, teeth=(2,))


def test_the_interrupts_of_noms2020_have_names(data: Path) -> None:
    """Section V-C: an iwi follows every third loc."""
    [path] = (data / "noms2020" / "dpdk-l2fwd" / "hw").glob("irq-*.csv")
    rates = rates_hz(read_samples(path), path)
    timer, work = "LOC Local timer interrupts", "IWI IRQ work interrupts"
    assert counted_as([SHORT, LONG], {"host": rates}) == [
        [("host", timer)],
        [("host", timer), ("host", work)],
    ]


def test_a_host_and_its_guest_are_told_apart() -> None:
    """Both tick alike, and only the host has a counter for each third tick."""
    timer, work = "LOC Local timer interrupts", "IWI IRQ work interrupts"
    machines = {
        "guest": {timer: [249.9, 250.1], "RES": [2.7]},
        "host": {timer: [250.0, 251.0, 252.6], work: [83.3, 83.3]},
    }
    guest = Periodic(4_000_196, 13_162, 1_947_000)
    named = counted_as([SHORT, LONG, guest], machines)
    assert named == [
        [("host", timer)],
        [("host", timer), ("host", work)],
        [("guest", timer)],
    ]
    both = [("guest", timer), ("host", timer)]
    assert counted_as([guest], machines) == [both]


def test_the_local_timer_of_arm_is_one() -> None:
    machines = {"host": {"11 GICv3 27 Level arch_timer": [250.0, 1195.6, 254.0]}}
    [[named]] = counted_as([Periodic(round(1e9 / 945.6), 3_000, 0)], machines)
    assert named == ("host", "11 GICv3 27 Level arch_timer, less a tick of 250 Hz")


def test_counters_of_a_run_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "interrupts.parquet"
    table = {
        "unix_ns": [0, 0, 2_000_000_000, 2_000_000_000],
        "interrupt": ["LOC x", "RES y", "LOC x", "RES y"],
        "cpu": [1, 1, 1, 1],
        "count": [100, 5, 600, 5],
    }
    pq.write_table(pa.table(table), path)
    samples = read_samples(path)
    assert columns(samples) == table
    assert rates_hz(samples, path) == {"LOC x": [250.0]}
    assert counted_as([SHORT], {"run": rates_hz(samples, path)}) == [[("run", "LOC x")]]


def test_what_are_no_counters_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "interrupts.parquet"
    pq.write_table(pa.table({"unix_ns": [1]}), path)
    with raises(UsageError, "counters-unreadable"):
        read_samples(path)
    single = tmp_path / "irq.csv"
    single.write_text("timestamp_us;LOC_x_CPU0\n1;2\n")
    with raises(UsageError, "counters-few") as error:
        rates_hz(read_samples(single), single)
    assert str(single) in str(error.value) and str(error.value).endswith(" got 1")


def test_a_timer_beside_the_tick_is_named_by_the_difference() -> None:
    """The counters of noms2020 say 945.6 Hz beside a tick of 250 Hz; folding says 945.0."""
    machines = {"host": {"LOC Local timer interrupts": [250.0, 1195.6, 254.0]}}
    timer = Periodic(1e9 / 945.0, 3_000)
    assert counted_as([timer], machines) == [
        [("host", "LOC Local timer interrupts, less a tick of 250 Hz")]
    ]
    assert counted_as([Periodic(1e9 / 940.0, 3_000)], machines) == [[]]
