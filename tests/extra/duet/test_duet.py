"""What is said of two set-ups that were measured by turns."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from command import COMMAND
from errors import code_of, raises, unwrapped

from tailscope.compare.limits import parse_limit
from tailscope.exceptions import TestbedError
from tailscope.experiment.fields import plan_of
from tailscope.extra.duet.command import _measure, _tell
from tailscope.extra.duet.judge import Judge
from tailscope.extra.duet.others import Others, OthersHeld
from tailscope.extra.duet.paired import NEVER, Block, Pair, free_ns
from tailscope.noise.intervals import union
from tailscope.noise.tracer import SwitchTracer
from tailscope.testbed.folder import LOCK, Folder
from tailscope.verdict.verdict import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from conftest import Tailscope
    from measurements import Place
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

WINDOW_NS = 5_000_000_000
TOO_SHORT = ("--block", "50ms", "--warm-up", "50ms", "--for", "1ms")
"""Options of a duet that ends after one pair."""


def block(
    rng: np.random.Generator, *, factor: float = 1.0, stalled: float = 0.0, lost: int = 0
) -> Block:
    """A thousand packets around 10 µs, in a block that the machine makes 20 % slower or faster."""
    took = 10_000 * factor * np.exp(0.1 * rng.normal() + 0.2 * rng.normal(size=1000 - lost))
    latency_ns = took.astype(np.int64)
    return quiet(latency_ns, (latency_ns * (1 - stalled)).astype(np.int64), lost)


def quiet(latency_ns: Integers, least_ns: Integers, lost: int = 0) -> Block:
    """A block that met no other program."""
    missing = np.full(lost, WINDOW_NS)
    columns = (np.append(each, missing) for each in (latency_ns, least_ns))
    never = np.full(len(latency_ns) + lost, NEVER)
    return Block(*columns, never, lost, 0.0, OthersHeld.unknown())


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


def test_losses_in_few_blocks_count() -> None:
    """They move no median of pairs, and B loses 2 % all the same."""
    rng, judge = np.random.default_rng(1), Judge([parse_limit("lost>+0.1%")])
    for number in range(25):
        judge.add(Pair(block(rng), block(rng, lost=500 * (number == 7)), b_was_first=False))
    [finding] = judge.findings
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert finding.difference.low <= 0 < finding.difference.high == pytest.approx(0.02)
    assert finding.pairs_to_settle is None


def test_the_last_pairs_count_too() -> None:
    judge = judged("p50>+0.001%", 9)
    [early] = judge.findings
    judge.finish()
    [late] = judge.findings
    assert (early.pairs, late.pairs) == (8, 9)


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
    assert finding.pairs_to_settle is None


def test_both_ends_are_of_all_packets_that_were_sent() -> None:
    found = quiet(np.arange(1, 91), np.arange(0, 90), 10)
    assert found.quantile(0.5, least=False) == 50
    assert found.quantile(0.9, least=False) == 90
    assert found.quantile(0.91, least=False) == WINDOW_NS
    assert found.quantile(0.001, least=True) == 1
    assert math.isclose(found.lost_share, 0.1)


def beside(rng: np.random.Generator, *, took_ns: int, held_ms: float = 8) -> Block:
    """A block of 250 ms whose packets wait for a program that has a CPU half of the time."""
    start_ns = np.cumsum(rng.exponential(2 * held_ms * 1e6, size=60)).astype(np.int64)
    end_ns = start_ns + int(held_ms * 1e6)
    start_ns, end_ns = union(start_ns, end_ns)
    left_ns = np.arange(0, 250_000_000, 100_000)
    back_ns = left_ns + took_ns + rng.integers(0, 1000, len(left_ns))
    at = np.searchsorted(start_ns, back_ns, "right") - 1
    waits = (at >= 0) & (back_ns < end_ns[at])
    back_ns = np.where(waits, end_ns[at], back_ns)
    latency_ns = back_ns - left_ns
    held = OthersHeld(start_ns, end_ns, Counter({"python3": 125_000_000}), 250_000_000)
    free = free_ns(left_ns, left_ns, back_ns, start_ns, end_ns)
    return Block(latency_ns, latency_ns, free, 0, 0.25, held)


@pytest.mark.parametrize(("b_ns", "outcome"), [(200_000, Outcome.PASS), (210_000, Outcome.FAIL)])
def test_a_program_on_the_same_cpus_hides_no_difference(b_ns: int, outcome: Outcome) -> None:
    """Of all packets, the median of a block depends on when the other program ran."""
    rng, judge, medians_ns = np.random.default_rng(1), Judge([parse_limit("p50>+2.5%")]), []
    for number in range(8):
        pair = Pair(*(beside(rng, took_ns=ns) for ns in (200_000, b_ns)), bool(number % 2))
        medians_ns += [block.quantile(0.5, least=False) for block in pair[:2]]
        judge.add(pair)
    assert max(medians_ns) > 1.3 * min(medians_ns)
    [finding] = judge.findings
    assert (finding.outcome, finding.set_aside) == (outcome, 0)
    assert finding.difference.value == pytest.approx(b_ns / 200_000 - 1, abs=0.001)
    assert 0.4 < finding.compared_share < 0.8
    assert judge.others == {"python3": 0.5}


def test_a_program_that_is_gone_may_be_of_a_command(tmp_path: Path) -> None:
    """A device that got slower by what it starts is not told from one beside other programs."""
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    tracer = SwitchTracer(Folder("none", tmp_path), [0])
    for has_children in (False, True):
        others = Others(tracer, tmp_path.name, [0], has_children)
        assert others.is_own(gone.pid) == has_children
        assert not others.is_own(os.getpid())


def test_a_packet_is_chosen_whatever_it_takes() -> None:
    """Who leaves out packets that met a program keeps the fast ones, which are gone before it."""
    rng = np.random.default_rng(1)
    held = [np.array(each) for each in ([10_000_000], [18_000_000])]
    left_ns = np.arange(0, 10_000_000, 1000)
    latency_ns = rng.choice([1_000, 4_000_000], len(left_ns))
    free = free_ns(left_ns, left_ns, left_ns + latency_ns, *held)
    others = OthersHeld(*held, Counter(), 18_000_000)
    one = Block(latency_ns, latency_ns, free, 0, 0.0, others)
    assert Pair(one, one, b_was_first=False).within_ns(0.9) == pytest.approx(4_000_000, rel=0.2)
    chosen = one.latency_ns[one.left_free(4_000_000)]
    assert np.mean(chosen > 1_000) == pytest.approx(np.mean(latency_ns > 1_000), abs=0.02)
    assert one.quantile(0.9, least=False, within_ns=4_000_000) == 4_000_000


def test_all_packets_are_compared_where_none_is_free_for_long_enough() -> None:
    held = np.arange(0, 10_000_000, 100_000), np.arange(50_000, 10_000_000, 100_000)
    left_ns = np.arange(0, 10_000_000, 1000)
    latency_ns = np.full(len(left_ns), 3_000_000)
    free = free_ns(left_ns, left_ns, left_ns + latency_ns, *held)
    one = Block(latency_ns, latency_ns, free, 0, 0.0, OthersHeld(*held, Counter(), 10_000_000))
    assert Pair(one, one, b_was_first=False).within_ns(0.5) == 0
    assert one.left_free(0).all()


def test_pairs_of_which_all_packets_count_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    """That packets met no other program is not said of them."""
    rng, judge = np.random.default_rng(1), Judge([parse_limit("p50>+2.5%")])
    for number in range(8):
        both = [beside(rng, took_ns=200_000) for _ in "ab"]
        if number < 3:
            both = [replace(each, free_ns=np.minimum(each.free_ns, 1)) for each in both]
        judge.add(Pair(*both, bool(number % 2)))
    [finding] = judge.findings
    assert finding.undiscounted == 3
    _tell(judge, 15.0, None, None)
    said = capsys.readouterr().out.splitlines()[0]
    assert re.search(r"in \d\d% of the packets; all packets of 3 pairs count, as too few met", said)


def test_what_another_program_held_up_is_held_until_it_is_back() -> None:
    """It may have to wait for what came while the CPU was taken, and for what came behind that."""
    sent_ns = np.array([5, 15, 22, 26, 35, 60, 95])
    held = np.array([10, 50]), np.array([20, 90])
    back_ns = np.array([6, 25, 27, 28, 36, 1000, 1001])
    assert free_ns(sent_ns, sent_ns, back_ns, *held).tolist() == [5, 0, 0, 0, 15, 0, 0]
    nothing = free_ns(sent_ns, sent_ns, back_ns, held[0][:0], held[1][:0])
    assert (nothing == NEVER).all()


def test_a_burst_that_a_generator_makes_up_for_is_not_compared() -> None:
    """What it did not send while another program had its CPU leaves at once when it is back."""
    meant_ns = np.array([5, 12, 15, 22, 35])
    left_ns = np.array([5, 21, 22, 23, 35])
    back_ns = np.array([8, 24, 27, 29, 38])
    held = np.array([10, 50]), np.array([20, 60])
    assert free_ns(meant_ns, left_ns, back_ns, *held).tolist() == [5, 0, 0, 0, 15]


def test_a_queue_that_another_program_left_is_not_compared() -> None:
    """Others wait behind those that had waited: with them, p90 is 1.7 times the device's own."""
    rng, held_ns, ratios = np.random.default_rng(1), 4_000_000, []
    left_ns = np.arange(0, 250_000_000, 100_000)
    for _ in range(20):
        start_ns = np.cumsum(held_ns + rng.exponential(6e6, 100)).astype(np.int64)
        work_ns = (22_500 * rng.lognormal(0, 0.8, len(left_ns))).astype(np.int64)
        alone_ns = served_ns(left_ns, work_ns, start_ns[:0], held_ns) - left_ns
        back_ns = served_ns(left_ns, work_ns, start_ns, held_ns)
        free = free_ns(left_ns, left_ns, back_ns, start_ns, start_ns + held_ns)
        one = Block(*[back_ns - left_ns] * 2, free, 0, 0.0, OthersHeld.unknown())
        within_ns = Pair(one, one, b_was_first=False).within_ns(0.9)
        found_ns = one.quantile(0.9, least=False, within_ns=within_ns)
        ratios.append(found_ns / np.quantile(alone_ns, 0.9))
    assert np.median(ratios) == pytest.approx(1, abs=0.1)


