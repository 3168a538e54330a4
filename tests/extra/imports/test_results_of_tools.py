"""Results as cyclictest, rtla, sockperf, irtt and wrk2 write them, each beside its own count."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from errors import raises

from tailscope.exceptions import TailscopeError, UsageError
from tailscope.extra.imports import hdr, realtime, trex, values
from tailscope.extra.imports.find import find
from tailscope.extra.imports.write import write_import
from tailscope.store.reader import read_run
from tailscope.verdict.imported import judge_import
from tailscope.verdict.slo import parse_level
from tailscope.verdict.verdict import Outcome

if TYPE_CHECKING:
    from pathlib import Path

    from tailscope.extra.imports.find import Reader
    from tailscope.extra.imports.foreign import ForeignRun

CYCLICTEST = """\
# /dev/cpu_dma_latency set to 0us
# Histogram
000000 000000\t000001
000001 000007\t000002
000002 000000\t000000
# Total: 000000007 000000003
# Min Latencies: 00001 00000
# Avg Latencies: 00001 00001
# Max Latencies: 00001 05424
# Histogram Overflows: 00000 00004
# Histogram Overflow at cycle number:
# Thread 0:
# Thread 1: 00000 00001 00002 00003
"""
WITH_SUM = """\
# Histogram
000000 000000\t000001\t000001
000001 000007\t000002\t000009
# Total: 000000007 000000003 000000010
# Max Latencies: 00001 05424 05424
# Histogram Overflows: 00000 00004 00004
"""
RTLA = """\
# RTLA timerlat histogram
# Time unit is microseconds (us)
# Duration:   0 00:00:03
Index   IRQ-000   Thr-000
0          2000         0
5             0      2990
15            1         9
over:         0         1
count:     2001      3000
min:          0         5
avg:          0         5
max:         16       271
"""
SOCKPERF = """\
------------------------------
sockperf: [Valid Duration] RunTime=0.547 sec; SentMessages=3; ReceivedMessages=2
sockperf: # dropped messages = 1; # duplicated messages = 0; # out-of-order messages = 0
------------------------------
packet, txTime(sec), rxTime(sec), latency(usec)
0, 2.413901178, 2.413947807, 23.315
1, 2.414944381, 2.414995096, 25.357
------------------------------
"""
WRK2 = """\
Running 10s test @ http://127.0.0.1:8080
  Latency Distribution (HdrHistogram - Recorded Latency)
 50.000%    1.00ms
100.000%    3.00ms

  Detailed Percentile spectrum:
       Value   Percentile   TotalCount 1/(1-Percentile)

       1.000     0.500000            2         2.00
       3.000     1.000000            4          inf
#[Mean    =        1.500, StdDeviation   =        0.900]
#[Max     =        3.000, Total count    =            4]
#[Buckets =           27, SubBuckets     =         2048]
----------------------------------------------------------
  4 requests in 10.00s, 1KB read
