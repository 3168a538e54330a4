"""What Prometheus reads of a watch: the counts of the generator, over all runs."""

from __future__ import annotations

import json
import math
import re
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from errors import raises
from google.protobuf import proto
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tailscope.exceptions import UsageError
from tailscope.extra.watch.figures import WatchFigures
from tailscope.extra.watch.protobuf import CONTENT_TYPE, messages
from tailscope.extra.watch.records import WatchedRun
from tailscope.extra.watch.server import application, serving
from tailscope.store.records.campaign import CellFigures
from tailscope.store.records.messages import GeneratorProgress

DASHBOARD = Path(__file__).parents[3] / "docs/extra/watch/grafana.json"
QUANTILES = ("p50", "p99", "p999", "p9999", "p99999")


def said(buckets: dict[int, int], **changed: Any) -> GeneratorProgress:
    count = sum(buckets.values())
    counts = {"sent": count, "received": count, "tx_packets": count, "rx_packets": count}
    return GeneratorProgress(
        **{
            **counts,
            "elapsed_s": 1.0,
            "state": "measuring",
            "stalls": 2,
            "stall_ns_total": 5_000,
            "stall_ns_max": 3_000,
            "unsent": 0,
            "latency_ns_sum": sum(edge * number for edge, number in buckets.items()),
            "latency_ns_buckets": sorted(buckets.items()),
            **changed,
        }
    )


def ended(lost: int = 0, **changed: Any) -> WatchedRun:
    latencies = {f"latency_ns_{name}": 1_000 * number for number, name in enumerate(QUANTILES, 1)}
    supported = {f"latency_ns_{name}_supported": name in ("p50", "p99") for name in QUANTILES}
    figures = CellFigures(
        **latencies,
        **supported,
        latency_ns_max=9_000,
        sent=100,
        count=100 - lost,
        lost=lost,
        unsent=0,
        representative=True,
    )
    line = {"run": "one", "state": "done", "started_unix_ns": 1, "ended_unix_ns": 2}
    return WatchedRun(**{**line, "figures": figures, "tainted": 7, "watched_s": 1.5, **changed})


def asked(figures: WatchFigures, accept: str) -> tuple[str, bytes]:
    """What is answered, and of which type that is."""
    headers: dict[str, str] = {}

    def start(_status: str, given: list[tuple[str, str]]) -> None:
        headers.update(given)

    environ = {"REQUEST_METHOD": "GET", "HTTP_ACCEPT": accept}
    content = b"".join(application(figures)(environ, start))  # type: ignore[arg-type]
    return headers["Content-Type"], content


