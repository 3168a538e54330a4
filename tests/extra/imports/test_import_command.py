"""``tailscope runs import``: results of others in, runs out that say no more than those do."""

from __future__ import annotations

import base64
import json
import shlex
import shutil
import struct
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import captures
import numpy as np
import pytest
from errors import code_of
from hdrh.histogram import HdrHistogram
from wording import assert_wording

from tailscope.extra.imports.find import find
from tailscope.registry import additions
from tailscope.store.reader import open_packets, read_run
from tailscope.store.records.summary import QUANTILES
from tailscope.store.run import SIDES

if TYPE_CHECKING:
    from pathlib import Path

Run = Callable[..., Any]

PACKETS = 3_000
UNDECIDED = 3
NO_UNIT = "does not say the unit of its values"


def latencies(seed: int, packets: int = PACKETS) -> list[int]:
    chance = np.random.default_rng(seed)
    found = 3_000 + chance.exponential(400, packets).astype(int)
    late = chance.random(packets) < 0.01
    return np.where(late, found * 7, found).tolist()


@pytest.fixture(scope="module")
def analysed(tailscope: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pair of which some packets are lost, its run, and the authors' tables of it."""
    folder = tmp_path_factory.mktemp("analysed")
    pre, post = captures.pair(folder, latencies(1), gap=100_000)
    packets = captures.packets(post.read_bytes())
    post.write_bytes(captures.pcap(packets[:500] + packets[503:]))
    done = tailscope("analyze", pre, post, "--csv", folder / "csv", "--out", folder / "run")
    assert done.returncode == 0, done.stderr
    return folder


def imported(tailscope: Run, path: Path, out: Path, *more: object) -> Any:
    done = tailscope("runs", "import", path, "--out", out, *more)
    assert done.returncode == 0, done.stderr
    return read_run(out)


SUMMARISED = ("hist", "percentiles", "stats", "transferrate", "worst")
"""The tables that the authors publish."""


@pytest.fixture(scope="module")
def tables(tailscope: Run, analysed: Path) -> Path:
    """The published tables of the pair, imported as they would be from a folder of many."""
    (analysed / "published").mkdir()
    for path in (analysed / "csv").iterdir():
        if path.suffixes[-2].lstrip(".") in SUMMARISED:
            shutil.copy(path, analysed / "published")
    done = tailscope(
        "runs", "import", analysed / "published", "--out", analysed / "imported", "-D", "rate=10k"
    )
    assert done.returncode == 0, done.stderr
    return analysed / "imported" / "x-pre-1.pcap"


@pytest.fixture(scope="module")
def whole(tailscope: Run, analysed: Path) -> Path:
    """All tables of the pair, imported."""
    done = tailscope("runs", "import", analysed / "csv", "--out", analysed / "whole")
    assert done.returncode == 0, done.stderr
    return analysed / "whole" / "x-pre-1.pcap"


def test_every_packet_gives_what_captures_give(analysed: Path, whole: Path) -> None:
    of_packets, of_tables = read_run(analysed / "run"), read_run(whole)
    for name, value in of_tables.summary.items():
        if value is not None and name not in ("clock", "ci_level"):
            quantile, _, end = name.partition("_ci_")
            if end:
                is_supported = of_packets.summary[f"{quantile}_supported"]
                assert not is_supported or abs(value - of_packets.summary[name]) <= 1, name
            else:
                assert value == of_packets.summary[name], name
    for side in SIDES:
        assert [*map(list, of_tables.gaps[side])] == [*map(list, of_packets.gaps[side])]
        assert [*of_tables.rate[side].counts] == [*of_packets.rate[side].counts]
        first = [of_run.rate[side].start_ns[0] for of_run in (of_tables, of_packets)]
        assert abs(int(first[0]) - int(first[1])) <= 1
    with (
        open_packets(whole, of_tables.info) as found,
        open_packets(analysed / "run", of_packets.info) as expected,
    ):
        for one, other in zip(
            found.columns("pre_ns", "latency_ns"),
            expected.columns("pre_ns", "latency_ns"),
            strict=True,
        ):
            assert one.tolist() == other.tolist()


@pytest.mark.skipif("postgresql" not in additions(), reason="there is no such command")
def test_every_packet_is_no_run_of_a_database(tailscope: Run, whole: Path) -> None:
    done = tailscope("runs", "export", whole, "--to", "postgresql://localhost/x", "--dry-run")
    assert (done.returncode, code_of(done)) == (1, "not-imported"), done.stderr


def test_counters_beside_every_packet_explain_as_with_captures(
    tailscope: Run, analysed: Path, whole: Path, tmp_path: Path
) -> None:
    begin_us = int(read_run(whole).rate["pre"].start_ns[0]) // 1_000
    rows = [f"{begin_us + (at - 1) * 10_000};{at};{at // 9}" for at in range(33)]
    counters = tmp_path / "irq-x.csv"
    counters.write_text("\n".join(["timestamp_us;LOC_CPU0;TLB_CPU1", *rows]))
    found = []
    for run in (whole, analysed / "run"):
        done = tailscope("explain", run, "--interrupts", counters, "--json", "-")
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout)["tail"]["associated"])
    assert found[0] == found[1]
    assert found[0]["tested"] + len(found[0]["regular"]) > 0
    (analysed / "csv" / counters.name).write_text(counters.read_text())
    done = tailscope("runs", "import", analysed / "csv", "--out", tmp_path / "again")
    (analysed / "csv" / counters.name).unlink()
    assert f"--interrupts {analysed / 'csv' / counters.name}" in " ".join(done.stderr.split())
    assert "not imported" not in done.stderr


