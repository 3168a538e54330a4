"""Simulated captures: the same for the same seed, and their truth is what the analysis finds."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from captures import packets, pcap
from errors import code_of

from tailscope.cli.status import OF_VERDICTS, UNDECIDED

if TYPE_CHECKING:
    from pathlib import Path

Run = Callable[..., Any]


def simulated(tailscope: Run, out: Path, *options: object, packets: int = 5_000) -> dict[str, Path]:
    done = tailscope("simulate", "--packets", packets, *options, out)
    assert done.returncode == 0, done.stderr
    (pre,), (post,) = out.glob("*-pre-*"), out.glob("*-post-*")
    return {"pre": pre, "post": post, "truth": out / "truth.json"}


def test_a_seed_decides_every_byte(tailscope: Run, tmp_path: Path) -> None:
    options = ("--loss", "0.01", "--reordering", "0.01", "--duplication", "0.01")
    first = simulated(tailscope, tmp_path / "a", "--seed", 7, *options)
    again = simulated(tailscope, tmp_path / "b", "--seed", 7, *options)
    other = simulated(tailscope, tmp_path / "c", "--seed", 8, *options)
    for side in ("pre", "post", "truth"):
        assert first[side].read_bytes() == again[side].read_bytes()
    assert first["post"].read_bytes() != other["post"].read_bytes()


@pytest.mark.parametrize("kind", ["pcap", "pcap.zst", "pcapng", "pcapng.zst"])
def test_the_truth_is_what_is_found(
    tailscope: Run, figures: Callable[..., dict[str, Any]], tmp_path: Path, kind: str
) -> None:
    options = ("--loss", "0.02", "--duplication", "0.03", "--reordering", "0.02")
    files = simulated(tailscope, tmp_path, "--seed", 3, "--format", kind, *options)
    totals = json.loads(files["truth"].read_text())["totals"]
    found = figures(files["pre"], files["post"])
    assert found["match_on"] == "probe"
    assert found["pre_packets"] == totals["pre_packets"] == 5_000
    assert found["post_packets"] == totals["post_packets"]
    assert found["count"] == totals["delivered"]
    assert found["lost"] == totals["lost"] > 0
    assert found["duplicated"] == totals["duplicated"] > 0
    assert found["reordered"] > 0
    assert found["late"] == found["ambiguous"] == found["negative"] == 0


def test_a_clock_that_is_behind_makes_negative_latencies(
    tailscope: Run, figures: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    files = simulated(tailscope, tmp_path, "--seed", 1, "--clock-offset", -1_000_000)
    done = tailscope("analyze", files["pre"], files["post"], "--clocks", "same")
    assert (done.returncode, code_of(done)) == (1, "swapped-or-apart")
    found = figures(files["pre"], files["post"])
    assert (found["negative"], found["lost"], found["count"]) == (0, 0, 5_000)
    assert found["latency_relative"]
    found = figures(files["pre"], files["post"], "--clocks", "offset=-1ms")
    assert (found["negative"], found["count"], found["latency_relative"]) == (0, 5_000, False)


_DRIFTS = ("--seed", 3, "--rate", 1000, "--latency", "uniform:5us,8us", "--clock-drift")
"""Ten seconds of a clock behind the device that drifts."""
_LASTS = 10_000


def test_who_knows_an_offset_is_told_the_drift(
    tailscope: Run, figures: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    offset = ("--clock-offset", 40_000_000)
    files = simulated(tailscope, tmp_path, *_DRIFTS, 8_000, *offset, packets=_LASTS)
    taps, told = (files["pre"], files["post"]), []
    for clocks in ("offset=40ms", "offset=40ms,drift=8ppm", "offset=40ms,drift=0ppm"):
        found = figures(*taps, "--clocks", clocks)
        assert (found["clock_offset_ns"], found["latency_relative"]) == (40_000_000, False)
        told.append(found)
    estimated, known, refused = told
    assert abs(estimated["clock_drift_ppm"] - 8) <= estimated["clock_drift_ppm_error"] < 0.5
    assert abs(estimated["latency_ns_p50"] - known["latency_ns_p50"]) < 2_000
    assert (known["clock_drift_ppm"], known["clock_drift_ppm_error"]) == (8, 0)
    assert refused["clock_drift_ppm"] == 0
    assert refused["latency_ns_p50"] > known["latency_ns_p50"] + 30_000
    done = tailscope("analyze", *taps, "--clocks", "offset=40ms,drift=8")
    assert (done.returncode, code_of(done)) == (1, "clocks")


def test_of_short_captures_a_drift_is_bounded_and_left_in(
    tailscope: Run, figures: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    drifts = ("--seed", 1, "--clock-offset", 1_000_000, "--clock-drift", 80_000)
    files = simulated(tailscope, tmp_path / "taps", *drifts, "--latency", "uniform:5us,8us")
    taps, out = (files["pre"], files["post"]), tmp_path / "run"
    found = figures(*taps, "--clocks", "offset=1ms", "--out", out)
    assert found["clock_drift_ppm"] == 0
    assert 80 <= found["clock_drift_ppm_error"] < 100
    off_ns = round(1_000 * found["clock_drift_ppm_error"] * found["span_s"])
    p50_ns = found["latency_ns_p50"]
    for limit_ns in (p50_ns - 5_000, p50_ns + 5_000):
        done = tailscope("verify", out, "--slo", f"p50<{limit_ns}ns, pdv-p50<{limit_ns}ns")
        assert done.returncode == UNDECIDED, done.stdout
    above_ns = p50_ns + off_ns + 12_000
    done = tailscope("verify", out, "--slo", f"p50<{above_ns}ns, pdv-p50<{above_ns}ns")
    assert done.returncode == 0, done.stdout
    known = tmp_path / "known"
    figures(*taps, "--clocks", "offset=1ms,drift=80ppm", "--out", known)
    assert tailscope("verify", known, "--slo", "p50<8us").returncode == 0


def test_of_a_few_packets_no_drift_is_known(
    tailscope: Run, figures: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    offset = ("--seed", 1, "--clock-offset", 1_000_000)
    files = simulated(tailscope, tmp_path / "taps", *offset, packets=100)
    out = tmp_path / "run"
    found = figures(files["pre"], files["post"], "--clocks", "offset=1ms", "--out", out)
    assert found["clock_drift_ppm_error"] is None
    (warning,) = found["warnings"]
    assert "whether it drifts is not known" in warning
    done = tailscope("verify", out, "--slo", "p50<12us")
    assert done.returncode == UNDECIDED, done.stdout
    assert "drift=PPM" in " ".join(done.stdout.split())
    assert tailscope("verify", out, "--slo", "p50<20us").returncode == 0


def test_an_unknown_offset_leaves_variations_to_be_judged(
    tailscope: Run, figures: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    offset = (*_DRIFTS, 8_000, "--clock-offset", -40_000_000)
    files = simulated(tailscope, tmp_path / "taps", *offset, packets=_LASTS)
    out = tmp_path / "run"
    assert figures(files["pre"], files["post"], "--clocks", "estimate", "--out", out)[
        "latency_relative"
    ]
    assert tailscope("verify", out, "--slo", "pdv-p90<4us").returncode == 0
    assert tailscope("verify", out, "--slo", "pdv-p90<1us").returncode == OF_VERDICTS["fail"]
    assert tailscope("verify", out, "--slo", "p90<20us").returncode == UNDECIDED


def test_a_small_drift_is_said_and_decides_no_verdict(
    tailscope: Run, figures: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """It may be the device that warms up; who says that there are two clocks has it taken out."""
    files = simulated(tailscope, tmp_path / "taps", *_DRIFTS, 300, packets=_LASTS)
    taps, out = (files["pre"], files["post"]), tmp_path / "run"
    found = figures(*taps, "--out", out)
    assert found["clock_drift_suspected_ns"] == pytest.approx(3_000, rel=0.2)
    assert not found["latency_relative"]
    assert any("say --clocks estimate" in warning for warning in found["warnings"])
    p50_ns = found["latency_ns_p50"]
    for limit_ns in (p50_ns - 1_000, p50_ns + 1_000):
        done = tailscope("verify", out, "--slo", f"p50<{limit_ns}ns")
        assert done.returncode == UNDECIDED, done.stdout
    assert tailscope("verify", out, "--slo", f"p50<{p50_ns + 4_000}ns").returncode == 0
    assert tailscope("verify", out, "--slo", f"p50<{p50_ns - 4_000}ns").returncode != 0
    estimated = figures(*taps, "--clocks", "estimate")
    assert abs(estimated["clock_drift_ppm"] - 0.3) <= estimated["clock_drift_ppm_error"] < 0.3
    assert estimated["clock_drift_suspected_ns"] is None
    assert figures(*taps, "--clocks", "same")["clock_drift_suspected_ns"] is None


def test_differences_are_as_uncertain_as_a_small_drift(
    tailscope: Run, figures: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    runs = []
    for name, law, drift_ppb in (
        ("steady", "uniform:5us,8us", 0),
        ("drifts", "uniform:6us,9us", 300),
        ("slow", "uniform:10us,13us", 300),
    ):
        law_and_drift = ("--seed", 3, "--rate", 1000, "--latency", law, "--clock-drift", drift_ppb)
        files = simulated(tailscope, tmp_path / f"{name}-taps", *law_and_drift, packets=_LASTS)
        figures(files["pre"], files["post"], "--out", tmp_path / name)
        runs.append(tmp_path / name)
    steady, drifts, slow = runs
    baseline = tmp_path / "baseline.json"
    assert tailscope("compare", "save", drifts, "--out", baseline).returncode == 0
    for command, verdict in (
        (("compare", steady, drifts), "no difference"),
        (("compare", steady, slow), "higher"),
        (("compare", "baseline", baseline, steady), "no difference"),
    ):
        (pair,) = json.loads(tailscope(*command, "--json", "-").stdout)["comparisons"]
        verdicts = {each["figure"]: each["verdict"] for each in pair["figures"]}
        assert verdicts["p50"] == verdict
        assert any("clocks may drift" in warning for warning in pair["warnings"])


def test_latencies_above_the_least_are_called_so(tailscope: Run, tmp_path: Path) -> None:
    files = simulated(tailscope, tmp_path / "taps", "--seed", 1, "--clock-offset", -1_000_000)
    out = tmp_path / "run"
    done = tailscope("analyze", files["pre"], files["post"], "--out", out)
    assert done.stdout.startswith("Above the least: median ")
    assert "latency above the least, packets" in done.stdout
    assert "Above the least: median " in (out / "report.html").read_text()
    assert "All times are above the least" in tailscope("explain", out).stdout
    known = tailscope("analyze", files["pre"], files["post"], "--clocks", "offset=-1ms")
    assert known.stdout.startswith("Median ") and "above the least" not in known.stdout


def test_what_came_before_the_first_capture_began_swaps_none(
    tailscope: Run, figures: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """Packets that are behind the device alone tell only where both captures run."""
    offset = ("--seed", 1, "--clock-offset", -1_000_000)
    files = simulated(tailscope, tmp_path, *offset, "--latency", "lognormal:5us,0.8")
    sent = packets(files["pre"].read_bytes())
    late, holey = tmp_path / "late.pcap", tmp_path / "holey.pcap"
    late.write_bytes(pcap(sent[1_000:]))
    found = figures(late, files["post"])
    assert (found["count"], found["lost"], found["latency_relative"]) == (4_000, 0, True)
    holey.write_bytes(pcap([packet for at, packet in enumerate(sent) if at % 100]))
    done = tailscope("analyze", holey, files["post"])
    assert (done.returncode, code_of(done)) == (1, "swapped-or-apart")


def test_losses_do_not_tell_the_order_of_captures(
    tailscope: Run, figures: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """A capture that drops packets looks the same, whichever way both are given."""
    law = ("--latency", "constant:5us", "--stall-duration", "0ns", "--clock-offset", -1_000_000)
    files = simulated(tailscope, tmp_path, "--seed", 1, "--loss", "0.02", *law)
    taps = (files["pre"], files["post"])
    done = tailscope("analyze", *taps)
    assert (done.returncode, code_of(done)) == (1, "swapped-or-apart")
    found = figures(*taps, "--clocks", "estimate")
    assert found["lost"] > 20
    assert found["latency_relative"]
    one_clock = simulated(tailscope, tmp_path / "one", "--seed", 1)
    seen = packets(one_clock["pre"].read_bytes())
    dropped = tmp_path / "dropped.pcap"
    dropped.write_bytes(pcap([packet for at, packet in enumerate(seen) if at % 50]))
    done = tailscope("analyze", one_clock["post"], dropped)
    assert (done.returncode, code_of(done)) == (1, "swapped-or-apart")
    out = tmp_path / "swapped"
    swapped = tailscope("analyze", files["post"], files["pre"], "--json", "-", "--out", out)
    assert swapped.returncode == 0, swapped.stderr
    (warning,) = json.loads(swapped.stdout)["warnings"]
    assert "may be swapped" in warning
    verdict = tailscope("verify", out, "--slo", "max<2ms, loss<1%", "--json", "-")
    assert verdict.returncode == UNDECIDED, verdict.stdout
    for term in json.loads(verdict.stdout)["runs"][0]["terms"]:
        assert any("may be swapped" in reason for reason in term["reasons"])


def test_losses_that_come_late_tell_the_order_of_captures(
    tailscope: Run, figures: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """Swapped, they look right: the second clock is early, and the first packets all match."""
    law = ("--latency", "lognormal:5us,0.5", "--clock-offset", -1_000_000)
    files = simulated(tailscope, tmp_path, "--seed", 1, *law, packets=40_000)
    seen = packets(files["post"].read_bytes())
    late = tmp_path / "late.pcap"
    late.write_bytes(pcap([packet for at, packet in enumerate(seen) if at < 20_000 or at % 20]))
    assert figures(files["pre"], late, "--clocks", "estimate")["lost"] == 1_000
    found = figures(late, files["pre"])
    assert (found["lost"], found["order_doubtful"], found["latency_relative"]) == (0, True, False)
    assert not figures(files["post"], files["pre"])["order_doubtful"]


def test_latencies_of_unknown_offset_are_not_faster(
    tailscope: Run, figures: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    for name, offset_ns in (("a", 0), ("b", -3_000_000_000)):
        files = simulated(tailscope, tmp_path / name, "--seed", 1, "--clock-offset", offset_ns)
        found = figures(files["pre"], files["post"], "--out", tmp_path / "runs" / name)
        assert found["latency_relative"] == (name == "b")
    done = tailscope("compare", *(tmp_path / "runs" / name for name in "ab"), "--json", "-")
    rows = {row["figure"]: row for row in json.loads(done.stdout)["comparisons"][0]["figures"]}
    assert rows["p50"]["verdict"] == "unclear" and "offset" in rows["p50"]["reason"]
    assert rows["lost"]["verdict"] == "no difference"
    saved = tmp_path / "b.json"
    assert tailscope("compare", "save", tmp_path / "runs" / "b", "--out", saved).returncode == 0
    words = ("compare", "baseline", saved, tmp_path / "runs" / "a", "--json", "-")
    again = json.loads(tailscope(*words).stdout)["comparisons"][0]["figures"]
    assert {row["figure"]: row["verdict"] for row in again}["p50"] == "unclear"


def test_a_constant_latency_is_measured(
    tailscope: Run, figures: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    law = ("--latency", "constant:5us", "--stall-duration", "0ns")
    files = simulated(tailscope, tmp_path, "--seed", 1, *law)
    found = figures(files["pre"], files["post"])
    assert found["latency_ns_min"] >= 5_000 - 13
    assert found["latency_ns_max"] <= 5_000 + 13
    assert found["pre_gap_ns_mean"] == pytest.approx(100_000, rel=1e-4)


def test_a_device_that_takes_batches_lets_them_go_together(
    tailscope: Run, figures: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """Bursts of 8, of which it takes 4 at a time, each for 10 µs; 15 µs are on the way."""
    law = ("--latency", "constant:25us", "--stall-duration", "0ns", "--pattern", "burst:8,0ns")
    batches = ("--service", "10us", "--batch", 4)
    files = simulated(tailscope, tmp_path, "--seed", 1, *law, *batches)
    found = figures(files["pre"], files["post"])
    assert found["latency_ns_min"] == pytest.approx(15_000 + 4 * 10_000, abs=13)
    assert found["latency_ns_max"] == pytest.approx(15_000 + 8 * 10_000, abs=13)


@pytest.mark.parametrize(
    ("option", "value", "code"),
    [
        ("--loss", "1.5", "bad-parameter"),
        ("--batch", "0", "bad-parameter"),
        ("--rate", "0", "rate"),
        ("--latency", "soon", "latency-law"),
        ("--size", "1", "bad-parameter"),
        ("--format", "csv", "format"),
    ],
)
def test_what_cannot_be_is_refused(
    tailscope: Run, tmp_path: Path, option: str, value: str, code: str
) -> None:
    done = tailscope("simulate", "--seed", 1, tmp_path / "out", option, value)
    assert (done.returncode, code_of(done)) == (1, code)
    assert not list(tmp_path.rglob("*.pcap*"))
