"""``tailscope plan``: a quantile in, packets and durations out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import captures
import numpy as np
import pytest
from documentation import undocumented
from errors import unwrapped
from wording import assert_wording

if TYPE_CHECKING:
    from pathlib import Path

Run = Callable[..., Any]

PACKETS = 20_000


@pytest.fixture(scope="module")
def runs(tailscope: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of the same latencies: in any order, and with those of a kind together."""
    folder = tmp_path_factory.mktemp("runs")
    alone = np.random.default_rng(1).exponential(2_000, PACKETS).astype(int) + 1_000
    for name, values in (("alone", alone), ("bursts", np.sort(alone))):
        pair = captures.pair(folder / f"{name} pair", values.tolist())
        done = tailscope("analyze", *pair, "--out", folder / name)
        assert done.returncode == 0, done.stderr
    return folder


def planned(tailscope: Run, *options: object, expected: int = 0) -> dict[str, Any]:
    done = tailscope("plan", "--rate", "10k", "--json", "-", *options)
    assert done.returncode == expected, done.stderr
    plan: dict[str, Any] = json.loads(done.stdout)
    assert not undocumented(plan, "verdict.md")
    return plan


def test_what_a_quantile_takes(tailscope: Run) -> None:
    plan = planned(tailscope, "--quantile", 0.99999, "--relative-error", 0.1)
    assert (plan["supported_packets"], plan["supported_s"]) == (1_000_000, 100)
    assert plan["interval_packets"] == plan["bound_0_beyond_packets"] == 299_572
    assert plan["bound_1_beyond_packets"] == 474_385
    assert plan["share_packets"] == 38_414_205
    for name in ("latency_packets", "design_effect", "supported_packets_with_bursts", "reason"):
        assert plan[name] is None
    assert planned(tailscope, "--quantile", 0.9)["share_packets"] is None


@pytest.mark.parametrize("quantile", ["p99.9", "99.9%"])
def test_a_quantile_may_be_written_as_a_percentile(tailscope: Run, quantile: str) -> None:
    assert planned(tailscope, "--quantile", quantile) == planned(tailscope, "--quantile", "0.999")


def test_a_run_says_what_bursts_cost(tailscope: Run, runs: Path) -> None:
    options = ("--quantile", 0.99, "--relative-error", 0.05, "--from")
    alone = planned(tailscope, *options, runs / "alone")
    bursts = planned(tailscope, *options, runs / "bursts")
    assert alone["design_effect"] < 3 < 50 < bursts["design_effect"]
    assert alone["latency_packets"] == bursts["latency_packets"] > PACKETS / 20
    for name in ("supported", "latency"):
        assert bursts[f"{name}_packets_with_bursts"] == pytest.approx(
            bursts[f"{name}_packets"] * bursts["design_effect"], abs=1
        )
        assert bursts[f"{name}_s"] == bursts[f"{name}_packets"] / 10_000


def test_what_the_run_does_not_tell_is_not_guessed(tailscope: Run, runs: Path) -> None:
    options = ("--quantile", 0.99999, "--relative-error", 0.1, "--from", runs / "alone")
    plan = planned(tailscope, *options, expected=3)
    assert plan["latency_packets"] is None
    assert re.findall(r"\b10\b", plan["reason"])
    done = tailscope("plan", "--rate", "10k", *options)
    assert done.returncode == 3
    assert plan["reason"] in unwrapped(done.stdout)


def test_words_say_the_same(tailscope: Run, runs: Path) -> None:
    done = tailscope("plan", "--quantile", "0.99999", "--rate", "10k")
    assert done.returncode == 0, done.stderr
    assert_wording("plan/supported", done.stdout)
    options = ("--quantile", "0.9", "--rate", "10k", "--from", runs / "bursts")
    plan = planned(tailscope, *options[:2], *options[4:])
    done = tailscope("plan", *options)
    assert f"{plan['supported_packets_with_bursts']:,}" in done.stdout


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--quantile", "0", "--rate", "10k"), "--quantile"),
        (("--quantile", "1", "--rate", "10k"), "--quantile"),
        (("--quantile", "nan", "--rate", "10k"), "--quantile: got 'nan', "),
        (("--quantile", "p99%", "--rate", "10k"), "--quantile: got 'p99%', "),
        (("--quantile", "p100", "--rate", "10k"), "--quantile"),
        (("--quantile", "150", "--rate", "10k"), "--quantile: got '150', "),
        (("--quantile", "0.9", "--rate", "0"), "--rate"),
        (("--quantile", "0.9"), "--rate"),
        (("--quantile", "0.9", "--rate", "1k", "--relative-error", "0"), "--relative-error"),
        (("--quantile", "0.9", "--rate", "1k", "--relative-error", "nan"), "--relative-error"),
        (("--quantile", "0.9", "--rate", "1k", "--from", "nowhere"), "nowhere: "),
    ],
)
def test_what_cannot_be_planned_is_refused(
    tailscope: Run, options: tuple[str, ...], named: str
) -> None:
    done = tailscope("plan", *options)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert named in done.stderr
