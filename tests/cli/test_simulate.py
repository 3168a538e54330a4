"""Simulated captures: the same for the same seed, and their truth is what the analysis finds."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from captures import packets, pcap
from errors import code_of

from tailscope.cli.status import UNDECIDED

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


def test_losses_tell_the_order_of_captures(
    tailscope: Run, figures: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    """Where latencies are as likely above the median as below, and clocks are apart."""
    law = ("--latency", "constant:5us", "--stall-duration", "0ns", "--clock-offset", -1_000_000)
    files = simulated(tailscope, tmp_path, "--seed", 1, "--loss", "0.02", *law)
    found = figures(files["pre"], files["post"])
    assert found["lost"] > 20
    assert found["latency_relative"]
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
