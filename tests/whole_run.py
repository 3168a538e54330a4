"""A small run that has everything that a figure can be made of."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import captures
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import synthetic
from msgspec import convert, structs

from tailscope.engine.analysis import Group
from tailscope.experiment.plan import RunPlan
from tailscope.store import layout
from tailscope.store.kept import Conclusions
from tailscope.store.reader import read_run
from tailscope.store.records.explanation import Explanation
from tailscope.store.records.overload import OverloadRecord

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tailscope.store.run import Run

PACKETS = 60
GAP_NS = 100_000_000


def whole_run(tailscope: Callable[..., Any], folder: Path) -> Run:
    """Six seconds of ten packets each, every seventh slow, with noise, counters and power."""
    latencies = [1_000 + 10 * at + (50_000 if at % 7 == 0 else 0) for at in range(PACKETS)]
    pre, post = captures.pair(folder / "captures", latencies, gap=GAP_NS)
    done = tailscope("analyze", pre, post, "--out", folder / "run")
    assert done.returncode == 0, done.stderr
    run = read_run(folder / "run")
    assert run.path is not None
    begin_ns = int(run.rate["pre"].start_ns[0])
    latency = pq.ParquetFile(run.path / layout.LATENCY).read(use_threads=False)
    intended = pa.array(
        latency["pre_ns"].to_numpy() - (np.arange(PACKETS) % 5).astype(np.uint64) * np.uint64(40)
    )
    at = latency.schema.get_field_index("intended_ns")
    pq.write_table(latency.set_column(at, "intended_ns", intended), run.path / layout.LATENCY)
    pq.write_table(_noise(begin_ns), run.path / layout.NOISE)
    pq.write_table(_interrupts(begin_ns), run.path / layout.INTERRUPTS)
    pq.write_table(_power(begin_ns), run.path / layout.POWER)
    causes = np.array(["", *["local timer"] * 4, *["TLB shootdown"] * (PACKETS - 5)], object)
    return replace(
        run,
        info=structs.replace(
            run.info,
            files={},
            plan=RunPlan(dut="l2fwd").record(),
            instrument=synthetic.instrument(),
        ),
        worst_explained={"cause": causes},
        flows=_FLOWS,
        explanation=convert(_EXPLANATION, Explanation),
        kept=Conclusions({layout.OVERLOAD: convert(_OVERLOAD, OverloadRecord)}),
    )


_FLOWS = (
    Group("10.0.0.1:1 > 10.0.0.2:53 udp", 30, 30, 0, 0, 1_300, 51_560, 51_560, 1, True),
    Group("10.0.0.1:2 > 10.0.0.2:53 udp", 40, 30, 10, 0, 1_200, 1_580, 1_590, 0, True),
    Group("10.0.0.1:3 > 10.0.0.2:53 udp", 20, 0, 20, 20, None, None, None, None, True),
)
_WAITED = {"packets": 1, "total_ns": 1, "largest_ns": 1}
_EXPLANATION = {
    "quantile": 0.9,
    "threshold_ns": 1,
    "service_ns": 1,
    "packets": 1,
    "latency_ns": 4,
    "excess_ns": 3,
    "parts_ns": {},
    "causes": [
        {**_WAITED, "part": "dut", "cause": "local timer", "share": 0.75},
        {**_WAITED, "part": "instrument", "cause": "task <b>", "share": 0.2},
        {**_WAITED, "part": "unexplained", "cause": "", "share": 0.05},
    ],
    "stages": {
        "packets": PACKETS,
        "left_out": 0,
        "tail_packets": 6,
        "stages": [
            {
                "stage": stage,
                "ns_p50": 1,
                "ns_p99": 2,
                "share_p50": share,
                "tail_share": in_tail,
                "interrupted_by": [{"part": "dut", "cause": "task <b>", "total_ns": 1}],
            }
            for stage, share, in_tail in (
                ("wire in", 0.2, 0.1),
                ("driver", 0.1, 0.6),
                ("stack", 0.05, 0.1),
                ("qdisc", 0.05, 0.0),
                ("wire out", 0.4, 0.2),
            )
        ],
        "drops": [{"reason": "QDISC_DROP", "packets": 3}],
    },
}

_OVERLOAD = {
    "forwarder": "forwarder",
    "function": "function",
    **{
        f"{name}{end}": 1.0
        for name in ("transfer_ns", "e2e_ns", "cpu_ns", "noise_ns_per_s")
        for end in ("", "_ci_low", "_ci_high")
    },
    "level": 0.95,
    "method": "ends",
    "interruptions": [],
    "is_upper_bound": False,
    "warnings": ["the runs differ in <i>size</i>"],
    "rate_max_pps": 600.0,
    "rate_max_pps_ci_low": 500.0,
    "rate_max_pps_ci_high": 800.0,
}


def _noise(begin_ns: int) -> pa.Table:
    rows = [
        ("dut", 1, "stall", "", 1_000_000_000, 50_000),
        ("dut", 1, "cause", "local timer", 1_000_000_000, 40_000),
        ("dut", 1, "cause", "task <b>", 1_000_040_000, 10_000),
        ("dut", 1, "cause", "stall", 2_000_000_000, 9_000),
        ("instrument", 0, "stall", "", 3_000_000_000, 5_000),
        ("instrument", 0, "cause", "TLB shootdown", 3_000_000_000, 5_000),
        ("dut", 1, "stall", "", -1_000_000, 7_000),
    ]
    source, cpu, kind, cause, start, lasted = zip(*rows, strict=True)
    return pa.table(
        {
            "source": pa.array(source).dictionary_encode(),
            "cpu": pa.array(cpu, pa.int64()),
            "kind": pa.array(kind).dictionary_encode(),
            "cause": pa.array(cause).dictionary_encode(),
            "start_ns": pa.array([begin_ns + each for each in start], pa.int64()),
            "duration_ns": pa.array(lasted, pa.int64()),
        }
    )


def _interrupts(begin_ns: int) -> pa.Table:
    rows = [
        (begin_ns + second * 1_000_000_000, name, cpu, 1_000 + second * per_s)
        for second in (-1, 2, 6)
        for name, cpu, per_s in (("LOC", 0, 250), ("LOC", 1, 100), ("IWI", 1, 0), ("LOC", 7, 9))
    ]
    names = ("unix_ns", "interrupt", "cpu", "count")
    return pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))


def _power(begin_ns: int) -> pa.Table:
    starts = [begin_ns - 1_000_000_000, begin_ns, begin_ns + 3_000_000_000]
    return pa.table(
        {
            "domain": ["package-0"] * 3,
            "start_ns": starts,
            "end_ns": [*starts[1:], begin_ns + 6_000_000_000],
            "watts": [10.0, 25.0, 26.5],
        }
    )
