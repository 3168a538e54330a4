"""``tailscope verify``: a run in, a verdict and an exit status out."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import captures
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from documentation import undocumented
from errors import code_of
from runs import write_mark
from synthetic import write_run
from wording import assert_wording

from tailscope.verdict.slo import PROFILES

if TYPE_CHECKING:
    from pathlib import Path

Run = Callable[..., Any]
Measure = Callable[..., dict[str, Any]]

PACKETS = 4_000
HOSTILE = "a:b,c%0A<x>&\"'\x1b[31m\u202e"


@pytest.fixture(scope="module")
def runs(tailscope: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of captures: fast, slow (a packet in ten takes 5 ms), and one of a single packet."""
    folder = tmp_path_factory.mktemp("runs")
    latencies = {
        "fast": [1_000 + at % 7 for at in range(PACKETS)],
        "slow": [5_000_000 if at % 10 == 3 else 1_000 for at in range(PACKETS)],
        "single": [1_000],
    }
    for name, each in latencies.items():
        pair = captures.pair(folder / f"{name} pair", each)
        done = tailscope("analyze", *pair, "--out", folder / name)
        assert done.returncode == 0, done.stderr
    return folder


def changed(run: Path, to: Path, latency: pa.Table | None = None, **figures: Any) -> Path:
    """A copy of a run with other figures, whose checksums are right."""
    shutil.copytree(run, to)
    summary = json.loads((to / "summary.json").read_text()) | figures
    (to / "summary.json").write_text(json.dumps(summary))
    if latency is not None:
        pq.write_table(latency, to / "latency.parquet")
    info = json.loads((to / "run.json").read_text())
    for name in ("summary.json", "latency.parquet"):
        content = (to / name).read_bytes()
        info["files"][name] = {
            "size_bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
    return write_mark(to, info)


def judged(tailscope: Run, run: Path, slo: str, expected: int) -> dict[str, Any]:
    done = tailscope("verify", run, "--slo", slo, "--json", "-")
    assert done.returncode == expected, (done.stdout, done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("run", "slo", "status", "said"),
    [
        ("fast", "p99<1ms, loss<1%, max<2ms, reordered=0", 0, "pass"),
        ("slow", "p99<1ms, loss<1%", 2, "fail"),
        ("slow", "p80<1ms", 0, "pass"),
        ("slow", "max<2ms", 2, "fail"),
        ("slow", "p99.99<1s, p99<1ms", 2, "fail"),
        ("fast", "urllc-itu", 3, "inconclusive"),
        ("single", "p99<1ms", 3, "inconclusive"),
    ],
)
def test_the_exit_status_is_the_verdict(
    tailscope: Run, runs: Path, run: str, slo: str, status: int, said: str
) -> None:
    done = tailscope("verify", runs / run, "--slo", slo)
    assert done.returncode == status, done.stderr
    [answer, *_] = " ".join(done.stdout.split()).split(". ")
    assert answer.startswith((f"{runs / run}: {said}, ", f"{runs / run}: {said} "))
    assert done.stderr == ""
    assert "ITU-R M.2410-0" not in done.stdout
    at_length = tailscope("verify", runs / run, "--slo", slo, "--verbose").stdout
    assert ("ITU-R M.2410-0" in at_length) == (slo == "urllc-itu")


def test_json_says_why(tailscope: Run, runs: Path) -> None:
    found = judged(tailscope, runs / "slow", "p99<1ms, p99.99<10ms, max<6ms", 2)
    assert (found["slo"], found["verdict"]) == ("p99<1ms, p99.99<10ms, max<6ms", "fail")
    (run,) = found["runs"]
    assert run["rate_pps"] == pytest.approx(10_000, rel=0.01)
    quantile, deep, largest = run["terms"]
    assert (quantile["beyond"], quantile["packets"], quantile["found"]) == (400, PACKETS, 5e6)
    assert quantile["share_beyond_ci_low"] > quantile["allowed_share"] == 0.01
    assert (deep["verdict"], deep["beyond"]) == ("inconclusive", 0)
    assert deep["more_s"] == pytest.approx(deep["more_packets"] / run["rate_pps"])
    assert_wording("verify/more-packets", "; ".join(deep["reasons"]))
    assert (largest["kind"], largest["verdict"], largest["found"]) == ("observed", "pass", 5e6)
    assert largest["share_beyond"] is None
    for names in (found, run, *run["terms"]):
        assert not undocumented(names, "verdict.md")


def test_several_runs_the_worst_decides(tailscope: Run, runs: Path) -> None:
    both = tailscope("verify", runs / "fast", runs / "slow", "--slo", "p99<1ms")
    assert both.returncode == 2
    assert "2 runs: fail" in both.stdout
    rows = {line.split()[-1]: line for line in both.stdout.splitlines() if "p99" in line}
    assert {"pass", "fail"} == {*rows} and "slow" in rows["fail"]


def campaign(folder: Path, cells: list[dict[str, Any]], **experiment: object) -> Path:
    content = {"format": 1, "cells": cells, "experiment": experiment}
    (folder / "campaign.json").write_text(json.dumps(content))
    return folder


def test_a_campaign_is_judged_cell_by_cell(tailscope: Run, runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "fast", tmp_path / "dut=l2fwd" / "run-1")
    done = {"name": "dut=l2fwd", "state": "done", "reason": None, "runs": ["dut=l2fwd/run-1"]}
    campaign(tmp_path, [done])
    found = judged(tailscope, tmp_path, "p99<1ms", 0)
    assert [each["run"] for each in found["runs"]] == ["dut=l2fwd/run-1"]
    failed = {"name": "dut=snort", "state": "failed", "reason": "no \x1b[31msnort", "runs": []}
    campaign(tmp_path, [done, failed])
    found = judged(tailscope, tmp_path, "p99<1ms", 3)
    assert found["runs"][1]["verdict"] == "inconclusive"
    assert found["runs"][1]["reason"].endswith("failed: no \x1b[31msnort")
    text = tailscope("verify", tmp_path, "--slo", "p99<1ms").stdout
    assert "failed: no \\x1b[31msnort" in text


def test_a_campaign_knows_the_level_that_it_was_made_for(
    tailscope: Run, runs: Path, tmp_path: Path
) -> None:
    shutil.copytree(runs / "fast", tmp_path / "run")
    cells = [{"name": "x", "state": "done", "reason": None, "runs": ["run"]}]
    campaign(tmp_path, cells, service_levels=["p99<1ms", "loss<0.5"])
    done = tailscope("verify", tmp_path, "--json", "-")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["slo"] == "p99<1ms, loss<0.5"
    for paths, levels in (((runs / "fast",), "none"), ((tmp_path, runs / "fast"), "several")):
        done = tailscope("verify", *paths)
        assert (done.returncode, code_of(done)) == (1, "slo-missing")
        assert f" {levels} in service_levels" in done.stderr


def test_all_levels_that_are_given_are_judged(tailscope: Run, runs: Path) -> None:
    """In any order: the last one does not replace the others."""
    met, missed = "p50<1ms", "p99<1ms"
    for levels in ((met, missed), (missed, met)):
        words = [word for level in levels for word in ("--slo", level)]
        done = tailscope("verify", runs / "slow", *words, "--json", "-")
        assert done.returncode == 2, done.stderr
        assert json.loads(done.stdout)["slo"] == ", ".join(levels)
    done = tailscope("verify", runs / "slow", "--slo", "p99<10s", "--slo", missed, "--json", "-")
    assert done.returncode == 2
    assert len(json.loads(done.stdout)["runs"][0]["terms"]) == 2


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"cells": [1]}', '{"cells": [{"name": "x", "runs": ["../x"]}]}']
)
def test_a_campaign_that_is_none_is_refused(tailscope: Run, tmp_path: Path, content: str) -> None:
    (tmp_path / "campaign.json").write_text(content)
    done = tailscope("verify", tmp_path, "--slo", "p99<1ms")
    assert done.returncode == 1
    assert "campaign.json: " in done.stderr