@pytest.mark.parametrize(
    ("kind", "content", "code"),
    [
        ("trim_ms0.latency-ts", "latency,prets,postts\n5,10,15\n", "tables-disagree"),
        ("trim_ms0.latency-ts", "latency,prets,postts\n5,10,16\n", "sum-of-parts"),
        ("trim_ms0.packetratepre", "ts,count\n0,2999\n", "tables-disagree"),
        ("trim_ms0.packetratepost", "ts,count\n0,5\n0,5\n", "csv-order"),
        ("bucket_size100.trim_ms0.jitterpost", "bucket,count\n0,2997\n", "tables-disagree"),
    ],
)
def test_tables_of_other_runs_are_refused(
    tailscope: Run, analysed: Path, tmp_path: Path, kind: str, content: str, code: str
) -> None:
    shutil.copytree(analysed / "csv", tmp_path / "in")
    (path,) = (tmp_path / "in").glob(f"*.{kind}.csv")
    path.write_text(content)
    done = tailscope("runs", "import", tmp_path / "in", "--out", tmp_path / "out")
    assert done.returncode == 1
    assert code_of(done) == code


def test_packets_a_second_count_where_stats_are_missing(tmp_path: Path) -> None:
    for side, packets in (("pre", 12), ("post", 10)):
        (tmp_path / f"a.trim_ms0.packetrate{side}.csv").write_text(f"ts,count\n7,{packets}\n")
    (tmp_path / "a.bucket_size100.trim_ms0.hist.csv").write_text("latency_bucket,count\n100,9\n")
    ((run,),) = [source.read() for source in find(tmp_path, None).sources]
    assert (run.figures["sent"], run.figures["lost"]) == (12, 2)
    assert run.rate["pre"].start_ns.tolist() == [7]


POS = "2020-10-07_23-27-11_423961_unknown_run"


def test_loop_variables_of_pos_are_labels(tailscope: Run, tmp_path: Path) -> None:
    node = tmp_path / "results" / "loadgen"
    node.mkdir(parents=True)
    for number, variables in (
        (3, {"pkt_sz": 64, "pkt_rate": 400_000, "fan speed": [1, 2]}),
        (10, {}),
    ):
        (node / f"{POS}{number:03d}.loop").write_text(json.dumps(variables))
        (node / f"histogram_run{number:02d}.csv").write_text("3200,60\n3206,30\n")
    (node / f"{POS}003.stdout").write_text("done\n")
    out = tmp_path / "runs"
    done = tailscope("runs", "import", tmp_path / "results", "--out", out, "-D", "size=128")
    assert done.returncode == 0, done.stderr
    assert ".loop" not in done.stderr
    third, tenth = (read_run(out / "loadgen" / f"histogram_run{number}") for number in ("03", "10"))
    assert third.info.about.rate_pps == 400_000
    assert third.info.about.size_bytes == 128  # what was said wins
    assert third.info.about.labels == {"fan-speed": "[1, 2]"}
    assert tenth.info.about.rate_pps is None


