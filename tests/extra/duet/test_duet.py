"""What is said of two set-ups that were measured by turns."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING

import numpy as np
import pytest
from errors import code_of

from tailscope.compare.limits import parse_limit
from tailscope.extra.duet.command import _tell
from tailscope.extra.duet.judge import Judge
from tailscope.extra.duet.paired import Block, Pair
from tailscope.verdict.verdict import Outcome

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Tailscope
    from measurements import Place

WINDOW_NS = 5_000_000_000


def block(
    rng: np.random.Generator, *, factor: float = 1.0, stalled: float = 0.0, lost: int = 0
) -> Block:
    """A thousand packets around 10 µs, in a block that the machine makes 20 % slower or faster."""
    took = 10_000 * factor * np.exp(0.1 * rng.normal() + 0.2 * rng.normal(size=1000 - lost))
    latency_ns = np.sort(took).astype(np.int64)
    return Block(latency_ns, (latency_ns * (1 - stalled)).astype(np.int64), 1000, WINDOW_NS)


def judged(limit: str, count: int, seed: int = 1, **b: float) -> Judge:
    rng, judge = np.random.default_rng(seed), Judge([parse_limit(limit)])
    for number in range(count):
        judge.add(Pair(block(rng), block(rng, **b), bool(number % 2)))  # type: ignore[arg-type]
    return judge


def test_what_is_much_slower_is_found_at_the_first_look() -> None:
    judge = judged("p99>+10%", 8, factor=2.0)
    [finding] = judge.findings
    assert (judge.is_decided, finding.outcome, finding.is_real) == (True, Outcome.FAIL, True)
    assert 0.5 < finding.difference.low < 1 < finding.difference.high < 1.6


def test_what_is_alike_passes_when_there_are_enough_pairs() -> None:
    [early] = judged("p50>+5%", 8).findings
    assert early.outcome is Outcome.INCONCLUSIVE
    assert early.pairs_to_settle is not None and early.pairs_to_settle > 8
    [late] = judged("p50>+5%", 200).findings
    assert (late.outcome, late.is_real) == (Outcome.PASS, False)
    assert -0.05 < late.difference.low < 0 < late.difference.high <= 0.05


def test_nothing_is_said_before_the_first_look() -> None:
    judge = judged("p50>+5%", 7)
    assert (judge.findings, judge.left, judge.is_decided) == ([], 1, False)


def test_a_difference_in_time_has_its_unit() -> None:
    [finding] = judged("p50>+5us", 30, factor=2.0).findings
    assert finding.outcome is Outcome.FAIL
    assert 8_000 < finding.difference.value < 12_000
    assert finding.record()["unit"] == "ns"


def test_packets_that_never_came_count() -> None:
    """Without the slowest ones, the others look faster."""
    [quantile] = judged("p99>+10%", 8, lost=20).findings
    assert quantile.outcome is Outcome.FAIL
    [lost] = judged("lost>+1%", 8, lost=20).findings
    assert lost.outcome is Outcome.FAIL
    assert lost.difference.value == pytest.approx(0.02)


def test_blocks_in_which_the_instrument_stalled_are_set_aside() -> None:
    [finding] = judged("p50>+5%", 8, stalled=0.6).findings
    assert (finding.pairs, finding.set_aside) == (0, 8)
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert json.dumps(finding.record(), allow_nan=False)


def test_what_depends_on_the_instrument_is_not_decided() -> None:
    """With its stalls B is slower than allowed, without them it is not."""
    [finding] = judged("p50>+5%", 200, factor=1.2, stalled=0.2).findings
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert finding.difference.low < 0.05 < finding.difference.high


def test_both_ends_are_of_all_packets_that_were_sent() -> None:
    found = Block(np.arange(1, 91), np.arange(0, 90), 100, WINDOW_NS)
    assert found.quantile(0.5, least=False) == 50
    assert found.quantile(0.9, least=False) == 90
    assert found.quantile(0.91, least=False) == WINDOW_NS
    assert found.quantile(0.001, least=True) == 1
    assert math.isclose(found.lost_share, 0.1)


@pytest.mark.parametrize(
    ("limit", "count", "b", "status", "said"),
    [
        ("p50>+5%", 8, {"factor": 2.0}, 2, r"fail: B is slower, by \d\d\.\d+% to 1\d\d\.\d+%$"),
        ("p50>+5us", 8, {"factor": 0.5}, 0, r"pass: B is faster, by 4\.\d+ µs to 6\.\d+ µs$"),
        ("p50>+9%", 100, {}, 0, r"pass: no difference larger than \d\.\d+%$"),
        ("p50>+1%", 8, {}, 3, r"inconclusive: no difference .*; about .* more would settle it"),
        (
            "p50>+5%",
            8,
            {"stalled": 0.6},
            3,
            r"nothing can be said of a difference; 8 pairs set aside",
        ),
        ("lost>+1%", 8, {"lost": 20}, 2, r"fail: B loses more, by 2\.00% to 2\.00%$"),
    ],
)
def test_what_is_found_is_said(
    limit: str,
    count: int,
    b: dict[str, float],
    status: int,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert _tell(judged(limit, count, **b), 60.0, None, tmp_path / "found.xml") == status
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{limit}: ")
    assert re.search(said, first)
    assert last.startswith(f"{count} pairs") and "1.0 min" in last
    assert first.partition(": ")[2].partition(": ")[2] in (tmp_path / "found.xml").read_text()


@pytest.mark.long
def test_a_device_that_is_slower_is_found(
    tailscope: Tailscope, place: Place, dataplane: Path
) -> None:
    sides = [f"{{dut: delay, dut_options: {{law: 'fixed:{law}'}}}}" for law in ("20ms", "60ms")]
    quick = (
        "--block",
        "100ms",
        "--warm-up",
        "50ms",
        "--for",
        "60s",
        "--rate",
        "1k",
        "--fail-on",
        "p50>+20%",
    )
    done = tailscope(
        *("compare", "duet", *sides, *quick, "--json", "-", "--junit", place.path / "found.xml"),
        env=place.environment,
    )
    assert done.returncode == 2, done.stderr
    found = json.loads(done.stdout)
    [limit] = found["limits"]
    assert (found["verdict"], limit["verdict"]) == ("fail", "fail")
    assert limit["difference_ci_low"] > 0.2
    assert "B is slower" in (place.path / "found.xml").read_text()


@pytest.mark.parametrize(
    ("side", "names", "code"),
    [
        ("l2fwd", "A: got 'l2fwd'", "duet-setup"),
        ("{dut: l2fwd, duration: 3s}", "A: duration: ", "duet-field"),
        ("{dut: l2fwd, speed: 3}", "A: speed: ", "duet-field"),
        ("{dut: l2fwd, dut: delay}", "A:1: dut: ", None),
        ("{dut: l2fwd, direction: both}", "A: ", "one-device"),
        ("{}", "--dut: got none", None),
    ],
)
def test_a_side_that_is_none_is_named(
    tailscope: Tailscope, side: str, names: str, code: str | None
) -> None:
    done = tailscope("compare", "duet", side, "{dut: l2fwd}", "--dry-run")
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {names}")
    assert code_of(done) == code or code is None


def test_too_little_time_says_how_much_is_needed(
    tailscope: Tailscope, place: Place, dataplane: Path
) -> None:
    quick = ("--block", "50ms", "--warm-up", "50ms", "--for", "1ms")
    done = tailscope(
        "compare", "duet", "{dut: l2fwd}", "{dut: l2fwd}", *quick, env=place.environment
    )
    assert (done.returncode, code_of(done)) == (3, "duet-too-short")
    assert "--for: 1 pair" in done.stderr
    assert "--for " in done.stderr.partition("\nhint: ")[2]
