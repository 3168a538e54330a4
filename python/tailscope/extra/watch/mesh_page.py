"""The page of a mesh: the latency and loss of each pair of hosts."""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from typing import TYPE_CHECKING

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tailscope.extra.watch.mesh_figures import LATENCY, LOST, SENT, UP
from tailscope.report.page import environment, scripts
from tailscope.units import duration_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector

    from tailscope.extra.watch.mesh import MeshHost

    Values = Mapping[tuple[str, str], float]

_WAIT_S = 2.0
_READERS = 8
"""Hosts that are asked at once, however many want to see the page."""
_FRESH_S = 1.0
"""Age up to which a page is shown again."""
_MOST_BYTES = 4 << 20
_ACCEPT = "application/openmetrics-text; version=1.0.0"


class MeshPage:
    """The page for all who want to see it: it is written for one of them at a time."""

    def __init__(self, hosts: Mapping[str, MeshHost], own: str, figures: Collector) -> None:
        self._hosts, self._own, self._figures = hosts, own, figures
        self._lock = threading.Lock()
        self._written: tuple[float, str] | None = None

    def __call__(self) -> str:
        """Return the page as it is now, or was a moment ago."""
        with self._lock:
            if self._written is None or time.monotonic() - self._written[0] > _FRESH_S:
                page = mesh_page(self._hosts, self._own, self._figures)
                self._written = time.monotonic(), page
            return self._written[1]


def mesh_page(hosts: Mapping[str, MeshHost], own: str, figures: Collector) -> str:
    """Write the page: a row for each host, as its own watch tells it now."""

    def row(name: str) -> tuple[str, list[str]]:
        metrics = figures.collect() if name == own else _metrics_of(hosts[name])
        values = _by_other(metrics, name)
        return name, [_cell(values[other]) if other != name else "" for other in hosts]

    with ThreadPoolExecutor(min(_READERS, len(hosts))) as pool:
        rows = list(pool.map(row, hosts))
    template = environment("tailscope.extra.watch").get_template("mesh.html.j2")
    return template.render(names=list(hosts), rows=rows, scripts=scripts([]))


def _metrics_of(host: MeshHost) -> Iterable[Metric]:
    """Read the metrics of another host; none if it does not tell them."""
    if host.metrics is None:
        return ()
    try:
        with closing(HTTPConnection(host.metrics, timeout=_WAIT_S)) as connection:
            connection.request("GET", "/metrics", headers={"Accept": _ACCEPT})
            content = connection.getresponse().read(_MOST_BYTES)
            return tuple(text_string_to_metric_families(content.decode()))
    except (OSError, HTTPException, ValueError, IndexError):
        return ()


def _by_other(metrics: Iterable[Metric], name: str) -> Mapping[str, Values]:
    """Sort the samples of paths from a host by the host at their other end."""
    found: dict[str, dict[tuple[str, str], float]] = defaultdict(dict)
    for metric in metrics:
        for sample in metric.samples:
            labels = sample.labels
            if labels.get("from") == name and "to" in labels and math.isfinite(sample.value):
                which = labels.get("quantile") or labels.get("where") or ""
                found[labels["to"]][sample.name, which] = sample.value
    return found


def _cell(values: Values) -> str:
    """Say what is known of a path."""
    if (UP, "") not in values:
        return "-"
    if not values[UP, ""]:
        return "no answer"
    quantiles = [
        f"{name} {duration_text(round(values[LATENCY, quantile] * 1e9))}"
        for name, quantile in (("p50", "0.5"), ("p99", "0.99"))
        if (LATENCY, quantile) in values
    ]
    sent = values.get((f"{SENT}_total", ""), 0.0)
    lost = sum(values.get((f"{LOST}_total", where), 0.0) for where in ("network", "unknown"))
    return ", ".join([*quantiles, f"lost {lost / sent:.2%}" if sent else "nothing sent"])