def test_junit_is_well_formed_whatever_runs_are_called(
    tailscope: Run, runs: Path, tmp_path: Path
) -> None:
    shutil.copytree(runs / "slow", tmp_path / HOSTILE)
    file = tmp_path / "found.xml"
    slo = "p99<1ms, p50<1ms, p99.99<10ms"
    done = tailscope("verify", tmp_path / HOSTILE, "--slo", slo, "--junit", file)
    assert done.returncode == 2
    (suite,) = ET.parse(file).getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "1")
    assert "\\x1b[31m\\u202e" in (suite.get("name") or "")
    assert [case.get("name") for case in suite] == ["p99<1ms", "p50<1ms", "p99.99<10ms"]
    assert [case[0].tag for case in suite] == ["failure", "system-out", "error"]
    assert_wording("verify/failure", suite[0][0].get("message") or "")


def test_annotations_for_github_are_escaped(tailscope: Run, runs: Path, tmp_path: Path) -> None:
    hostile = "a:b,c%0A\n::error::x\r"
    shutil.copytree(runs / "slow", tmp_path / hostile)
    slo = "p99<1ms, p50<1ms, p99.99<10ms"
    done = tailscope("verify", tmp_path / hostile, "--slo", slo, "--format", "github")
    lines = done.stdout.split("\n")
    assert [line.partition(" ")[0] for line in lines] == ["::error", "::notice", "::warning", ""]
    for line in lines[:-1]:
        title = line.partition(" ")[2].partition("::")[0]
        assert title.startswith("title=")
        assert "a%3Ab%2Cc%250A\\n%3A%3Aerror%3A%3Ax\\r p" in title
        assert "\r" not in line