@pytest.mark.parametrize("content", ["{", "[1]", "\xff"])
def test_damaged_loop_variables_are_refused(tailscope: Run, tmp_path: Path, content: str) -> None:
    (tmp_path / f"{POS}0.loop").write_bytes(content.encode("latin-1"))
    (tmp_path / "histogram_run0.csv").write_text("3200,60\n")
    done = tailscope("runs", "import", tmp_path / "histogram_run0.csv", "--out", tmp_path / "run")
    assert done.returncode == 1
    assert code_of(done) in ("loop-variables", "not-text")
    assert not (tmp_path / "run").exists()


def test_a_result_tree_of_pos_reads_back(
    tailscope: Run, analysed: Path, tables: Path, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    done = tailscope("runs", "pos", analysed / "run", tables, "--out", tree)
    assert done.returncode == 0, done.stderr
    loops = sorted((tree / "loadgen").glob("*.loop"))
    assert [json.loads(path.read_text()) for path in loops] == [
        {"repeat": 0},
        {"repeat": 1, "pkt_rate": 10_000},
    ]
    assert [path.name[-7:] for path in loops] == ["00.loop", "01.loop"]
    done = tailscope("runs", "import", tree, "--out", tmp_path / "back")
    assert done.returncode == 0, done.stderr
    for number, source in enumerate((analysed / "run", tables)):
        back = read_run(tmp_path / "back" / "loadgen" / f"latencies-pre-run00{number}.pcap")
        first = read_run(source)
        for name in ("count", "sent", "lost", "latency_ns_p50", "latency_ns_p99", "latency_ns_max"):
            assert back.summary[name] == first.summary[name], name
        assert back.worst.latency_ns.tolist() == first.worst.latency_ns.tolist()
        assert back.info.about.repeat == number


def test_a_result_tree_replaces_nothing(tailscope: Run, tables: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("mine")
    done = tailscope("runs", "pos", tables, "--out", tmp_path)
    assert (done.returncode, code_of(done)) == (1, "not-empty")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("name", ["/../../escaped", "a/b", "\0"])
def test_a_name_in_a_file_leads_nowhere_else(tailscope: Run, tmp_path: Path, name: str) -> None:
    threads = {each: {"histogram": {"3": 2}, "cycles": 2, "max": 3} for each in ("0", name)}
    result = {"file_version": 1, "rt_test_version:": "2.40", "thread": threads}
    (tmp_path / "x.json").write_text(json.dumps(result, indent=2))
    done = tailscope("runs", "import", tmp_path / "x.json", "--out", tmp_path / "a" / "out")
    assert (done.returncode, code_of(done)) == (1, "run-name")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["out"]
    assert len([*(tmp_path / "a" / "out").rglob("run.json")]) == 1


def test_loop_variables_of_like_names_are_all_kept(tailscope: Run, tmp_path: Path) -> None:
    (tmp_path / f"{POS}0.loop").write_text(json.dumps({"a b": 1, "a,b": 2}))
    (tmp_path / "histogram_run0.csv").write_text("3200,60\n")
    run = tmp_path / "run"
    assert (
        tailscope("runs", "import", tmp_path / "histogram_run0.csv", "--out", run).returncode == 0
    )
    assert read_run(run).info.about.labels == {"a-b": "1", "a-b-2": "2"}


def test_tables_hold_what_was_written(analysed: Path, tables: Path) -> None:
    of_packets, of_tables = read_run(analysed / "run").summary, read_run(tables).summary
    exact = ("count", "latency_ns_min", "latency_ns_max", "pre_packets", "post_packets")
    for name in (*exact, *(f"latency_ns_{q}" for q in QUANTILES)):
        assert of_tables[name] == of_packets[name], name
    for q in QUANTILES:
        assert of_tables[f"latency_ns_{q}_supported"] == of_packets[f"latency_ns_{q}_supported"]
        assert of_tables[f"latency_ns_{q}_beyond"] == of_packets[f"latency_ns_{q}_beyond"]
    assert of_tables["sent"] == PACKETS
    assert of_tables["lost"] == of_packets["lost"] == 3
    assert of_tables["reordered"] is of_tables["ambiguous"] is of_tables["window_ns"] is None


def test_intervals_reach_over_whole_buckets(analysed: Path, tables: Path) -> None:
    of_packets, of_tables = read_run(analysed / "run").summary, read_run(tables).summary
    for q in ("p50", "p90", "p99"):
        low, high = (of_tables[f"latency_ns_{q}_ci_{end}"] for end in ("low", "high"))
        assert low % 100 == high % 100 == 0
        assert high - low >= 100
        assert low <= of_packets[f"latency_ns_{q}_ci_low"]
        assert high >= of_packets[f"latency_ns_{q}_ci_high"]
    assert abs(of_tables["latency_ns_mean"] - of_packets["latency_ns_mean"]) <= 50


def test_the_worst_are_the_same(tailscope: Run, analysed: Path, tables: Path) -> None:
    of_packets, of_tables = read_run(analysed / "run").worst, read_run(tables).worst
    for name in ("latency_ns", "pre_ns", "post_ns"):
        assert getattr(of_packets, name).tolist() == getattr(of_tables, name).tolist()


@pytest.mark.skipif("tail" not in additions(), reason="there is no such model")
def test_the_tail_of_an_import_is_that_of_its_table(
    tailscope: Run, analysed: Path, tables: Path
) -> None:
    (worst,) = (analysed / "csv").glob("*.worst.csv")
    count = read_run(tables).summary["count"]
    by_run = tailscope("model", "tail", tables, "--threshold", "p95")
    by_table = tailscope("model", "tail", "--worst", worst, "--count", count, "--threshold", "p95")
    assert by_run.returncode == by_table.returncode
    assert by_run.stdout == by_table.stdout


def test_a_log_of_ours_is_read_back(tailscope: Run, analysed: Path, tmp_path: Path) -> None:
    run = read_run(analysed / "run")
    found = imported(tailscope, analysed / "run" / "histogram.hlog", tmp_path / "log")
    values = np.sort(np.repeat(run.latency.bucket_ns, run.latency.counts.astype(int)))
    assert found.summary["count"] == len(values)
    for q in QUANTILES:
        exact, got = run.summary[f"latency_ns_{q}"], found.summary[f"latency_ns_{q}"]
        assert exact <= got <= exact * 1.001 + 2
    assert found.info.plan.kind == "hdr-log"
    assert found.summary["lost"] is found.summary["sent"] is None


def first_version(counted: HdrHistogram, word: str) -> str:
    """A histogram in HdrHistogram's V1 encoding, by its specification."""
    counts = [counted.get_count_at_index(at) for at in range(counted.counts_len)]
    width = struct.calcsize(word)
    payload = struct.pack(f">{len(counts)}{word}", *counts)
    head = struct.pack(">IIIIqqd", 0x1C849301 | width << 4, len(payload), 0, 3, 1, 10_000_000, 1.0)
    content = zlib.compress(head + payload)
    return base64.b64encode(
        struct.pack(">II", 0x1C849302 | width << 4, len(content)) + content
    ).decode()


def recorded(values: list[int]) -> HdrHistogram:
    found = HdrHistogram(1, 10_000_000, 3)
    for value in values:
        found.record_value(value)
    return found


@pytest.mark.parametrize("word", ["h", "i", "q"])
def test_older_and_newer_intervals_are_summed(tailscope: Run, tmp_path: Path, word: str) -> None:
    first, second = latencies(2), latencies(3)
    lines = [
        "#[Histogram log format version 1.2]",
        '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"',
        f"0.100,1.000,2.769,{first_version(recorded(first), word)}",
        f"1.100,1.000,2.769,{recorded(second).encode().decode()}",
    ]
    (tmp_path / "two.hlog").write_text("\n".join(lines))
    found = imported(tailscope, tmp_path / "two.hlog", tmp_path / "run", "--unit", "us")
    values = np.sort(first + second)
    assert found.summary["count"] == len(values)
    median = int(values[len(values) // 2 - 1]) * 1_000
    assert median <= found.summary["latency_ns_p50"] < median + 4_000
    assert any("2 intervals" in text for text in found.warnings)


def test_tags_are_runs(tailscope: Run, tmp_path: Path) -> None:
    one, other = (recorded(latencies(seed)).encode().decode() for seed in (4, 5))
    log = tmp_path / "tagged.hlog"
    log.write_text(f"Tag=a,0.1,1.0,2.7,{one}\nTag=b,0.1,1.0,2.7,{other}\nTag=b,1.1,1.0,2.7,{one}\n")
    done = tailscope("runs", "import", log, "--unit", "ns", "--out", tmp_path / "runs")
    assert done.returncode == 0, done.stderr
    runs = [read_run(tmp_path / "runs" / f"tagged-{tag}") for tag in "ab"]
    assert [run.summary["count"] for run in runs] == [PACKETS, 2 * PACKETS]
    assert [run.info.plan.tag for run in runs] == ["a", "b"]


def test_percentile_output(tailscope: Run, tmp_path: Path) -> None:
    values = latencies(6)
    with (tmp_path / "a.hgrm").open("wb") as file:
        recorded(values).output_percentile_distribution(file, 1000.0, 5)
    found = imported(tailscope, tmp_path / "a.hgrm", tmp_path / "run", "--unit", "us").summary
    ranked = np.sort(values)
    assert found["count"] == len(values)
    for q, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        exact = int(ranked[int(np.ceil(share * len(values))) - 1])
        assert found[f"latency_ns_{q}_ci_low"] <= exact <= found[f"latency_ns_{q}"] + 2
    assert found["latency_ns_min"] <= ranked[0]
    assert found["latency_ns_max"] >= ranked[-1]


def test_a_histogram_of_moongen(tailscope: Run, tmp_path: Path) -> None:
    (tmp_path / "h.csv").write_text("3200,60\n3206.4,30\n3212.8,9\n4000,1\n")
    found = imported(tailscope, tmp_path / "h.csv", tmp_path / "run")
    assert found.summary["count"] == 100
    assert found.summary["latency_ns_p50"] == 3_200
    assert found.summary["latency_ns_p50_ci_low"] < 3_200 < found.summary["latency_ns_p50_ci_high"]
    assert found.info.plan.bucket_ns == 7
    assert any("6.4 ns" in warning for warning in found.warnings)


@pytest.mark.parametrize(
    ("command", "what"),
    [
        pytest.param(
            ("model", "tail"),
            "the worst packets and their times",
            marks=pytest.mark.skipif("tail" not in additions(), reason="there is no such model"),
        ),
        pytest.param(
            ("model", "aliasing"),
            "latency and order of every packet",
            marks=pytest.mark.skipif(
                "patterns" not in additions(), reason="there is no such model"
            ),
        ),
        (("plan", "--quantile", "p99", "--rate", "10k", "--from"), "latency and order of every"),
    ],
)
def test_what_is_not_held_is_refused_by_name(
    tailscope: Run, tmp_path: Path, command: tuple[str, ...], what: str
) -> None:
    (tmp_path / "h.csv").write_text("3200,60\n3206.4,30\n")
    imported(tailscope, tmp_path / "h.csv", tmp_path / "run")
    done = tailscope(*command, tmp_path / "run")
    assert done.returncode == 1
    assert what in done.stderr
    assert code_of(done) == "not-imported" and "MoonGen" in done.stderr


def test_verdicts_say_what_the_data_carry(tailscope: Run, tables: Path) -> None:
    level = "p90<=1ms, p50<=1us, max<=1us, lost=0, reordered=0"
    done = tailscope("verify", tables, "--slo", level, "--json", "-")
    assert done.returncode == 2, done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    found = {term["term"]: term for term in run["terms"]}
    assert {name: term["verdict"] for name, term in found.items()} == {
        "p90<=1ms": "pass",
        "p50<=1us": "inconclusive",
        "max<=1us": "fail",
        "lost=0": "fail",
        "reordered=0": "inconclusive",
    }
    assert_wording("import/reordered-unknown", found["reordered=0"]["reasons"][0])
    assert found["p90<=1ms"]["share_beyond_ci_high"] < 0.1
    assert found["p50<=1us"]["share_beyond_ci_high"] is None


def test_without_order_nothing_passes_by_a_share(tailscope: Run, tmp_path: Path) -> None:
    (tmp_path / "h.csv").write_text("3200,6000\n3206.4,3000\n")
    imported(tailscope, tmp_path / "h.csv", tmp_path / "run")
    done = tailscope("verify", tmp_path / "run", "--slo", "p90<=1ms", "-v")
    assert done.returncode == UNDECIDED
    assert "it would pass if a burst is worth at most" in " ".join(done.stdout.split())
    assert "number of lost packets" in " ".join(done.stdout.split())


def test_the_tail_is_compared_where_the_worst_are_known(
    tailscope: Run, tmp_path: Path, tables: Path
) -> None:
    pre, post = captures.pair(tmp_path, [3 * each for each in latencies(7)], gap=100_000)
    tailscope("analyze", pre, post, "--csv", tmp_path / "csv")
    other = tmp_path / "imported" / "x-pre-1.pcap"
    tailscope("runs", "import", tmp_path / "csv", "--out", tmp_path / "imported")
    done = tailscope("compare", tables, other, "--json", "-")
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["comparisons"]
    verdicts = {each["figure"]: each for each in found["figures"]}
    assert verdicts["p90"]["verdict"] == "higher"
    assert verdicts["p90"]["difference_ci_low"] > 0
    assert verdicts["lost"]["verdict"] == verdicts["rate"]["verdict"] == "no estimate"
    _run, reason = verdicts["rate"]["reason"].split(": ", 1)
    assert_wording("import/no-rate", reason)


def test_a_report_draws_what_there_is(tailscope: Run, tmp_path: Path, tables: Path) -> None:
    done = tailscope("report", tables, "--figures", tmp_path, "--format", "svg")
    assert done.returncode == 0, done.stderr
    assert {path.stem for path in tmp_path.glob("*.svg")} == {
        *("percentiles", "worst", "cdf", "ccdf", "histogram")
    }


def test_a_page_is_drawn_again(tailscope: Run, tmp_path: Path, tables: Path, whole: Path) -> None:
    for at, run in enumerate((tables, whole)):
        done = tailscope("report", run, "--out", tmp_path / f"{at}.html")
        assert done.returncode == 0, done.stderr
        assert "Latency" in (tmp_path / f"{at}.html").read_text()


def test_losses_that_the_rate_denies_are_not_reported(
    tailscope: Run, analysed: Path, tmp_path: Path
) -> None:
    done = tailscope("runs", "import", analysed / "csv", "--out", tmp_path, "-D", "rate=1k")
    assert done.returncode == 0, done.stderr
    run = read_run(tmp_path / "x-pre-1.pcap")
    assert run.summary["lost"] is run.summary["sent"] is None
    assert "3,000 packets" in run.warnings[0] and " 10.0" in run.warnings[0]


HIST, WORST = "a.bucket_size100.trim_ms0.hist.csv", "a.trim_ms0.num_worst5.worst.csv"
STATS, PERCENTILES = "a.trim_ms0.stats.csv", "a.trim_ms0.percentiles.csv"
COUNTED = "pre_received,post_received,pre_received_trimmed,post_received_trimmed\n"


@pytest.mark.parametrize(
    ("files", "code", "got"),
    [
        ({"a.csv": "x,y\n1,2\n"}, "nothing-to-import", "in: "),
        ({"a.csv": "1,2\n3\n"}, "histogram-row", "line 2: expected latency,count, got '3'"),
        ({"a.csv": "1,2\n1,3\n"}, "latency-twice", "line 2: "),
        ({"a.csv": "1,0\n"}, "no-latencies", "in/a"),
        ({"a.hlog": "#[x]\n"}, "unit-missing", NO_UNIT),
        ({"a.hlog": "#[tailscope: latency in ns]\n"}, "no-latencies", "in/a"),
        (
            {"a.hlog": "#[tailscope: latency in ns]\n0.1,1.0,2.0\n"},
            "log-line",
            "line 2: expected [Tag=NAME,]",
        ),
        (
            {"a.hlog": "#[tailscope: latency in ns]\n0.1,1.0,2.0,HISTAAAAAAAA\n"},
            "histogram-encoding",
            "got cookie 0x",
        ),
        (
            {"a.hgrm": "       Value     Percentile TotalCount 1/(1-Percentile)\n"},
            "unit-missing",
            NO_UNIT,
        ),
        ({HIST: "latency_bucket,count\n150,3\n"}, "bucket-edge", "got 150"),
        ({HIST: "latency_bucket,count\nx,3\n"}, "not-a-number", "line 2: "),
        ({HIST: "bucket,count\n100,3\n"}, "csv", "latency_bucket, count"),
        ({WORST: "latency,prets,postts\n5,1,6\n"}, "no-statistics-table", "got worst"),
        (
            {STATS: COUNTED + "1,1,1,1\n", WORST: "latency,prets,postts\n5,1,7\n"},
            "sum-of-parts",
            "row 1: postts: expected prets + latency, 6, got 7",
        ),
        (
            {STATS: COUNTED + "1,1,1,1\n", WORST: "latency,prets,postts\n5,1,6\n5,2,7\n"},
            "packet-count",
            "expected at most 1 packets, as stats says, got 2",
        ),
        ({STATS: COUNTED + "1,1,2,1\n"}, "trimmed-count", STATS),
        ({STATS: COUNTED + "0,0,0,0\n"}, "no-latencies", "in/a"),
        (
            {HIST: "latency_bucket,count\n100,3\n", WORST: "latency,prets,postts\n500,1,501\n"},
            "tables-disagree",
            "expected 100 to 200 ns, got 500",
        ),
        (
            {
                HIST: "latency_bucket,count\n100,3\n",
                PERCENTILES: "percentile,value,x\n0.5,900,2\n",
            },
            "tables-disagree",
            "p50: expected 100 to 200 ns, got 900",
        ),
    ],
)
def test_bad_files_are_refused(
    tailscope: Run, tmp_path: Path, files: dict[str, str], code: str, got: str
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_text(content)
    done = tailscope("runs", "import", folder, "--out", tmp_path / "out")
    assert (done.returncode, code_of(done)) == (1, code)
    assert got in done.stderr
    assert not list((tmp_path / "out").rglob("run.json"))


@pytest.mark.skipif("recommend" not in additions(), reason="nothing is recommended")
def test_a_log_that_does_not_count_losses_proves_none(tailscope: Run, tmp_path: Path) -> None:
    values = recorded(latencies(8)).encode().decode()
    (tmp_path / "a.hlog").write_text(f"0.1,1.0,2.7,{values}\n")
    said = ("-D", "dut=l2fwd", "-D", "platform=bare", "-D", "rate=10k", "-D", "cpu_model=EPYC")
    imported(tailscope, tmp_path / "a.hlog", tmp_path / "run", "--unit", "ns", *said)
    done = tailscope("recommend", tmp_path / "run")
    assert done.returncode == UNDECIDED
    (doubt,) = (line for line in done.stdout.splitlines() if "what was imported" in line)
    assert_wording("import/losses-unknown", doubt.strip())
    assert "no loss" not in done.stdout


@pytest.mark.parametrize("name", ["run/histogram.hlog", "csv"])
def test_a_unit_that_the_source_denies_is_refused(
    tailscope: Run, analysed: Path, tmp_path: Path, name: str
) -> None:
    done = tailscope("runs", "import", analysed / name, "--unit", "us", "--out", tmp_path / "run")
    assert done.returncode == 1
    assert code_of(done) == "unit-differs"
    assert "got us" in done.stderr and "expected ns" in done.stderr


def test_a_cut_percentile_output_is_refused(tailscope: Run, tmp_path: Path) -> None:
    with (tmp_path / "a.hgrm").open("wb") as file:
        recorded(latencies(6)).output_percentile_distribution(file, 1000.0, 5)
    lines = (tmp_path / "a.hgrm").read_text().splitlines()
    (tmp_path / "a.hgrm").write_text("\n".join(lines[:20]))
    done = tailscope(
        "runs", "import", tmp_path / "a.hgrm", "--unit", "us", "--out", tmp_path / "run"
    )
    assert done.returncode == 1
    assert code_of(done) == "histogram-truncated" and "Total count: " in done.stderr
    assert "hint: " in done.stderr


def test_a_bad_source_does_not_stop_the_others(tailscope: Run, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "good.csv").write_text("3200,60\n")
    (folder / "bad.csv").write_text("3200,60\nx\n")
    (folder / "notes.txt").write_text("notes")
    done = tailscope("runs", "import", folder, "--out", tmp_path / "out", "--json", "-")
    assert done.returncode == 1
    assert str(folder / "notes.txt") in done.stderr
    assert ["error" in run for run in json.loads(done.stdout)] == [True, False]
    assert read_run(tmp_path / "out" / "good").summary["count"] == 60


def test_the_command_that_repeats_an_import_does(tailscope: Run, tables: Path) -> None:
    shown = json.loads(tailscope("runs", "show", tables, "--json", "-").stdout)
    words = shlex.split(shown["repeat"])
    assert words[:3] == ["tailscope", "runs", "import"]
    expected = ["--unit", "ns", "-D", "rate=10000", "--out", "repeated"]
    assert words[4:] == expected


@pytest.mark.skipif("recommend" not in additions(), reason="nothing is recommended")
@pytest.mark.long
def test_table_6_of_the_paper(data: Path, tailscope: Run, tmp_path: Path) -> None:
    """Of containers2024, scenario 1: five of its eight values are those of runs at 1 Mpps."""
    rates = data / "containers2024-rates"
    optimised = (
        "rcu_nocbs=1 rcu_nocb_poll irqaffinity=0 idle=poll tsc=reliable mce=ignore_ce audit=0"
    )
    runs = {
        "kernel/rt-optimized/rate1000000-repeat0": ("mirred", "lxc", "rt", 100_190),
        "container/vanilla/non-optimized/rate1000000-repeat1": ("l2fwd", "lxc", "vanilla", 659_252),
        "container/rt/optimized/rate1000000-repeat0": ("l2fwd", "lxc", "rt", 108_857),
        "bare-metal/vanilla-non-optimized/rate1000000-repeat2": (
            *("l2fwd", "bare", "vanilla", 1_077_437),
        ),
        "bare-metal/rt-optimized/rate1000000-repeat1": ("l2fwd", "bare", "rt", 101_807),
    }
    everything = [
        (f"{path[:-1]}{repeat}", facts)
        for path, facts in runs.items()
        for repeat in range(3)
        if facts[0] == "l2fwd"
    ]
    for number, (path, (dut, platform, kernel, _)) in enumerate([*runs.items(), *everything]):
        stem = rates / path
        boot = optimised if kernel == "rt" else "quiet"
        said = {"dut": dut, "platform": platform, "kernel": kernel, "boot": boot}
        said |= {"rate": "1M", "cpu_model": "AMD EPYC 7551P", "cards": "X710"}
        words = [word for name, text in said.items() for word in ("-D", f"{name}={text}")]
        stats = stem.with_name(f"{stem.name}.trim_ms0.stats.csv.zst")
        done = tailscope("runs", "import", stats, "--out", tmp_path / str(number), *words)
        assert done.returncode == 0, done.stderr
    single = [tmp_path / str(at) for at in range(len(runs))]
    done = tailscope("recommend", *single, "--json", "-")
    # One repetition of each tells no order.
    assert done.returncode == UNDECIDED
    (table,) = json.loads(done.stdout)["tables"]
    cells = {
        (cell["device"].split()[0], cell["technology"], cell["kernel"]): cell["max_ns"]
        for cell in table["tails"]
        if cell["runs"]
    }
    assert cells == {setting[:3]: setting[3] for setting in runs.values()}
    repeated = [tmp_path / str(len(runs) + at) for at in range(len(everything))]
    done = tailscope("recommend", *repeated, "--json", "-")
    (table,) = json.loads(done.stdout)["tables"]
    ranks = {
        (row["technology"], row["optimised"]): row["rank"]
        for row in table["ranks"]
        if row["runs"] and row["device"].startswith("l2fwd")
    }
    # Of three repetitions, what was optimised lies below; nothing else is apart.
    assert ranks == {
        ("bare", True): 1,
        ("lxc", True): 1,
        ("bare", False): 3,
        ("lxc", False): 3,
    }
