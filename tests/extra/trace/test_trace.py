"""A run as a trace: what is drawn is what the run directory has."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from captures import pair
from errors import code_of
from measurements import has_measured, quick
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

from tailscope.extra.trace import perfetto

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STALLS = ("--dut-option", "stall-period=5ms", "--dut-option", "stall-duration=200us")
STAGES = ("queue", "dut", "instrument", "unexplained", "service")
SLICES = (
    "CREATE TABLE slice (id INTEGER PRIMARY KEY, track, parent, name, ts, dur, seq, rank, flows,"
    " track_name)"
)
COUNTERS = "CREATE TABLE counter (track_name, ts, value)"


def opened(path: Path) -> sqlite3.Connection:
    """The trace in tables like those of Perfetto's trace processor; slices must be nested."""
    trace, names, parents = Trace(), {}, {}
    trace.ParseFromString(path.read_bytes())
    found = sqlite3.connect(":memory:")
    found.execute(SLICES)
    found.execute(COUNTERS)
    open_slices: dict[int, list[int]] = {}
    numbers = count()
    for packet in trace.packet:
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            names[track.uuid], parents[track.uuid] = track.name, track.parent_uuid
        if not packet.HasField("track_event"):
            continue
        event, at = packet.track_event, packet.timestamp
        name = f"{names.get(parents[event.track_uuid], '')}/{names[event.track_uuid]}"
        stack = open_slices.setdefault(event.track_uuid, [])
        if event.type == TrackEvent.TYPE_COUNTER:
            found.execute("INSERT INTO counter VALUES (?, ?, ?)", (name, at, event.counter_value))
        elif event.type == TrackEvent.TYPE_SLICE_BEGIN:
            known = {note.name: note.int_value for note in event.debug_annotations}
            row = (event.track_uuid, stack[-1] if stack else None, event.name, at, None)
            flows = ",".join(map(str, event.flow_ids))
            more = (known.get("seq"), known.get("rank"), flows, name)
            number = next(numbers)
            found.execute(f"INSERT INTO slice VALUES ({number}{', ?' * 9})", (*row, *more))
            stack.append(number)
        else:
            number = stack.pop()
            found.execute("UPDATE slice SET dur = ? - ts WHERE id = ?", (at, number))
    assert not any(open_slices.values()), "each slice has an end"
    assert not found.execute("SELECT * FROM slice WHERE dur < 0").fetchall()
    return found