def with_column(run: Path, name: str, values: pa.Array) -> pa.Table:
    """The packets of a run with another column."""
    table = pq.read_table(io.BytesIO((run / "latency.parquet").read_bytes()))
    return table.set_column(table.schema.get_field_index(name), name, values)


def test_stalls_of_the_instrument_are_bounds(tailscope: Run, runs: Path, tmp_path: Path) -> None:
    """Packets of 5 ms, 4.5 ms of which the instrument may have made."""
    table = pq.read_table(io.BytesIO((runs / "slow" / "latency.parquet").read_bytes()))
    late = np.asarray(table["latency_ns"]) > 1_000_000
    stall_ns = pa.array(np.where(late, 4_500_000, 0).astype(np.uint64))
    stalled = with_column(runs / "slow", "instrument_stall_ns", stall_ns)
    run = changed(runs / "slow", tmp_path / "stalled", stalled, tainted=400)
    found = judged(tailscope, run, "p99<1ms", 3)
    (term,) = found["runs"][0]["terms"]
    assert term["depends_on_instrument"] is True
    assert (term["least"]["verdict"], term["least"]["found"]) == ("pass", 500_000)
    assert term["least"]["packets"] == PACKETS
    assert not undocumented(term["least"], "verdict.md")
    assert_wording("verify/stalled", "; ".join(term["reasons"]))
    said = [
        tailscope("verify", run.name, "--slo", "p99<1ms", *more, cwd=run.parent).stdout
        for more in ((), ("-v",))
    ]
    assert_wording("verify/stalled-in-words", "\n".join(said))
    for slo, status, verdict in (
        ("p99<499us", 2, "fail"),
        ("max<499us", 2, "fail"),
        ("p99<=5ms", 0, "pass"),
        ("p80<1ms", 0, "pass"),
        ("max<2ms", 3, "inconclusive"),
    ):
        assert judged(tailscope, run, slo, status)["verdict"] == verdict, slo


def test_a_device_of_5_ms_is_judged_though_the_instrument_always_stalls_meanwhile(
    tailscope: Run, tmp_path: Path
) -> None:
    """Every packet meets two or three stalls of 50 µs, 2.5 % of all time."""
    stalled = np.arange(PACKETS) % 20 == 0
    latency_ns = np.full(PACKETS, 5_000_000)
    run = write_run(tmp_path / "run", latency_ns, stalled=stalled, stall_ns=50_000)
    for slo, status in (("p50<1ms", 2), ("p50<4.8ms", 2), ("p50<9ms", 0), ("p50<5ms", 3)):
        (term,) = judged(tailscope, run, slo, status)["runs"][0]["terms"]
        assert 4_850_000 <= term["least"]["found"] <= 4_900_000 < term["found"] == 5_000_000
    summary = json.loads((run / "summary.json").read_text())
    assert summary["tainted"] >= PACKETS - 50


def test_of_an_older_run_tainted_samples_may_be_all_the_instruments(
    tailscope: Run, runs: Path, tmp_path: Path
) -> None:
    table = pq.read_table(io.BytesIO((runs / "slow" / "latency.parquet").read_bytes()))
    tainted = pa.array(np.asarray(table["latency_ns"]) > 1_000_000)
    older = with_column(runs / "slow", "tainted", tainted).drop_columns(["instrument_stall_ns"])
    run = changed(runs / "slow", tmp_path / "tainted", older, tainted=400)
    (term,) = judged(tailscope, run, "p99<499us", 3)["runs"][0]["terms"]
    assert (term["least"]["verdict"], term["least"]["found"]) == ("pass", 1_000)
    assert judged(tailscope, run, "p80<1ms", 0)["verdict"] == "pass"


