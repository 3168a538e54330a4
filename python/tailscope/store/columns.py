"""What the catalogue knows of runs: its tables, their columns, and the type of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailscope.plan import PairFields, PlanFields, fields_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["PACKETS", "PLAN", "QUANTILES", "RUN", "SUMMARY", "TABLES"]

TEXT, COUNT, REAL, TRUTH, TIME = "VARCHAR", "BIGINT", "DOUBLE", "BOOLEAN", "TIMESTAMP"
_UNSIGNED = "UBIGINT"

QUANTILES = {
    "p50": "p50",
    "p90": "p90",
    "p99": "p99",
    "p999": "p99.9",
    "p9999": "p99.99",
    "p99999": "p99.999",
    "p999999": "p99.9999",
}
"""Quantiles of the summary: as names of figures have them, and as people write them."""

_TYPES = {str: TEXT, dict: TEXT, int: COUNT, bool: TRUTH}
_DECLARED = {**fields_of(PlanFields), **fields_of(PairFields)}

PLAN = {"command": TEXT} | {
    attribute: _TYPES[declared.held]
    for attribute, declared in _DECLARED.items()
    if declared.is_column
}
"""Columns of table ``run`` that its plan has under the same name."""

RUN = {
    "run": TEXT,
    "path": TEXT,
    "campaign": TEXT,
    "state": TEXT,
    "problem": TEXT,
    "emulated": TRUTH,
    "written_utc": TIME,
    "tailscope_version": TEXT,
    **PLAN,
    "kernel": TEXT,
    "kernel_release": TEXT,
    "cpu_model": TEXT,
    "cpu_count": COUNT,
    "clock": TEXT,
    "floor_ns_p50": COUNT,
    "floor_ns_p999": COUNT,
    "believed_up_to": REAL,
}
"""Columns of table ``run``."""


def _summary() -> Iterator[tuple[str, str]]:
    yield "run", TEXT
    yield from dict.fromkeys(_COUNTS, COUNT).items()
    yield from dict.fromkeys(("loss_ratio", "reordered_ratio", "transfer_rate"), REAL).items()
    yield from (("latency_ns_min", COUNT), ("latency_ns_mean", REAL))
    for quantile in QUANTILES:
        name = f"latency_ns_{quantile}"
        yield from ((name, COUNT), (f"{name}_ci_low", COUNT), (f"{name}_ci_high", COUNT))
        yield from ((f"{name}_beyond", COUNT), (f"{name}_supported", TRUTH))
    yield "latency_ns_max", COUNT
    yield from _quantiles("pdv_ns")
    yield from (("ipdv_ns_min", COUNT), ("ipdv_ns_max", COUNT))
    yield "ipdv_abs_ns_mean", REAL
    yield from _quantiles("ipdv_abs_ns")
    for side in ("pre", "post"):
        names = ("rate_pps", "second_mean_pps", "duration_s", "gap_ns_mean")
        yield from ((f"{side}_{name}", REAL) for name in names)
        yield from ((f"{side}_{name}", COUNT) for name in ("gap_ns_min", "gap_ns_max"))
        yield from _quantiles(f"{side}_gap_ns")
        yield f"{side}_disordered", COUNT
    for name in _TAINTABLE:
        yield f"{name}_mean", REAL
        yield from _quantiles(name)
        yield f"{name}_max", COUNT
    for name in _POWER:
        yield from ((f"{name}{end}", REAL) for end in ("", "_ci_low", "_ci_high"))


def _quantiles(name: str) -> Iterator[tuple[str, str]]:
    return ((f"{name}_{quantile}", COUNT) for quantile in QUANTILES)


_COUNTS = (
    *("count", "sent", "lost", "late", "corrupt", "ambiguous", "duplicated", "negative"),
    *("reordered", "pre_packets", "pre_trimmed", "pre_unkeyed", "post_packets", "post_trimmed"),
    *("post_unkeyed", "post_ambiguous", "post_late", "post_unknown", "unsent", "lost_in_dut"),
    *("lost_in_instrument", "dropped_by_dut", "tainted", "stalls", "stall_ns_total"),
    "stall_ns_max",
)
_TAINTABLE = (
    "untainted_latency_ns",
    "intended_latency_ns",
    "departure_error_ns",
    "untainted_departure_error_ns",
)
_POWER = (
    *("power_w_idle", "power_w_running", "power_w_processing"),
    *("energy_j_per_packet", "energy_j_per_packet_above_idle"),
    *("energy_j_per_million_packets", "energy_j_per_million_packets_above_idle"),
)

SUMMARY = dict(_summary())
"""Columns of table ``summary``: figures by the names that they have in ``summary.json``."""

TABLES: dict[str, Mapping[str, str]] = {
    "run": RUN,
    "summary": SUMMARY,
    "tag": {"run": TEXT, "tag": TEXT},
    "note": {"run": TEXT, "written_utc": TIME, "text": TEXT},
    "file": {"run": TEXT, "file": TEXT, "size_bytes": COUNT, "sha256": TEXT},
}
"""Tables, their columns, and the type of each."""

PACKETS: dict[str, Mapping[str, str]] = {
    "latency": {
        "run": TEXT,
        "seq": _UNSIGNED,
        "pre_ns": _UNSIGNED,
        "latency_ns": _UNSIGNED,
        "intended_ns": _UNSIGNED,
        "tainted": TRUTH,
    },
    "worst": {
        "run": TEXT,
        "latency_ns": _UNSIGNED,
        "pre_ns": _UNSIGNED,
        "post_ns": _UNSIGNED,
        "pre_seq": _UNSIGNED,
        "service_ns": COUNT,
        "dut_ns": COUNT,
        "queue_ns": COUNT,
        "instrument_ns": COUNT,
        "unexplained_ns": COUNT,
        "cause": TEXT,
        "queue_cause": TEXT,
    },
    "noise": {
        "run": TEXT,
        "source": TEXT,
        "cpu": COUNT,
        "kind": TEXT,
        "cause": TEXT,
        "detail": TEXT,
        "event": COUNT,
        "start_ns": COUNT,
        "duration_ns": COUNT,
    },
    "interrupts": {
        "run": TEXT,
        "unix_ns": COUNT,
        "interrupt": TEXT,
        "cpu": COUNT,
        "count": COUNT,
    },
    "power": {
        "run": TEXT,
        "domain": TEXT,
        "start_ns": COUNT,
        "end_ns": COUNT,
        "watts": REAL,
    },
}
"""Views over the Parquet files of all runs, their columns, and the type of each."""
