"""``tailscope model overload``: two runs in, the rate at which the function overloads out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import captures
import numpy as np
import pytest
from documentation import undocumented
from errors import code_of, unwrapped

from tailscope.cli.model.overload import _EXPERIENCE as LOWER_BOUND
from tailscope.cli.status import UNDECIDED
from tailscope.engine.analysis import Clock
from tailscope.exceptions import EvidenceError
from tailscope.experiment.search.overload import _HINT_NO_NOISE as NO_NOISE
from tailscope.experiment.search.overload import _HINT_NO_QUEUE as NO_QUEUE
from tailscope.experiment.search.overload import _NOISE_INCLUDED as NOISE_INCLUDED
from tailscope.experiment.search.overload import _check_rates
from tailscope.models.overload.queued import FEWEST_QUEUES
from tailscope.noise.table import columns, side_noise
from tailscope.noise.taken import taken_by
from tailscope.store.directory import write_noise
from tailscope.store.records.plan import MeasurementPlan
from tailscope.store.records.watched import WatchedRecord, WatchedStalls

if TYPE_CHECKING:
    from pathlib import Path

Run = Callable[..., Any]

PACKETS = 2_000
FORWARDER_NS, FUNCTION_NS = 3_100, 14_500
WORK_NS = FUNCTION_NS - FORWARDER_NS
BURSTS_APART_NS = 5_000_000
STALL_NS, STALLS_HZ = 50_000, 100


def overloaded(gap_ns: int, limit: int) -> list[int | None]:
    """Latencies of a function that works on packets one by one, and drops what finds it full."""
    left_ns: list[int] = []
    latencies: list[int | None] = []
    for sent_ns in range(0, PACKETS * gap_ns, gap_ns):
        if sum(each > sent_ns for each in left_ns[-limit:]) >= limit:
            latencies.append(None)
            continue
        left_ns.append(max(sent_ns, left_ns[-1] if left_ns else 0) + WORK_NS)
        latencies.append(left_ns[-1] - sent_ns + FORWARDER_NS)
    return latencies


@pytest.fixture(scope="module")
def runs(tailscope: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of captures: a forwarder, functions of several kinds, and one without a packet."""
    folder = tmp_path_factory.mktemp("runs")
    noise = np.random.default_rng(1).integers(-50, 51, PACKETS)
    latencies = {
        "forwarder": (FORWARDER_NS + noise, 100_000),
        "function": (FUNCTION_NS + noise, 100_000),
        "faster": (FORWARDER_NS + noise[::-1], 50_000),
        "constant": (np.full(PACKETS, FUNCTION_NS), 100_000),
        "few": (FUNCTION_NS + noise[:1], 100_000),
    }
    # 40 bursts of 50 packets: one packet after the other, or all of them at once.
    place = np.tile(np.arange(50), 40)
    apart = np.where(place == 49, BURSTS_APART_NS, 100).tolist()
    latencies["bursts"] = (FORWARDER_NS + (place + 1) * WORK_NS - place * 100, apart)
    latencies["delayed bursts"] = (np.full(2_000, FUNCTION_NS), apart)
    latencies["far bursts"] = (np.full(2_000, FUNCTION_NS), 100_000)
    latencies["slow"] = (FUNCTION_NS + noise, 400_000)
    latencies["slow moderated"] = (FUNCTION_NS + 40_000 + noise, 400_000)
    made = {name: (values.tolist(), gap) for name, (values, gap) in latencies.items()}
    for limit in (50, PACKETS):
        made[f"overloaded {limit}"] = (overloaded(10_000, limit), 10_000)
    line = np.where(np.random.default_rng(2).random(PACKETS) < 0.1, None, 10 * FUNCTION_NS)
    made["lossy line"] = (line.tolist(), 10_000)
    for name, (values, gap) in made.items():
        pair = captures.pair(folder / f"{name} pair", values, gap=gap)
        done = tailscope("analyze", *pair, "--out", folder / name)
        assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a folder as `tailscope noise --out` does: 2 s of CPU 3, one of them with stalls."""
    folder = tmp_path_factory.mktemp("watched")
    start = np.arange(STALLS_HZ) * (1_000_000_000 // STALLS_HZ)
    arrays = {"start_tsc": start, "duration_tsc": np.full(STALLS_HZ, STALL_NS)}
    for name, values in arrays.items():
        np.save(folder / f"stall_{name}.npy", values.astype(np.uint64))
    np.save(folder / "stall_lcore.npy", np.full(STALLS_HZ, 3, np.uint64))
    side = side_noise("watch", (3,), Clock(1_000_000_000, 0, 0), folder, None)
    samples = {"unix_ns": [1], "interrupt": ["LOC"], "cpu": [3], "count": [1]}
    path = folder / "noise"
    record = WatchedRecord(
        events=None,
        events_missing_because="not requested",
        interrupts={},
        counter_samples=1,
        steal_ns={},
        cpus=(3,),
        duration_s=2.0,
        stall_ns=1_000,
        stalls=WatchedStalls(
            count=STALLS_HZ, stall_ns_total=0, stall_ns_max=0, unrecorded=0, share=0.0
        ),
        causes=(),
        cpu_causes={},
        cost=None,
        warnings=(),
        partial=(),
    )
    write_noise(path, record, columns([side]), samples)
    return path


def figures(tailscope: Run, *options: object) -> dict[str, Any]:
    done = tailscope("model", "overload", *options, "--json", "-")
    record: dict[str, Any] = json.loads(done.stdout)
    is_bounded = record["rate_max_pps_ci_high"] is not None
    assert done.returncode == (0 if is_bounded else UNDECIDED), done.stderr
    return record


def test_a_rate_follows_from_two_runs(tailscope: Run, runs: Path) -> None:
    record = figures(tailscope, runs / "forwarder", runs / "function")
    assert record["transfer_ns"] == pytest.approx(FORWARDER_NS, abs=10)
    assert record["e2e_ns"] == pytest.approx(FUNCTION_NS, abs=10)
    assert record["cpu_ns"] == record["e2e_ns"] - record["transfer_ns"]
    assert record["rate_max_pps"] == 1e9 / record["cpu_ns"]
    for name in ("transfer_ns", "e2e_ns", "cpu_ns"):
        assert record[f"{name}_ci_low"] < record[name] < record[f"{name}_ci_high"]
    assert record["rate_max_pps_ci_low"] < record["rate_max_pps"]
    assert record["is_upper_bound"] and record["noise_ns_per_s"] is None
    assert record["interruptions"] == [] and record["noise_source"] is None
    assert NO_NOISE in record["warnings"]


def test_without_queues_the_rate_has_no_interval(tailscope: Run, runs: Path) -> None:
    """Nothing tells such captures from those of a device that holds packets side by side."""
    arguments = (runs / "forwarder", runs / "function")
    record = figures(tailscope, *arguments)
    assert record["rate_max_pps_ci_high"] is None and record["queues"] is None
    assert (record["queued_cpu_ns"], record["queued_packets"]) == (None, 0)
    assert NO_QUEUE in record["warnings"]
    # One packet at a time: its work is the difference, or as much as the whole latency.
    assert record["rate_alone_pps"] == record["rate_max_pps"]
    low, high = record["rate_alone_pps_ci_low"], record["rate_alone_pps_ci_high"]
    assert low == pytest.approx(1e9 / FUNCTION_NS, rel=0.01) and low < 1e9 / FUNCTION_NS
    assert high == pytest.approx(1e9 / WORK_NS, rel=0.01) and high > record["rate_alone_pps"]
    text = tailscope("model", "overload", *arguments).stdout
    assert "R_max, one at" in text and "if so" in text


@pytest.mark.parametrize(
    ("other", "code"),
    [("slow", None), ("slow moderated", "median-follows-rate"), ("function", "second-rate-alike")],
)
def test_a_second_rate_shows_whether_the_median_follows_it(
    tailscope: Run, runs: Path, other: str, code: str | None
) -> None:
    arguments = (runs / "forwarder", runs / "function", runs / "bursts")
    done = tailscope("model", "overload", *arguments, "--other-rate", runs / other)
    assert done.returncode == (0 if code is None else UNDECIDED), done.stderr
    if code is not None:
        assert code_of(done) == code and not done.stdout


def test_devices_of_the_kernel_need_a_second_rate() -> None:
    """Moderated interrupts gave 160,000 and 15,900 packets/s where a million were carried."""
    plan = MeasurementPlan(dut="router", stall_ns=1_000)
    function = SimpleNamespace(label="f", info=SimpleNamespace(plan=plan), summary={})
    with pytest.raises(EvidenceError) as error:
        _check_rates(function, None)
    assert error.value.code == "second-rate"


def test_packets_that_queued_give_a_second_estimate(tailscope: Run, runs: Path) -> None:
    arguments = (runs / "forwarder", runs / "function", runs / "bursts")
    record = figures(tailscope, *arguments)
    assert record["queued_cpu_ns"] == pytest.approx(WORK_NS)
    assert (record["queues"], record["queued_packets"]) == ("bursts", 40 * 49)
    assert record["rate_max_pps"] == pytest.approx(1e9 / WORK_NS)
    low, high = record["rate_max_pps_ci_low"], record["rate_max_pps_ci_high"]
    assert low <= record["rate_max_pps"] <= high < 1.05 * low
    assert not record["is_upper_bound"]
    assert NOISE_INCLUDED in record["warnings"]
    text = tailscope("model", "overload", *arguments).stdout
    assert "by medians" in text and "by queues" in text
    assert re.search(r"^queues +bursts, 1,960 ", text, re.M)


def test_no_rate_of_a_delay_line(tailscope: Run, runs: Path) -> None:
    """It holds packets side by side: they leave as they came."""
    arguments = (runs / "forwarder", runs / "function", runs / "delayed bursts")
    done = tailscope("model", "overload", *arguments)
    assert done.returncode == 3 and not done.stdout
    assert code_of(done) == "queues-faster"
    assert " 11,4" in done.stderr and " 100 ns" in done.stderr
    assert "tailscope search" in done.stderr


@pytest.mark.parametrize("limit", [50, PACKETS])
def test_an_overloaded_function_shows_its_rate(tailscope: Run, runs: Path, limit: int) -> None:
    """Its queue is full, or grows: at what rate packets leave is R_max."""
    arguments = (runs / "forwarder", runs / f"overloaded {limit}")
    record = figures(tailscope, *arguments)
    assert record["rate_max_pps"] == pytest.approx(1e9 / WORK_NS, rel=1e-3)
    assert record["rate_max_pps_ci_low"] < 1e9 / WORK_NS < record["rate_max_pps_ci_high"]
    assert record["cpu_ns"] is None and record["queues"] is None
    assert record["tail_limit"] is None and record["tail_rate_pps"] is None
    assert not record["is_upper_bound"]
    assert f"overloaded {limit} is overloaded" in record["warnings"][0]
    assert tailscope("model", "overload", *arguments).returncode == 0


def test_a_line_that_loses_packets_is_not_overloaded(tailscope: Run, runs: Path) -> None:
    done = tailscope("model", "overload", runs / "forwarder", runs / "lossy line")
    assert done.returncode == UNDECIDED and code_of(done) == "queues-faster"


def test_bursts_that_did_not_queue_are_refused(tailscope: Run, runs: Path) -> None:
    arguments = (runs / "forwarder", runs / "function", runs / "far bursts")
    done = tailscope("model", "overload", *arguments)
    assert done.returncode == 3 and not done.stdout
    assert "far bursts: " in done.stderr and f" {FEWEST_QUEUES} " in done.stderr
    assert "hint: " in done.stderr


@pytest.mark.usefixtures("dataplane")
def test_a_measured_device_must_show_that_it_queues(
    tailscope: Run, measure: Run, runs: Path
) -> None:
    """At 100 packets/s a stall of the machine cannot make packets wait for each other."""
    delayed = measure(
        "--dut", "delay", "--dut-option", "law=fixed:20us", "--rate", "100", "--duration", "1s"
    )["out"]
    done = tailscope("model", "overload", runs / "forwarder", delayed)
    assert done.returncode == 3 and not done.stdout
    assert f"{delayed.name}: " in done.stderr and f" {FEWEST_QUEUES} " in done.stderr
    assert "--burst 128" in done.stderr


def test_noise_is_taken_off(tailscope: Run, runs: Path, watched: Path) -> None:
    record = figures(tailscope, runs / "forwarder", runs / "function", "--noise", watched)
    expected = STALLS_HZ * STALL_NS / 2
    assert record["noise_ns_per_s"] == pytest.approx(expected)
    assert record["noise_ns_per_s_ci_low"] < expected < record["noise_ns_per_s_ci_high"]
    assert record["rate_max_pps"] == pytest.approx((1e9 - expected) / record["cpu_ns"])
    assert not record["is_upper_bound"]
    assert record["noise_source"] == "recorded"
    [row] = record["interruptions"]
    assert row["cause"] == "stall" and row["rate_hz"] == pytest.approx(STALLS_HZ / 2)
    assert row["duration_ns"] == STALL_NS
    assert row["ns_per_s"] == pytest.approx(row["rate_hz"] * row["duration_ns"])


def test_noise_is_given_as_table_5_has_it(tailscope: Run, runs: Path) -> None:
    pairs = "166.7:10.9us,83.3:13.6us"
    record = figures(tailscope, runs / "forwarder", runs / "function", "--noise", pairs)
    assert record["noise_ns_per_s"] == pytest.approx(2_949_910)
    assert record["noise_source"] == "given" and not record["is_upper_bound"]
    rows = [(row["cause"], row["duration_ns"]) for row in record["interruptions"]]
    assert rows == [("166.7 Hz", 10_900), ("83.3 Hz", 13_600)]


def test_noise_is_read_from_what_aliasing_found(tailscope: Run, runs: Path, tmp_path: Path) -> None:
    clock = {"rate_hz": 250.0, "duration_ns": 8_000, "teeth": [0]}
    ends = {"duration_ns_ci_low": 7_000, "duration_ns_ci_high": 9_000}
    ends |= {"rate_hz_ci_low": 249.0, "rate_hz_ci_high": 251.0}
    file = tmp_path / "aliasing.json"
    file.write_text(json.dumps({"agreement": 0.9, "sources": [clock, {**clock, **ends}]}))
    record = figures(tailscope, runs / "forwarder", runs / "function", "--noise", file)
    assert record["noise_ns_per_s"] == pytest.approx(2 * 250 * 8_000)
    assert record["noise_ns_per_s_ci_low"] == pytest.approx(250 * 8_000 + 249 * 7_000)
    assert record["noise_source"] == "aliasing"


def test_a_search_that_found_no_clock_is_not_no_noise(
    tailscope: Run, runs: Path, tmp_path: Path
) -> None:
    file = tmp_path / "aliasing.json"
    file.write_text(json.dumps({"sources": [], "reason": "cannot be told"}))
    arguments = ("model", "overload", runs / "forwarder", runs / "function", "--noise", file)
    done = tailscope(*arguments)
    assert done.returncode == 1
    assert "[noise-unknown]" in done.stderr and "cannot be told" in done.stderr


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("often:1us", "--noise: got 'often:1us', "),
        ("-1:1us", "--noise: got '-1:1us'"),
        ("0:1us", "--noise: got '0:1us'"),
        ("inf:1us", "--noise: got 'inf:1us'"),
        ("250:", '""'),
        ("250:0us", "--noise 250:0us: "),
        ("250:5ms", "[noise-too-high]"),
    ],
)
def test_what_are_no_interrupts_is_refused(
    tailscope: Run, runs: Path, given: str, expected: str
) -> None:
    arguments = ("model", "overload", runs / "forwarder", runs / "function")
    done = tailscope(*arguments, f"--noise={given}")
    assert done.returncode == 1 and not done.stdout
    assert expected in done.stderr


def test_noise_is_read_over_time(watched: Path) -> None:
    taken = taken_by(watched)
    assert taken is not None and taken.cpus == ("3",) and taken.duration_ns == 2_000_000_000
    assert taken.ns_per_s.tolist() == pytest.approx([STALLS_HZ * STALL_NS] * 10 + [0] * 10)


def test_every_figure_is_documented(tailscope: Run, runs: Path, watched: Path) -> None:
    record = figures(tailscope, runs / "forwarder", runs / "function", "--noise", watched)
    names = {*record, *record["interruptions"][0]}
    assert not undocumented(sorted(names), "overload.md")


def test_the_table_says_what_it_is(tailscope: Run, runs: Path, watched: Path) -> None:
    arguments = ("model", "overload", runs / "forwarder", runs / "function")
    for options, known in ((("--noise", watched), True), ((), False)):
        done = tailscope(*arguments, *options)
        assert done.returncode == UNDECIDED, done.stderr
        for name in ("2t_transfer", "t_e2e", "t_CPU", "d_Σ", "R_max"):
            assert name in done.stdout
        assert "R_max, one at" in done.stdout
        assert (LOWER_BOUND in unwrapped(done.stdout)) is known


def test_different_rates_are_said(tailscope: Run, runs: Path) -> None:
    done = tailscope("model", "overload", runs / "faster", runs / "function")
    assert done.returncode == UNDECIDED, done.stderr
    for name, rate in (("forwarder", "20,000"), ("function", "10,0")):
        assert re.search(rf"{name}\D+ {rate}", done.stdout)


def test_constant_latencies_have_a_rate(tailscope: Run, runs: Path) -> None:
    record = figures(tailscope, runs / "forwarder", runs / "constant")
    assert record["e2e_ns"] == FUNCTION_NS
    # The captures are of 1 ns, and so are both ends of a latency.
    assert (record["e2e_ns_ci_low"], record["e2e_ns_ci_high"]) == (FUNCTION_NS - 1, FUNCTION_NS + 1)


def test_the_authors_captures_predict_their_rate(tailscope: Run, data: Path, scratch: Path) -> None:
    """The exact medians are 3137 and 17387 ns; Table IV has 69.7 from rounded ones, with noise."""
    for name in ("dpdk-l2fwd/hw", "snort-filter/hw"):
        folder = data / "noms2020" / name
        (pre,), (post,) = folder.glob("*-pre-*"), folder.glob("*-post-*")
        out = scratch / name.partition("/")[0]
        done = tailscope("analyze", pre, post, "--trim", "1s", "--out", out)
        assert done.returncode == 0, done.stderr
    record = figures(tailscope, scratch / "dpdk-l2fwd", scratch / "snort-filter")
    assert (record["transfer_ns"], record["e2e_ns"], record["cpu_ns"]) == (3_137, 17_387, 14_250)
    assert (1e9 - 2_949_900) / record["cpu_ns"] == pytest.approx(69_968, abs=1)
    assert record["rate_max_pps_ci_low"] <= record["rate_max_pps"]
    table_5 = figures(
        tailscope,
        *(scratch / "dpdk-l2fwd", scratch / "snort-filter"),
        *("--noise", "166.7:10.9us,83.3:13.6us"),
    )
    assert table_5["rate_max_pps"] == pytest.approx(69_968, abs=1)


def broken(path: Path, name: str, content: str) -> Path:
    path.mkdir()
    (path / name).write_text(content)
    return path


@pytest.mark.parametrize(
    ("forwarder", "function", "status", "named"),
    [
        ("function", "forwarder", 3, "[function-not-slower]"),
        ("forwarder", "forwarder", 3, "[function-not-slower]"),
        ("forwarder", "few", 3, "latency_ns_p50: got 1 "),
        ("forwarder", "nothing", 1, "run.json"),
        ("forwarder", "forwarder pair", 1, "run.json"),
    ],
)
def test_what_says_nothing_is_refused(
    tailscope: Run, runs: Path, forwarder: str, function: str, status: int, named: str
) -> None:
    done = tailscope("model", "overload", runs / forwarder, runs / function)
    assert done.returncode == status and not done.stdout
    assert named in done.stderr and "hint: " in done.stderr


def test_what_is_no_noise_is_refused(
    tailscope: Run, runs: Path, watched: Path, tmp_path: Path
) -> None:
    record = json.loads((watched / "noise.json").read_text())
    folders = {
        runs / "function": f"--noise: {runs / 'function'}: ",
        tmp_path / "nothing": "nothing: ",
        broken(tmp_path / "list", "noise.json", "[]"): "noise.json: ",
        broken(tmp_path / "half", "noise.json", '{"cpus": [1]'): "noise.json: ",
        broken(tmp_path / "nan", "noise.json", '{"duration_s": NaN}'): "got NaN",
        broken(tmp_path / "alone", "noise.json", json.dumps(record)): "[interrupts-missing]",
        broken(
            tmp_path / "zero", "noise.json", json.dumps({**record, "cpus": []})
        ): "[interrupts-empty]",
    }
    for folder, expected in folders.items():
        done = tailscope(
            "model", "overload", runs / "forwarder", runs / "function", "--noise", folder
        )
        assert done.returncode == 1 and expected in done.stderr, done.stderr


def test_a_run_with_changed_figures_is_refused(tailscope: Run, runs: Path, tmp_path: Path) -> None:
    pair = captures.pair(tmp_path / "pair", [5_000] * 100)
    assert tailscope("analyze", *pair, "--out", tmp_path / "run").returncode == 0
    summary = tmp_path / "run" / "summary.json"
    summary.write_text(summary.read_text().replace("5000", "5001"))
    done = tailscope("model", "overload", runs / "forwarder", tmp_path / "run")
    assert done.returncode == 1 and "summary.json: sha256" in done.stderr


def test_a_tail_holds_up_to_a_lower_rate_than_the_device_carries(
    tailscope: Run, runs: Path
) -> None:
    arguments = (runs / "forwarder", runs / "function", runs / "bursts")
    record = figures(tailscope, *arguments, "--slo", "p90<100us")
    assert record["tail_limit"] == "p90<100us"
    low, rate, high = (record[f"tail_rate_pps{end}"] for end in ("_ci_low", "", "_ci_high"))
    assert 0.95 * record["rate_max_pps"] < low <= rate <= high <= record["rate_max_pps_ci_high"]
    text = tailscope("model", "overload", *arguments, "--slo", "p90<100us").stdout
    assert re.search(rf"^p90<100us up to +{round(rate):,} packets/s ", text, re.M)
    assert record["tail_arrivals"] == "even" and "packets that come evenly" in unwrapped(text)
    few = figures(tailscope, *arguments)
    assert few["tail_limit"].startswith("p99.9<=") and few["tail_rate_pps"] is None
    assert any("beyond the quantile" in warning for warning in few["warnings"])


def test_a_level_without_a_quantile_of_the_latency_is_refused(tailscope: Run, runs: Path) -> None:
    arguments = (runs / "forwarder", runs / "function", runs / "bursts")
    done = tailscope("model", "overload", *arguments, "--slo", "lost=0")
    assert done.returncode == 1 and code_of(done) == "slo-no-latency"