def test_packets_that_the_instrument_lost_or_kept_fail_nothing(
    tailscope: Run, runs: Path, tmp_path: Path
) -> None:
    sent = {"sent": PACKETS + 1_000, "lost": 1_000, "pre_packets": PACKETS + 1_000}
    sent["lost_proven"] = 1_000
    lost = changed(runs / "fast", tmp_path / "lost", **sent, lost_in_instrument=1_000)
    (term,) = judged(tailscope, lost, "loss<1%", 3)["runs"][0]["terms"]
    assert_wording("verify/lost-in-instrument", "; ".join(term["reasons"]))
    unsent = changed(runs / "fast", tmp_path / "unsent", unsent=200)
    (term,) = judged(tailscope, unsent, "p99<1ms", 3)["runs"][0]["terms"]
    assert_wording("verify/unsent", "; ".join(term["reasons"]))
    device = changed(runs / "fast", tmp_path / "device", **sent)
    assert judged(tailscope, device, "loss<1%", 2)["verdict"] == "fail"
    dropped = changed(runs / "fast", tmp_path / "dropped", **sent, dropped_by_dut=1_000)
    assert judged(tailscope, dropped, "loss<1%, lost=0", 0)["verdict"] == "pass"
    assert judged(tailscope, dropped, "dropped=0", 2)["verdict"] == "fail"


def test_a_loss_that_is_not_proven_is_considered_both_ways(
    tailscope: Run, runs: Path, tmp_path: Path
) -> None:
    more = PACKETS + 1_000
    sent = {"sent": more, "pre_packets": more, "lost": 1_000}
    run = changed(runs / "fast", tmp_path / "unproven", **sent, lost_proven=2)
    (term,) = judged(tailscope, run, "loss<1%", 3)["runs"][0]["terms"]
    assert_wording("verify/not-proven", "; ".join(term["reasons"]))
    assert judged(tailscope, run, "lost=0", 2)["verdict"] == "fail"
    assert judged(tailscope, run, "loss<50%", 0)["verdict"] == "pass"


def test_a_folder_of_runs_and_campaigns_is_judged_whole(
    tailscope: Run, runs: Path, tmp_path: Path
) -> None:
    shutil.copytree(runs / "fast", tmp_path / "first")
    shutil.copytree(runs / "slow", tmp_path / "night" / "cell" / "run-1")
    cell = {"name": "cell", "state": "done", "reason": None, "runs": ["cell/run-1"]}
    campaign(tmp_path / "night", [cell])
    found = judged(tailscope, tmp_path, "p99<1ms", 2)
    verdicts = {each["run"]: each["verdict"] for each in found["runs"]}
    assert verdicts == {
        str(tmp_path / "first"): "pass",
        str(tmp_path / "night" / "cell" / "run-1"): "fail",
    }


def test_packets_without_a_latency_pass_and_fail_nothing(
    tailscope: Run, runs: Path, tmp_path: Path
) -> None:
    """They came, divided or merged, or while a clock was in doubt."""
    for name in ("resegmented", "untimed"):
        more = PACKETS + 4_000
        sent = {"sent": more, "pre_packets": more, name: 4_000}
        run = changed(runs / "fast", tmp_path / name, **sent)
        (term,) = judged(tailscope, run, "p99<1ms", 3)["runs"][0]["terms"]
        assert "4,000 packets" in term["reasons"][0]
        assert judged(tailscope, run, "loss<1%", 0)["verdict"] == "pass"
        # Half of all packets were lost, and two of three of those that are timed or lost.
        sent = {"sent": 2 * more, "pre_packets": 2 * more, "lost": more, "lost_proven": more}
        sent[name] = 4_000
        lossy = changed(runs / "fast", tmp_path / f"{name} lossy", **sent)
        assert judged(tailscope, lossy, "loss<51%", 3)["verdict"] == "inconclusive"


