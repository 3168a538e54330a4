"""Metrics of the paths from one host of a mesh to all others."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.core import Metric

LATENCY = "tailscope_path_latency_seconds"
SENT = "tailscope_path_packets_sent"
LOST = "tailscope_path_packets_lost"
UP = "tailscope_path_up"
_PAIR = ("from", "to")


@dataclass
class _Path:
    """What is known of the path to a host."""

    up: bool | None = None
    """Whether the host answered last; None before it was asked."""
    sent: int = 0
    lost: int = 0
    lost_in_ends: int = 0
    lost_where_unknown: int = 0
    quantiles_ns: tuple[tuple[str, int], ...] = ()
    ended_unix_s: float | None = None


class MeshFigures(Collector):
    """The figures of all paths; a thread for each path updates them, others read."""

    def __init__(self, name: str, others: Iterable[str]) -> None:
        self._name, self._lock = name, threading.Lock()
        self._paths = {other: _Path() for other in others}

    def answered(
        self,
        other: str,
        *,
        sent: int,
        lost: int,
        lost_in_ends: int,
        lost_where_unknown: int,
        quantiles_ns: dict[str, int],
    ) -> None:
        """Take what a measurement found."""
        with self._lock:
            path = self._paths[other]
            path.up, path.quantiles_ns = bool(quantiles_ns), tuple(quantiles_ns.items())
            path.sent, path.lost = path.sent + sent, path.lost + lost
            path.lost_in_ends += lost_in_ends
            path.lost_where_unknown += lost_where_unknown
            path.ended_unix_s = time.time()

    def silent(self, other: str) -> None:
        """Note that a host does not answer."""
        with self._lock:
            path = self._paths[other]
            path.up, path.quantiles_ns = False, ()

    def collect(self) -> Iterator[Metric]:
        """Make the metrics of what is known now."""
        latency = GaugeMetricFamily(
            LATENCY,
            "Latency of the last measurement in the network, there and back.",
            labels=(*_PAIR, "quantile"),
        )
        up = GaugeMetricFamily(UP, "Whether the other host answers.", labels=_PAIR)
        ended = GaugeMetricFamily(
            "tailscope_path_end_timestamp_seconds", "End of the last measurement.", labels=_PAIR
        )
        sent = CounterMetricFamily(SENT, "Queries that left.", labels=_PAIR)
        lost = CounterMetricFamily(
            LOST, "Queries without an answer, by where they were lost.", labels=(*_PAIR, "where")
        )
        with self._lock:
            for other, path in self._paths.items():
                pair = (self._name, other)
                if path.up is not None:
                    up.add_metric(pair, float(path.up))
                sent.add_metric(pair, path.sent)
                lost.add_metric((*pair, "ends"), path.lost_in_ends)
                lost.add_metric((*pair, "unknown"), path.lost_where_unknown)
                in_network = path.lost - path.lost_in_ends - path.lost_where_unknown
                lost.add_metric((*pair, "network"), in_network)
                for quantile, value_ns in path.quantiles_ns:
                    latency.add_metric((*pair, quantile), value_ns / 1e9)
                if path.ended_unix_s is not None:
                    ended.add_metric(pair, path.ended_unix_s)
        yield from (latency, up, ended, sent, lost)