def samples(figures: WatchFigures, version: str = "1.0.0") -> dict[tuple[str, str], Any]:
    """What a client of Prometheus reads: values by names and their last label."""
    kind, text = asked(figures, f"application/openmetrics-text; version={version}")
    assert f"version={version}" in kind
    return {
        (sample.name, [*(sample.labels or {}).values(), ""][0]): sample
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def value(found: dict[tuple[str, str], Any], name: str, label: str = "") -> float:
    number = found[f"tailscope_{name}", label].value
    assert isinstance(number, float)
    return number


def test_counts_go_on_from_run_to_run() -> None:
    figures = WatchFigures({"dut": "l2fwd"})
    figures.progress(said({1_000: 3}))
    figures.progress(said({1_000: 5}))
    assert value(samples(figures), "packets_sent_total") == 5
    figures.ended(ended(lost=2), None)
    figures.progress(said({1_000: 4}))
    found = samples(figures)
    assert value(found, "packets_sent_total") == 9
    assert value(found, "latency_seconds_count") == 9
    assert value(found, "latency_seconds_sum") == pytest.approx(9e-6)
    assert value(found, "packets_lost_total") == 2
    assert value(found, "packets_tainted_total") == 7
    assert value(found, "instrument_stalls_total") == 4
    assert value(found, "watched_seconds_total") == 1.5
    assert value(found, "runs_total", "done") == 1
    assert found["tailscope_watch_info", "l2fwd"].labels == {"dut": "l2fwd"}


def test_a_run_that_failed_counts_what_was_seen_of_it() -> None:
    figures = WatchFigures({})
    figures.progress(said({1_000: 3}))
    figures.ended(ended(state="failed", figures=None, tainted=None, watched_s=0.0), None)
    found = samples(figures)
    assert value(found, "packets_sent_total") == 3
    assert value(found, "runs_total", "failed") == 1
    assert ("tailscope_last_run_latency_seconds", "1") not in found


def test_only_quantiles_that_packets_support_are_there() -> None:
    figures = WatchFigures({})
    figures.ended(ended(), None)
    found = {
        label: each.value for (name, label), each in samples(figures).items() if "last" in name
    }
    assert found == {"0.5": 1e-6, "0.99": 2e-6, "1": 9e-6, "": 2e-9}


@given(st.dictionaries(st.integers(0, 10**11), st.integers(1, 10**9), max_size=40))
def test_all_formats_have_the_same_packets(buckets: dict[int, int]) -> None:
    figures = WatchFigures({})
    figures.progress(said(buckets))
    kind, content = asked(figures, f"{CONTENT_TYPE},text/plain;q=0.5")
    assert kind == CONTENT_TYPE
    source, families = BytesIO(content), {}
    while source.tell() < len(content):
        family = proto.parse_length_prefixed(messages()["MetricFamily"], source)
        families[family.name] = family
    binary = families["tailscope_latency_seconds"].metric[0].histogram
    text = samples(figures, "2.0.0")["tailscope_latency_seconds", ""].native_histogram
    count = sum(buckets.values())
    assert binary.sample_count == text.count_value == count
    assert binary.bucket[-1].cumulative_count == count
    assert len(numbers(binary.positive_span)) == len(binary.positive_delta)
    in_buckets = counts_of(binary.positive_delta)
    assert sum(in_buckets) + binary.zero_count == count
    assert families["tailscope_packets_sent_total"].metric[0].counter.value == count


def numbers(spans: Any) -> list[int]:
    """The numbers of the buckets in these spans."""
    found, at = [], 0
    for span in spans:
        at += span.offset
        found += range(at, at + span.length)
        at += span.length
    return found


def counts_of(deltas: Any) -> list[int]:
    found: list[int] = []
    for delta in deltas:
        found.append((found[-1] if found else 0) + delta)
    return found


@given(st.integers(100, 10**10))
def test_a_packet_is_in_the_bucket_of_its_latency(latency_ns: int) -> None:
    """The generator's own bucket may be cut by the border of two: then one beside it will do."""
    shift = max(0, latency_ns.bit_length() - 6)
    edge_ns = latency_ns >> shift << shift
    figures = WatchFigures({})
    figures.progress(said({edge_ns: 1}))
    [family] = [each for each in figures.collect() if each.name == "tailscope_latency_seconds"]
    native = family.samples[-1].native_histogram
    assert native is not None and native.pos_spans is not None
    [number] = numbers(native.pos_spans)
    exact = math.ceil(8 * math.log2(latency_ns / 1e9))
    assert abs(number - exact) <= 1
    least_s, most_s = 2 ** ((number - 1) / 8), 2 ** (number / 8)
    assert least_s / 1.03 <= latency_ns / 1e9 <= most_s * 1.03


def test_a_port_that_is_taken_is_named() -> None:
    with (
        serving(WatchFigures({}), "127.0.0.1", 0) as port,
        raises(UsageError, "listen-failed") as refused,
        serving(WatchFigures({}), "127.0.0.1", port),
    ):
        pass
    assert f"127.0.0.1:{port}: Address already in use" in str(refused.value)


def test_the_dashboard_asks_for_metrics_that_are_there() -> None:
    figures = WatchFigures({})
    figures.progress(said({1_000: 3}))
    figures.ended(ended(), None)
    there = {each.name for each in figures.collect()}
    panels = json.loads(DASHBOARD.read_text())["panels"]
    asked_for = {
        name
        for panel in panels
        for target in panel["targets"]
        for name in re.findall(r"tailscope_\w+", target["expr"])
    }
    assert len(asked_for) > 8
    assert {name.removesuffix("_total") for name in asked_for} <= there