def test_packets_alike_pass_and_fail_nothing(tailscope: Run, runs: Path, tmp_path: Path) -> None:
    """Each of them may have taken any time, or been lost."""

    def alike(run: str, count: int) -> Path:
        sent = {"ambiguous": count, "post_ambiguous": count}
        packets = dict.fromkeys(("pre_packets", "post_packets"), PACKETS + count)
        to = tmp_path / f"{run} {count}"
        return changed(runs / run, to, **sent, **packets)

    many = alike("fast", 1_000)
    terms = "p99<1ms, loss<1%, max<1ms, lost=0, duplicated=0, reordered=0"
    for term in judged(tailscope, many, terms, 3)["runs"][0]["terms"]:
        assert term["verdict"] == "inconclusive", term
        assert "1,000 packets" in term["reasons"][0]
        assert_wording("verify/alike", term["reasons"][0])
    assert judged(tailscope, many, "p50<1ms, loss<50%", 0)["verdict"] == "pass"
    (term,) = judged(tailscope, many, "pdv-p99<1us", 3)["runs"][0]["terms"]
    assert "look alike" in term["reasons"][0]
    # A packet in ten of those that are known is too slow, which may be one in fifty of all.
    assert judged(tailscope, alike("slow", 100), "p99<1ms", 2)["verdict"] == "fail"
    assert judged(tailscope, alike("slow", 16_000), "p97<1ms", 3)["verdict"] == "inconclusive"
    assert judged(tailscope, alike("slow", 1), "max<2ms", 2)["verdict"] == "fail"


def test_captures_of_equal_packets_are_inconclusive(tailscope: Run, tmp_path: Path) -> None:
    """Both begin at the same instant in a train of equal packets, each of which takes 5.02 ms."""
    frame = captures.udp(0)
    times = [1_700_000_000 * captures.SECOND + at * 1_000_000 for at in range(2_000)]
    pre = [captures.Packet(ts, len(frame), frame) for ts in times[5:]]
    post = [captures.Packet(ts + 20_000, len(frame), frame) for ts in times[5:]]
    for name, packets in (("pre", pre), ("post", post)):
        (tmp_path / name).write_bytes(captures.pcap(packets))
    done = tailscope("analyze", tmp_path / "pre", tmp_path / "post", "--out", tmp_path / "run")
    assert done.returncode == 3, done.stderr
    assert_wording("analyze/all-alike", done.stdout.split("\n\n")[0])
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["ambiguous"] == len(pre)
    assert f"{len(pre)} packets" in done.stderr + done.stdout
    terms = judged(tailscope, tmp_path / "run", "p50<100us, max<1s, loss<1%", 3)
    for term in terms["runs"][0]["terms"]:
        assert term["verdict"] == "inconclusive"
        assert f"{len(pre):,} packets" in term["reasons"][0]


def test_a_device_that_dies_does_not_pass(tailscope: Run, tmp_path: Path) -> None:
    """Nothing comes out any more, so that nothing tells whether the capture behind it went on."""
    pre, post = captures.pair(tmp_path / "captures", [10_000] * 2_000)
    record = len(captures.pcap(captures.stream([0]))) - len(captures.pcap([]))
    post.write_bytes(post.read_bytes()[: len(captures.pcap([])) + 1_000 * record])
    done = tailscope("analyze", pre, post, "--trim", "0s", "--out", tmp_path / "run")
    run = tmp_path / "run"
    assert json.loads((run / "summary.json").read_text())["outside"] == 1_000
    assert "1000 packets" in done.stdout + done.stderr
    levels = "p99<1ms, loss<1e-2, lost=0, max<1ms, reordered=0"
    for term in judged(tailscope, run, levels, 3)["runs"][0]["terms"]:
        assert term["verdict"] == "inconclusive", term
        assert_wording("verify/outside", term["reasons"][0])
    assert judged(tailscope, run, "p40<1ms", 0)["verdict"] == "pass"
    assert judged(tailscope, run, "p99<1us", 2)["verdict"] == "fail"
    page = tmp_path / "page.html"
    assert tailscope("report", run, "--out", page).returncode == 0
    (heading,) = re.findall(r'<p class="answer">(.*)</p>', page.read_text())
    assert_wording("report/not-judged", re.sub("<[^>]*>", "", heading))


def test_negative_latencies_leave_times_undecided(
    tailscope: Run, runs: Path, tmp_path: Path
) -> None:
    late = {"negative": 3, "post_negative": 3, "sent": PACKETS + 3, "pre_packets": PACKETS + 3}
    post = {"post_packets": PACKETS + 3, "reordered": 0}
    run = changed(runs / "fast", tmp_path / "run", **late, **post)
    found = judged(tailscope, run, "p99<1ms, max<1ms, reordered=0", 3)
    quantile, largest, order = found["runs"][0]["terms"]
    for term in (quantile, largest):
        assert_wording("verify/negative", term["reasons"][0])
    assert order["verdict"] == "pass"