"""


def irtt(lost: tuple[str, ...] = ("false", "true_up", "false")) -> str:
    """A result of irtt in which packets get lost on their way there or back."""
    trips = [
        {
            "seqno": number,
            "lost": one,
            "timestamps": {"client": {"send": {"wall": 10**18 + number}}},
            "delay": {"rtt": 1_000 + number} if one == "false" else {},
        }
        for number, one in enumerate(lost)
    ]
    return json.dumps({"version": {"irtt": "0.9.0"}, "round_trips": trips}, indent=4)


def statistics(group: object = None, **more: object) -> str:
    """Statistics of TRex: those of ports come before the packets of a group."""
    histogram = {"0": 3, "20": 5, "100": 0, "200": 2}
    latency = {"histogram": histogram, "total_max": 234.5, "average": 31.2, "jitter": 2}
    counted = {"err_cntrs": {"dropped": 4, "dup": 0}, "latency": latency}
    groups = {"7": counted if group is None else group, "global": {"bad_hdr": 0, "old_flow": 0}}
    sent = {"7": {"tx_pkts": {"0": 14, "total": 14}}, "g": {"rx_err": {}}}
    ports = {str(port): {"opackets": 14, "tx_pps": 1.5} for port in range(100)}
    return json.dumps({**ports, "flow_stats": sent, "latency": groups, **more}, indent=2)


def read(folder: Path, content: str, unit: str | None = None) -> list[ForeignRun]:
    path = folder / "result.txt"
    path.write_text(content)
    (source,) = find(path, unit).sources
    return source.read()


def edges(run: ForeignRun) -> list[tuple[int, int, int]]:
    assert run.buckets is not None
    kept = (run.buckets.low_ns, run.buckets.high_ns, run.buckets.counts)
    return [*zip(*(each.tolist() for each in kept), strict=True)]


def test_each_thread_of_cyclictest_is_a_run(tmp_path: Path) -> None:
    first, second = read(tmp_path, CYCLICTEST)
    assert [first.tag, second.tag] == ["thread-0", "thread-1"]
    assert edges(first) == [(1_000, 2_000, 7)]
    assert edges(second) == [(0, 1_000, 1), (1_000, 2_000, 2), (3_000, 5_425_000, 4)]


def test_the_sum_of_all_threads_is_no_thread(tmp_path: Path) -> None:
    assert [run.count for run in read(tmp_path, WITH_SUM)] == [7, 7]


def test_each_column_of_rtla_is_a_run(tmp_path: Path) -> None:
    interrupts, threads = read(tmp_path, RTLA)
    assert [interrupts.tag, threads.tag] == ["IRQ-000", "Thr-000"]
    assert edges(interrupts) == [(0, 5_000, 2_000), (15_000, 17_000, 1)]
    assert threads.count == 3_000
    assert edges(threads)[-1] == (16_000, 272_000, 1)
    sparse = re.sub(r"^(0|15) .*\n", "", RTLA, flags=re.M)
    sparse = sparse.replace("271", "  5").replace("over:         0         1", "over:  0  0")
    (only,) = read(tmp_path, sparse)
    assert edges(only) == [(5_000, 6_000, 2_990)]


def test_round_trips_of_sockperf_are_whole(tmp_path: Path) -> None:
    (run,) = read(tmp_path, SOCKPERF)
    assert edges(run) == [(46_629, 46_629, 1), (50_715, 50_715, 1)]
    assert run.worst is not None
    assert run.worst.pre_ns.tolist() == [2_414_944_381, 2_413_901_178]
    assert (run.figures["sent"], run.figures["lost"]) == (3, 1)


def test_round_trips_of_irtt(tmp_path: Path) -> None:
    (run,) = read(tmp_path, irtt())
    assert edges(run) == [(1_000, 1_000, 1), (1_002, 1_002, 1)]
    assert (run.figures["sent"], run.figures["lost"]) == (3, 1)


def test_each_group_of_packets_of_trex_is_a_run(tmp_path: Path) -> None:
    (run,) = read(tmp_path, statistics())
    assert run.tag == "7"
    assert edges(run) == [(0, 10_000, 3), (20_000, 30_000, 5), (200_000, 235_500, 2)]
    assert (run.figures["sent"], run.figures["lost"]) == (14, 4)
    (without_counters,) = read(tmp_path, statistics(flow_stats={}))
    assert not without_counters.figures


def test_percentiles_within_the_output_of_wrk2(tmp_path: Path) -> None:
    (run,) = read(tmp_path, WRK2)
    assert run.unit == "ms"
    assert (run.count, run.buckets.at(4).high) == (4, 3_000_500)  # type: ignore[union-attr]


def test_an_indented_footer_ends_percentile_output(tmp_path: Path) -> None:
    indented = WRK2.partition("spectrum:\n")[2].partition("----")[0].replace("#[", "  #[")
    (run,) = read(tmp_path, indented, "ms")
    assert run.count == 4


def test_values_by_themselves(tmp_path: Path) -> None:
    (run,) = read(tmp_path, "3.1\n# a comment\n\n3.1\n45e1\n", "us")
    assert edges(run) == [(3_100, 3_100, 2), (450_000, 450_000, 1)]
    (commented,) = read(tmp_path, "# rtt in us\n12.5\n", "us")
    assert edges(commented) == [(12_500, 12_500, 1)]


@pytest.mark.parametrize(
    ("reader", "content", "unit", "code"),
    [
        (realtime.read_cyclictest, CYCLICTEST.partition("# Max")[0], None, "histogram-truncated"),
        (
            realtime.read_cyclictest,
            CYCLICTEST.replace("000002 ", "000001 "),
            None,
            "histogram-order",
        ),
        (realtime.read_cyclictest, CYCLICTEST.replace("\t000002", ""), None, "histogram-row"),
        (realtime.read_rtla, RTLA.partition("max:")[0], None, "histogram-truncated"),
        (realtime.read_rtla, RTLA, "ns", "unit-differs"),
        (hdr.read_percentiles, WRK2, "us", "unit-differs"),
        (values.read_sockperf, SOCKPERF.removesuffix(30 * "-" + "\n"), None, "histogram-truncated"),
        (values.read_sockperf, SOCKPERF.replace("2.413947807", "1.0"), None, "latency-range"),
        (values.read_sockperf, SOCKPERF, "us", "unit-differs"),
        (values.read_irtt, irtt().replace('"rtt": 1000', '"rtt": -1'), None, "latency-range"),
        (values.read_irtt, irtt(("true",)), None, "no-latencies"),
        (values.read_irtt, '{"version": {"irtt": 1}, "round_trips": 5}', None, "irtt"),
        (trex.read_trex, statistics(), "ns", "unit-differs"),
        (trex.read_trex, statistics({"latency": 5}), None, "trex"),
        (trex.read_trex, statistics().replace('"20"', '"-2"'), None, "histogram-row"),
        (trex.read_trex, statistics().replace('"20": 5', '"20": -5'), None, "histogram-row"),
        (trex.read_trex, statistics(latency={"global": {}}), None, "no-latencies"),
        (values.read_values, "3\nfour\n", "us", "histogram-row"),
        (values.read_values, "3\n4\n", None, "unit-missing"),
    ],
)
def test_what_is_damaged_is_refused(
    tmp_path: Path, reader: Reader, content: str, unit: str | None, code: str
) -> None:
    path = tmp_path / "result"
    path.write_text(content)
    with raises(TailscopeError, code):
        reader(path, unit)


def test_a_unit_that_cannot_be_is_refused(tmp_path: Path) -> None:
    from hdrh.histogram import HdrHistogram

    counted = HdrHistogram(1, 10**9, 3)
    counted.record_value(40_000)
    path = tmp_path / "x.hlog"
    path.write_text(f"0.000,1.000,0.040,{counted.encode().decode()}\n")
    assert hdr.read_log(path, "us")[0].count == 1
    with raises(UsageError, "unit-implausible"):
        hdr.read_log(path, "ms")


IPERF3_UDP = {
    "start": {"version": "iperf 3.12"},
    "intervals": [{"streams": [{"packets": 39, "omitted": False}]}],
    "end": {
        "sum": {"packets": 77, "lost_packets": 3, "jitter_ms": 0.054},
        "sum_received": {"packets": 77, "lost_packets": 3, "jitter_ms": 0.054},
    },
}
IPERF3_TCP = {
    "start": {"version": "iperf 3.12"},
    "intervals": [
        {"streams": [{"rtt": 101, "omitted": True}, {"rtt": 900, "omitted": True}]},
        {"streams": [{"rtt": 101, "omitted": False}, {"rtt": 350, "omitted": False}]},
        {"streams": [{"rtt": 360, "omitted": False}, {"omitted": False}]},
    ],
    "end": {"sum_sent": {"retransmits": 2}, "sum_received": {}},
}


def test_iperf3_counts_packets_of_udp(tmp_path: Path) -> None:
    (run,) = read(tmp_path, json.dumps(IPERF3_UDP, indent=1))
    assert (run.count, run.buckets) == (0, None)
    assert run.figures == {"sent": 77, "lost": 3, "loss_ratio": 3 / 77}
    assert "54.000 µs" in run.warnings[1]
    done = write_import(run, None, tmp_path / "run")
    assert (done.summary["count"], done.summary["lost"]) == (0, 3)
    assert done.summary["latency_ns_p50"] is done.summary["latency_ns_max"] is None
    level = parse_level("lost=3, loss<1e-3")
    exact, share = judge_import(level, read_run(tmp_path / "run")).terms
    assert exact.outcome is Outcome.PASS
    assert (share.as_is.found, share.as_is.beyond, share.as_is.packets) == (3 / 77, 3, 77)


def test_iperf3_has_smoothed_round_trips_of_tcp(tmp_path: Path) -> None:
    (run,) = read(tmp_path, json.dumps(IPERF3_TCP))
    assert edges(run) == [(each, each, 1) for each in (101_000, 350_000, 360_000)]
    assert run.packets is None
    assert "2 retransmissions" in run.warnings


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"error": "unable to connect"}, "iperf3"),
        ({"end": 5}, "iperf3"),
        ({"end": {}, "intervals": []}, "no-latencies"),
        ({"end": {"sum": {"packets": 3, "lost_packets": 4}}}, "packet-count"),
        ({"intervals": [{"streams": [{"rtt": -1}]}], "end": {}}, "latency-range"),
    ],
)
def test_other_results_of_iperf3_are_refused(
    tmp_path: Path, change: dict[str, object], code: str
) -> None:
    with raises(TailscopeError, code):
        read(tmp_path, json.dumps(IPERF3_UDP | change))


def test_json_of_cyclictest_has_a_run_for_each_thread(tmp_path: Path) -> None:
    threads = {
        "0": {"histogram": {"55": 1, "7": 8}, "cycles": 10, "max": 6305},
        "1": {"histogram": {"3": 2}, "cycles": 2, "max": 3},
    }
    result = {"file_version": 1, "rt_test_version:": "2.40", "thread": threads}
    one, other = read(tmp_path, json.dumps(result, indent=2))
    assert edges(one) == [(7_000, 8_000, 8), (55_000, 56_000, 1), (56_000, 6_306_000, 1)]
    assert edges(other) == [(3_000, 4_000, 2)]
    assert [run.tag for run in (one, other)] == ["thread-0", "thread-1"]
    threads["1"]["cycles"] = 1
    with raises(TailscopeError, "histogram-row"):
        read(tmp_path, json.dumps(result))


def test_a_log_with_whole_round_trips_is_not_called_half(tmp_path: Path) -> None:
    (run,) = read(tmp_path, SOCKPERF.replace("latency(usec)", "rtt(usec)"))
    assert "half" not in run.warnings[0]
    assert run.packets is not None
    assert run.packets.latency_ns.tolist() == [46_629, 50_715]