def served_ns(left_ns: Integers, work_ns: Integers, start_ns: Integers, held_ns: int) -> Integers:
    """When packets are back from a device that works on one at a time, while it has its CPU."""
    back_ns, now_ns, holds_ns = [], 0, [*start_ns.tolist(), NEVER]
    for came_ns, todo_ns in zip(left_ns.tolist(), work_ns.tolist(), strict=True):
        now_ns = max(now_ns, came_ns)
        while now_ns + todo_ns > holds_ns[0]:
            held_at_ns = holds_ns.pop(0)
            todo_ns -= max(0, held_at_ns - now_ns)
            now_ns = max(now_ns, held_at_ns + held_ns)
        now_ns += todo_ns
        back_ns.append(now_ns)
    return np.array(back_ns)


def busy(limit: str, count: int, stalled_share: float) -> Judge:
    rng, judge = np.random.default_rng(1), Judge([parse_limit(limit)])
    for number in range(count):
        both = (replace(block(rng), stalled_share=stalled_share) for _ in "ab")
        judge.add(Pair(*both, bool(number % 2)))
    return judge


def test_a_busy_machine_that_cannot_decide_is_given_up(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    limit = "p50>+0.1%"
    assert busy(limit, 25, 0.3).is_hopeless(pairs_left=5)
    assert not busy(limit, 24, 0.3).is_hopeless(pairs_left=5), "so early, little is known"
    assert not busy(limit, 25, 0.01).is_hopeless(pairs_left=5), "it is not the machine"
    assert not busy(limit, 25, 0.3).is_hopeless(pairs_left=1e6), "there is time"
    assert not busy("p50>+40%", 25, 0.3).is_hopeless(pairs_left=0), "it is decided"
    assert _tell(busy(limit, 25, 0.3), 15.0, None, None) == 3
    said = capsys.readouterr().out
    assert "the generator stood still for 30% of the time" in said
    assert "--cpus" in said and "root" in said


def test_what_is_known_outlasts_a_file_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    junit = tmp_path / "found.xml"
    with pytest.raises(FileNotFoundError):
        _tell(judged("p50>+5%", 8, factor=2.0), 60.0, str(tmp_path / "none" / "it"), junit)
    assert "p50>+5%: fail: " in capsys.readouterr().out
    assert junit.exists()


def test_packets_that_never_came_back_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    """They are why B is slower by so much."""
    _tell(judged("p50>+5%", 8, lost=1000), 60.0, None, None)
    assert (
        "count as the longest latency that is waited for: A 0.0%, B 100.0% of them"
        in capsys.readouterr().out
    )


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
        ("lost>+1%", 8, {}, 0, r"pass: no difference larger than 0\.00%$"),
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


def measured(found: Iterable[Pair], patch: pytest.MonkeyPatch) -> tuple[Judge, float, bool]:
    """Judge pairs, of which more are wanted than there are."""
    patch.setattr("tailscope.extra.duet.pairs.pairs", lambda *_: (yield from found))
    side = plan_of({"dut": "delay"})
    both = ((side, side.cores()),) * 2
    return _measure(both, [parse_limit("p50>+0.001%")], 60, quiet=True)


@pytest.mark.parametrize("count", [7, 8])
def test_an_interrupted_duet_says_what_it_knows(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)

    def interrupted() -> Iterator[Pair]:
        for _ in range(count):
            yield Pair(block(rng), block(rng), b_was_first=False)
        raise KeyboardInterrupt

    if count < 8:
        with pytest.raises(KeyboardInterrupt):
            measured(interrupted(), monkeypatch)
    else:
        judge, _, was_interrupted = measured(interrupted(), monkeypatch)
        assert (judge.pairs, was_interrupted) == (8, True)


def test_nothing_is_compared_with_what_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both lose all: no difference would be seen."""
    nothing = quiet(np.zeros(0, np.int64), np.zeros(0, np.int64), lost=10)
    with raises(TestbedError, "nothing-came-back") as error:
        measured([Pair(nothing, nothing, b_was_first=False)] * 9, monkeypatch)
    assert str(error.value).startswith("A: none of the 10 packets")


@pytest.mark.long
def test_what_a_killed_duet_left_goes_with_the_next(
    tailscope: Tailscope, place: Place, dataplane: Path
) -> None:
    sides = ["{dut: delay}"] * 2
    words = [COMMAND, "compare", "duet", *sides, "--quiet"]
    with subprocess.Popen(words, env=place.environment) as killed:
        while len(place.processes()) < 8:
            time.sleep(0.02)
        killed.kill()
    while place.processes():
        time.sleep(0.02)
    folders = {path.name for path in (place.path / "run").iterdir()}
    assert len(folders) == 4, "two wires of each side"
    done = tailscope("compare", "duet", *sides, *TOO_SHORT, env=place.environment)
    assert {*re.findall(r"killed: \S+/(tailscope-\S+): removed", done.stderr)} >= folders


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
    left = place.path / "run" / f"tailscope-{os.getuid()}-0123abcd"
    left.mkdir(mode=0o700)
    (left / LOCK).touch()
    done = tailscope(
        "compare", "duet", "{dut: l2fwd}", "{dut: l2fwd}", *TOO_SHORT, env=place.environment
    )
    assert f"left by a measurement that was killed: {left}: removed" in unwrapped(done.stderr)
    assert (done.returncode, code_of(done)) == (3, "duet-too-short")
    assert "--for: 1 pair" in done.stderr
    assert "--for " in done.stderr.partition("\nhint: ")[2]