def test_no_packet_at_all_is_inconclusive(tailscope: Run, runs: Path, tmp_path: Path) -> None:
    table = pq.read_table(io.BytesIO((runs / "single" / "latency.parquet").read_bytes()))
    none = dict.fromkeys(("count", "sent", "pre_packets", "post_packets"), 0)
    run = changed(runs / "single", tmp_path / "run", table.slice(0, 0), **none)
    found = judged(tailscope, run, "p99<1ms, max<1ms", 3)
    for term in found["runs"][0]["terms"]:
        assert_wording("verdict/no-packet", "; ".join(term["reasons"]))
    done = tailscope("verify", run, "--slo", "p99<1ms")
    assert "-" in done.stdout


def test_packets_that_were_all_dropped_on_purpose_are_none_to_judge_or_compare(
    tailscope: Run, runs: Path, tmp_path: Path
) -> None:
    """Those that could not be sent are none, either: no further packets would decide."""
    table = pq.read_table(io.BytesIO((runs / "single" / "latency.parquet").read_bytes()))
    of_fate = {"count": 0, "lost": 40, "dropped_by_dut": 40, "unsent": 43}
    packets = {"sent": 40, "pre_packets": 40, "post_packets": 0}
    run = changed(runs / "single", tmp_path / "run", table.slice(0, 0), **of_fate, **packets)
    [term] = judged(tailscope, run, "p99<1ms", 3)["runs"][0]["terms"]
    assert (term["packets"], term["least"]["packets"]) == (43, 0)
    assert term["reasons"][-1].startswith("no packet is left to judge")
    done = tailscope("compare", run, runs / "fast")
    assert (done.returncode, code_of(done)) == (3, "no-comparable-quantile")
    assert "tailscope runs show" in done.stderr


def test_what_cannot_be_judged_is_refused(tailscope: Run, runs: Path, tmp_path: Path) -> None:
    def refused(run: Path, slo: str = "p99<1ms", *options: object, code: str | None = None) -> str:
        done = tailscope("verify", run, "--slo", slo, *options)
        assert done.returncode == 1, done.stdout
        assert "Traceback" not in done.stderr
        assert code_of(done) == code or (code is None and done.stderr.startswith("error: "))
        error: str = done.stderr
        return error

    assert str(tmp_path) in refused(tmp_path)
    assert "urllc-itu?" in refused(runs / "fast", "urllc-ito", code="slo-profile")
    assert "got None" in refused(runs / "fast", "dropped=0", code="count-not-recorded")
    assert "named twice" in refused(
        runs / "fast", "p99<1ms", runs / "fast" / ".", code="run-named-twice"
    )
    assert "got 'xml'" in refused(runs / "fast", "p99<1ms", "--format", "xml", code="format")
    unfinished = tmp_path / "unfinished"
    unfinished.mkdir()
    (unfinished / "run.json").write_text('{"format": 3, "complete": false}')
    assert "never finished" in refused(unfinished)
    bare = changed(runs / "fast", tmp_path / "bare")
    (bare / "latency.parquet").unlink()
    assert "\nhint: " in refused(bare, code="packets-missing")
    for name, value in (("reordered", float("nan")), ("duplicated", "x"), ("late", None)):
        broken = changed(runs / "fast", tmp_path / f"{name} broken", **{name: value})
        assert name in refused(broken)
    table = pq.read_table(io.BytesIO((runs / "fast" / "latency.parquet").read_bytes()))
    fewer = changed(runs / "fast", tmp_path / "fewer", table.slice(1))
    assert "4000 packets" in refused(fewer, code="packets-count")
    assert tailscope("verify", runs / "fast").returncode == 1
    usage = tailscope("verify", "-h").stdout
    assert usage.startswith("Usage")
    assert all(name in usage for name in PROFILES)


@pytest.mark.usefixtures("alone")
def test_the_gate_works_on_measurements(tailscope: Run, measure: Measure) -> None:
    """In 5 ms the instrument always stalls a little: that is no reason not to decide."""
    forwarded = measure("--dut", "l2fwd")["out"]
    passed = tailscope("verify", forwarded, "--slo", "p50<100ms, loss<50%")
    assert passed.returncode == 0, passed.stdout
    too_short = tailscope("verify", forwarded, "--slo", "p99.99999<1s")
    assert too_short.returncode == 3, too_short.stdout
    slowly = ("--rate", "100", "--duration", "500ms")
    delayed = measure("--dut", "delay", "--dut-option", "law=fixed:5ms", *slowly)["out"]
    failed = tailscope("verify", delayed, "--slo", "p50<1ms")
    assert failed.returncode == 2, failed.stdout
    passed = tailscope("verify", delayed, "--slo", "p50<1s")
    assert passed.returncode == 0, passed.stdout
