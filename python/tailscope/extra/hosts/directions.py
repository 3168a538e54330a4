"""The packets of each direction of a path, for what looks for patterns in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tailscope.engine.columns import values
from tailscope.extra.hosts import PASSAGES
from tailscope.extra.hosts.explain import read_hosts
from tailscope.store.files import opened
from tailscope.store.parquet import TableFile
from tailscope.store.tables import Table, TableColumn

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Columns = dict[str, NDArray[np.int64]]

_TIMES = ("sent_ns", "received_ns", "answered_ns", "arrived_ns")
_TABLE = Table(
    PASSAGES,
    "What is read of it.",
    (
        *(TableColumn(name, "uint64", "One of the four times.") for name in _TIMES),
        TableColumn("flow", "uint64", "The flow of the query."),
        TableColumn("exact", "bool", "Whether kernels took all times."),
    ),
)
_FASTEST = 0.05
"""Share of the packets that tell how far the other clock is ahead: they waited nowhere."""
_PARTS, _PART_PACKETS = 50, 10
"""Parts of a run, each of which tells it, and the packets that each must have."""


def directions_of(run: Path) -> dict[str, Columns] | None:
    """Return the packets that went there, and those that came back; None of any other run.

    Each has `pre_ns`, by the sender's clock, `latency_ns` and `flow`, in the order in which the
    packets left, and `lost_ns`, of no packet, if it is certain that none was lost. A packet of
    which a program took a time, and not a kernel, is in neither.
    """
    record = read_hosts(run)
    if record is None:
        return None
    with TableFile(opened(run, PASSAGES), str(run / PASSAGES), _TABLE) as file:
        columns = {name: values(column) for name, column in file.columns(_TABLE.names).items()}
    exact = columns.pop("exact")
    passed = {name: column[exact].astype(np.int64) for name, column in columns.items()}
    ahead = _ahead_ns(passed)
    ways = {
        "there": (passed["sent_ns"], passed["received_ns"] - ahead),
        "back": (passed["answered_ns"] - ahead, passed["arrived_ns"]),
    }
    lost = {} if record.loss.lost else {"lost_ns": np.zeros(0, np.int64)}
    return {
        name: {**_way(came_ns, left_ns, passed["flow"]), **lost}
        for name, (came_ns, left_ns) in ways.items()
    }


def _way(
    came_ns: NDArray[np.int64], left_ns: NDArray[np.int64], flow: NDArray[np.int64]
) -> Columns:
    order = np.argsort(came_ns, kind="stable")
    latency_ns = np.maximum(left_ns - came_ns, 0)
    return {"pre_ns": came_ns[order], "latency_ns": latency_ns[order], "flow": flow[order]}


def _ahead_ns(passed: Columns) -> NDArray[np.int64]:
    """Return how far the other host's clock is ahead at each packet.

    The fastest packets take as long there as back, which makes their middle the same moment for
    both. Both directions are off by half of what they differ by, and that is constant. Before the
    first of them and after the last, the clock drifts as it does on average between them.
    """
    sent, received, answered, arrived = (passed[name] for name in _TIMES)
    if not len(sent):
        return sent
    in_network = arrived - sent - (answered - received)
    here, there = (sent + arrived) // 2, (received + answered) // 2
    since = here - here[0]
    fastest = np.flatnonzero(in_network <= np.quantile(in_network, _FASTEST))
    fastest = fastest[np.argsort(since[fastest], kind="stable")]
    parts = np.array_split(fastest, min(_PARTS, max(1, len(fastest) // _PART_PACKETS)))
    at = np.array([float(np.median(since[part])) for part in parts])
    # Of the lead, only what changes is a small enough number for floats.
    lead = there - here
    changed = np.array([float(np.median(lead[part] - lead[0])) for part in parts])
    drift = float(np.polyfit(at, changed, 1)[0]) if len(parts) > 1 else 0.0
    beside = np.interp(since, at, changed - drift * at)
    ahead: NDArray[np.int64] = lead[0] + (drift * since + beside).astype(np.int64)
    return ahead