@pytest.fixture(scope="module")
def run(tailscope: Any, dataplane: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert dataplane.exists()
    if os.geteuid() != 0:
        pytest.skip("kernel events are root's")
    out = tmp_path_factory.mktemp("runs") / "run"
    options = (*STALLS, *quick("--noise", "events"))
    done = tailscope("run", "--dut", "delay", *options, "--out", out)
    assert has_measured(done), done.stderr
    return out


@dataclass
class Drawn:
    """A trace, and what was said of it."""

    said: str
    trace: sqlite3.Connection


@pytest.fixture(scope="module")
def drawn(run: Path, tailscope: Any, tmp_path_factory: pytest.TempPathFactory) -> Drawn:
    path = tmp_path_factory.mktemp("trace") / "its own.pftrace"
    done = tailscope("report", "--format", "perfetto", run, "--out", path)
    assert done.returncode == 0, done.stderr
    return Drawn(done.stdout, opened(path))


def test_slices_are_what_explains_the_tail(run: Path, tailscope: Any, drawn: Drawn) -> None:
    trace = drawn.trace
    told = tailscope("explain", run, "--quantile", "0.5", "--json", "-").stdout
    explained = json.loads(told)["tail"]
    assert 0 < explained["packets"] <= pq.read_table(run / "worst.parquet").num_rows
    tail = (
        "SELECT child.name, sum(child.dur) FROM slice packet"
        " JOIN slice child ON child.parent = packet.id"
        " WHERE packet.dur > ? GROUP BY child.name"
    )
    parts = dict(trace.execute(tail, (explained["threshold_ns"],)).fetchall())
    assert parts == {name: ns for name, ns in explained["parts_ns"].items() if ns}
    packets = "SELECT count(*), sum(dur) FROM slice WHERE name LIKE 'packet %' AND dur > ?"
    assert trace.execute(packets, (explained["threshold_ns"],)).fetchone() == (
        explained["packets"],
        explained["latency_ns"],
    )


def test_all_of_the_noise_is_drawn(run: Path, drawn: Drawn) -> None:
    trace, noise = drawn.trace, pq.read_table(run / "noise.parquet").to_pylist()
    all_drawn = "SELECT count(*), sum(dur) FROM slice WHERE track_name LIKE '%/CPU %'"
    assert trace.execute(all_drawn).fetchone() == (
        len(noise),
        sum(row["duration_ns"] for row in noise),
    )
    injected = "SELECT ts, dur FROM slice WHERE track_name LIKE 'device/%injected%' ORDER BY ts"
    assert trace.execute(injected).fetchall() == [
        (row["start_ns"], row["duration_ns"]) for row in noise if row["kind"] == "injected"
    ]
    assert f"{len(noise):,} of {len(noise):,} interruptions of CPUs" in drawn.said


def test_packets_in_the_device_are_counted(run: Path, drawn: Drawn) -> None:
    counted = "SELECT value FROM counter WHERE track_name = 'packets/in the device' ORDER BY ts"
    inside = [value for (value,) in drawn.trace.execute(counted)]
    matched = json.loads((run / "summary.json").read_text())["count"]
    assert len(inside) == 2 * matched and inside[-1] == 0 and min(inside) >= 0 and max(inside) > 1
    latencies = pq.read_table(run / "latency.parquet")["latency_ns"].to_pylist()
    latency = "SELECT value FROM counter WHERE track_name = 'packets/latency'"
    assert [value for (value,) in drawn.trace.execute(latency)] == latencies


def test_arrows_lead_from_a_packet_to_what_it_met(drawn: Drawn) -> None:
    trace = drawn.trace
    met = (
        "SELECT count(*) FROM slice packet JOIN slice met ON met.track_name LIKE '%kept from work'"
        " AND met.ts < packet.ts + packet.dur AND met.ts + met.dur > packet.ts"
        " WHERE packet.rank = 1"
    )
    led = (
        "SELECT count(*) FROM slice WHERE track_name LIKE '%kept from work'"
        " AND ',' || flows || ',' LIKE '%,1,%'"
    )
    assert trace.execute(led).fetchone() == trace.execute(met).fetchone() != (0,)


def covered_ns(spans: list[tuple[int, int]]) -> int:
    """How much time intervals take together, which may overlap."""
    covered = end_ns = 0
    for first, last in sorted(spans):
        covered += max(0, last - max(first, end_ns))
        end_ns = max(end_ns, last)
    return covered


@pytest.mark.parametrize("most", [10, 600])
def test_of_a_long_run_it_has_what_is_around_the_worst(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(perfetto, "_MOST", most)
    monkeypatch.setattr(perfetto, "_AROUND_NS", 1000)
    path = tmp_path / "trace.pftrace"
    with path.open("wb") as file:
        traced = perfetto.write_trace(run, file)
    trace = opened(path)
    worst = pq.read_table(run / "worst.parquet").to_pylist()
    noise = pq.read_table(run / "noise.parquet").to_pylist()
    packets = pq.read_table(run / "latency.parquet").to_pylist()
    spans = [(row["pre_ns"] - 1000, row["post_ns"] + 1000) for row in worst]
    duration_s = json.loads((run / "summary.json").read_text())["pre_duration_s"]
    most_ns = duration_s * 1e9 * most / max(len(packets), len(noise))
    fitting = [count for count in range(len(spans) + 1) if covered_ns(spans[:count]) <= most_ns]
    assert traced.around == max(1, *fitting)
    spans = spans[: traced.around]

    def is_near(start: int, end: int) -> bool:
        return any(start < last and end > first for first, last in spans)

    near = [row for row in noise if is_near(row["start_ns"], row["start_ns"] + row["duration_ns"])]
    drawn = "SELECT count(*) FROM slice WHERE track_name LIKE '%/CPU %'"
    assert trace.execute(drawn).fetchone() == (len(near),) == (traced.intervals,)
    there = [is_near(row["pre_ns"], row["pre_ns"] + row["latency_ns"]) for row in packets]
    assert 0 < sum(there) == traced.packets
    assert traced.all_intervals == len(noise)
    assert traced.worst == len(worst)


def test_cpus_that_were_watched_are_drawn(tailscope: Any, tmp_path: Path) -> None:
    watched = tmp_path / "watched"
    done = tailscope("noise", "--cpus", "0", "--duration", "300ms", "--out", watched)
    assert done.returncode == 0, done.stderr
    path = tmp_path / "trace.pftrace"
    assert tailscope("report", "--format", "perfetto", watched, "--out", path).returncode == 0
    noise = pq.read_table(watched / "noise.parquet").num_rows
    drawn = "SELECT count(*) FROM slice WHERE track_name LIKE 'watched CPUs/CPU 0%'"
    assert opened(path).execute(drawn).fetchone() == (noise,)


def test_of_captures_it_says_what_they_have(tailscope: Any, tmp_path: Path) -> None:
    captured, path = tmp_path / "run", tmp_path / "trace.pftrace"
    pre, post = pair(tmp_path, [2_000 + at for at in range(50)])
    done = tailscope("analyze", pre, post, "--out", captured, "--worst", "20")
    assert done.returncode == 0, done.stderr
    done = tailscope("report", "--format", "perfetto", captured, "--out", path)
    assert done.stdout.splitlines() == [str(path), "50 of 50 packets", "20 worst packets"]
    drawn = "SELECT count(*), min(dur), max(dur) FROM slice"
    assert opened(path).execute(drawn).fetchone() == (20, 2_030, 2_049)


def test_of_cpus_that_were_watched_long_it_has_the_longest(
    tailscope: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched, path = tmp_path / "watched", tmp_path / "trace.pftrace"
    done = tailscope("noise", "--cpus", "0", "--duration", "300ms", "--out", watched)
    assert done.returncode == 0, done.stderr
    lasted = sorted(pq.read_table(watched / "noise.parquet")["duration_ns"].to_pylist())
    most = len(lasted) // 2
    monkeypatch.setattr(perfetto, "_MOST", most)
    with path.open("wb") as file:
        traced = perfetto.write_trace(watched, file)
    longest = [each for each in lasted if each >= lasted[-most]]
    assert (traced.intervals, traced.all_intervals) == (len(longest), len(lasted))
    drawn = opened(path).execute("SELECT dur FROM slice ORDER BY dur").fetchall()
    assert [dur for (dur,) in drawn] == longest


def test_a_run_that_is_none_leaves_no_file(tailscope: Any, tmp_path: Path) -> None:
    path = tmp_path / "trace.pftrace"
    done = tailscope("report", "--format", "perfetto", tmp_path, "--out", path)
    assert done.returncode == 1 and "error: " in done.stderr
    assert not path.exists()


def test_the_trace_processor_reads_it(run: Path, tailscope: Any, tmp_path: Path) -> None:
    """Perfetto's own, where it is installed: no registry has it."""
    program = shutil.which("trace_processor_shell") or shutil.which("trace_processor")
    if program is None:
        pytest.skip("no trace_processor_shell on PATH")
    path, query = tmp_path / "trace.pftrace", tmp_path / "query.sql"
    tailscope("report", "--format", "perfetto", run, "--out", path)
    query.write_text("SELECT name, sum(dur) AS ns FROM slice WHERE depth = 1 GROUP BY name")
    done = subprocess.run(
        [program, "-q", str(query), str(path)], capture_output=True, text=True, check=True
    )
    parts = dict(trace_rows(done.stdout))
    columns = pq.read_table(run / "worst.parquet").to_pydict()
    expected = {name: sum(columns[f"{name}_ns"]) for name in STAGES}
    assert parts == {name: ns for name, ns in expected.items() if ns}


def trace_rows(text: str) -> list[tuple[str, int]]:
    """Rows of its CSV, without the header."""
    rows = [line.split(",") for line in text.strip().splitlines()[1:]]
    return [(name.strip('"'), int(ns)) for name, ns in rows]


def test_its_format_is_suggested_and_takes_a_single_run(
    tailscope: Callable[..., Any], run: Path
) -> None:
    misspelt = tailscope("report", run, "--format", "perfeto")
    assert misspelt.returncode == 1
    assert misspelt.stderr.endswith("hint: did you mean perfetto?\n")
    for more in ((run,), ("--pages",), ("--figures", "figures")):
        refused = tailscope("report", run, *more, "--format", "perfetto")
        assert (refused.returncode, code_of(refused)) == (1, "format-alone")
