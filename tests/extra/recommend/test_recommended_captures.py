"""Captures that somebody described are recommended like measurements."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import captures
from wording import assert_wording

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Run = Callable[..., Any]


def analysed(tailscope: Run, latencies: list[int], out: Path, *words: str) -> Path:
    """Write a pair of captures and analyse it."""
    (folder := out.with_name(f"{out.name}-pair")).mkdir()
    done = tailscope("analyze", *captures.pair(folder, latencies), "--out", out, *words)
    assert done.returncode == 0, done.stderr
    return out


def test_described_captures_are_recommended_and_compared(tailscope: Run, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    words = ["-D", "dut=l2fwd", "-D", "rate=10k", "-D", "cpu_model=EPYC", "-D", "cards=X710"]
    for name, latency in (("bare", 3_000), ("lxc", 9_000)):
        said = (*words, "-D", f"platform={name}", "-D", "kernel=rt", "-D", "boot=quiet")
        for again in range(3):
            latencies = [latency + (at + again) % 50 for at in range(2_000)]
            analysed(tailscope, latencies, tmp_path / "runs" / f"{name}-{again}", *said)
    runs = (tmp_path / "runs" / "bare-0", tmp_path / "runs" / "lxc-0")
    done = tailscope("recommend", *runs, "--json", "-")
    assert done.returncode == 3
    unsaid = {each["id"]: each["reasons"] for each in json.loads(done.stdout)["unsaid"]}
    assert_wording("recommend/one-run-on-a-side", "; ".join(unsaid["V"]))
    done = tailscope("recommend", *sorted(tmp_path.glob("runs/*-[012]")), "--json", "-")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [each["id"] for each in found["recommendations"]] == ["V"]
    assert found["left_out"] == []
    assert {run["technology"] for run in found["runs"]} == {"bare", "lxc"}
    assert "size" in found["runs"][0]["unsaid"]
    compared = json.loads(tailscope("compare", *runs, "--json", "-").stdout)["comparisons"][0]
    others = {each["name"]: (each["baseline"], each["candidate"]) for each in compared["others"]}
    assert others["plan: platform"] == ("bare", "lxc")


def test_what_nobody_described_is_left_out_with_what_is_missing(
    tailscope: Run, tmp_path: Path
) -> None:
    latencies = [3_000 + at % 50 for at in range(2_000)]
    run = analysed(tailscope, latencies, tmp_path / "a", "-D", "dut=l2fwd", "-D", "rate=10k")
    done = tailscope("recommend", run, "--json", "-")
    assert done.returncode == 3
    (left_out,) = json.loads(done.stdout)["left_out"]
    assert_wording("recommend/nobody-said", left_out["reason"])
