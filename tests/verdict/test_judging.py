"""Verdicts where the law is known: they are seldom wrong, and inconclusive near the border."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from errors import raises
from wording import assert_wording

from tailscope.engine.analysis import Histogram
from tailscope.exceptions import UsageError
from tailscope.models.counting import (
    design_effect,
    packets_to_settle,
    share_beyond,
    tolerated_design_effect,
)
from tailscope.verdict.evidence import APART, Doubt, Drift, PacketSample, RunSample
from tailscope.verdict.slo import parse_level
from tailscope.verdict.taken import Taken
from tailscope.verdict.verdict import Outcome, TermVerdict, judge, meets, worst

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Values = NDArray[np.float64]

WRONG = 0.05
ROUNDS = pytest.mark.parametrize("runs", [150, pytest.param(1000, marks=pytest.mark.long)])
NONE = dict.fromkeys(("lost", "dropped", "late", "reordered", "duplicated", "corrupt"), 0)


def reading(values: Values | list[float], **counts: int) -> PacketSample:
    values = np.asarray(values, np.float64)
    lost = int(np.isinf(values).sum())
    return PacketSample(Taken.of(values), lost, {**NONE, "lost": lost, **counts})


def evidence(values: Values | list[float], **fields: object) -> RunSample:
    return RunSample("run", 10_000.0, reading(values), **fields)  # type: ignore[arg-type]


def verdict(slo: str, about: RunSample) -> TermVerdict:
    (found,) = judge(parse_level(slo), about).terms
    return found


def verdicts(slo: str, draw: Callable[[np.random.Generator], Values], runs: int) -> Counter[str]:
    level = parse_level(slo)
    return Counter(
        str(judge(level, evidence(draw(np.random.default_rng(seed)))).outcome)
        for seed in range(runs)
    )


def most_wrong(runs: int) -> float:
    """The most wrong verdicts among so many that chance explains."""
    return runs * WRONG + 3 * math.sqrt(runs * WRONG * (1 - WRONG))


def exponential(mean_ns: float, *, loss: float = 0.0) -> Callable[[np.random.Generator], Values]:
    """Independent packets, of which some are lost."""

    def draw(rng: np.random.Generator) -> Values:
        values = rng.exponential(mean_ns, 5_000)
        return np.where(rng.random(5_000) < loss, np.inf, values)

    return draw


def mean_for(share: float, limit_ns: float = 1_000) -> float:
    """The mean of an exponential law with this share beyond a limit."""
    return -limit_ns / math.log(share)


@ROUNDS
@pytest.mark.parametrize(("share", "wrong"), [(0.0102, "pass"), (0.0098, "fail")])
def test_a_term_is_seldom_wrong_near_the_border(share: float, wrong: str, runs: int) -> None:
    found = verdicts("p99<1us", exponential(mean_for(share)), runs)
    assert found[wrong] <= most_wrong(runs), found
    assert found["inconclusive"] > 0.85 * runs, found


@ROUNDS
@pytest.mark.parametrize(
    ("share", "loss", "wrong"),
    [
        (0.0098, 0.0, "fail"),
        pytest.param(0.0102, 0.0, "pass", marks=pytest.mark.long),
        (0.0001, 0.0205, "pass"),
    ],
)
def test_several_terms_together_are_seldom_wrong(
    share: float, loss: float, wrong: str, runs: int
) -> None:
    slo = "p99<1us, p90<600ns, p50<1us, loss<2%, max<1s, reordered=0"
    found = verdicts(slo, exponential(mean_for(share), loss=loss), runs)
    assert found[wrong] <= most_wrong(runs), found


@pytest.mark.parametrize(("share", "right"), [(0.002, "pass"), (0.05, "fail")])
def test_far_from_the_border_it_decides(share: float, right: str) -> None:
    found = verdicts("p99<1us", exponential(mean_for(share)), 100)
    assert found[right] > 95, found


def test_too_short_runs_are_inconclusive() -> None:
    found = verdict("p99.999<1us", evidence(np.full(1_000, 5.0)))
    assert found.outcome is Outcome.INCONCLUSIVE
    assert found.more_packets == 299_572 - 1_000
    assert_wording("verdict/more-packets", "; ".join(found.reasons))


def test_without_packets_that_could_not_be_sent_more_are_needed_still() -> None:
    """Enough for one end is no number of packets for the other."""
    values = np.full(290_000, 5.0)
    about = evidence(values, least=reading(values[:250_000]), spoilt="40000 unsent")
    found = verdict("p99.999<1us", about)
    assert found.outcome is Outcome.INCONCLUSIVE
    assert found.more_packets == math.ceil(299_572 * 290_000 / 250_000) - 290_000
    enough = np.full(300_000, 5.0)
    about = evidence(enough, least=reading(values[:250_000]), spoilt="50000 unsent")
    assert verdict("p99.999<1us", about).outcome is Outcome.PASS, "even the upper end meets it"


def test_no_number_of_packets_settles_what_the_instrument_leaves_open() -> None:
    values = np.full(50_000, 5.0)
    values[:51] = np.inf
    about = evidence(values, least=reading(values[51:]), spoilt="51 packets that were not sent")
    found = verdict("loss<1e-3", about)
    assert found.outcome is Outcome.INCONCLUSIVE
    assert found.more_packets is None
    assert_wording("verdict/no-number-decides", "; ".join(found.reasons))


PACKETS = 20_000


def stalls(
    mean_packets: float, law: str, number: int = 50
) -> Callable[[np.random.Generator], Values]:
    """A queue that stands still now and then: all packets of a stall wait for its end."""

    def draw(rng: np.random.Generator) -> Values:
        values = rng.exponential(0.3, PACKETS)
        for at in rng.uniform(0, PACKETS, rng.poisson(number)):
            lasts = {
                "exponential": lambda: rng.exponential(mean_packets),
                "fixed": lambda: mean_packets,
                "uniform": lambda: rng.uniform(0, 2 * mean_packets),
            }[law]()
            held = np.arange(math.ceil(at), min(PACKETS, math.ceil(at + lasts)))
            values[held] = np.maximum(values[held], at + lasts - held)
        return values * 1_000

    return draw


@ROUNDS
@pytest.mark.parametrize(
    "law",
    ["exponential", *(pytest.param(law, marks=pytest.mark.long) for law in ("fixed", "uniform"))],
)
def test_bursts_do_not_make_it_wrong(law: str, runs: int) -> None:
    draw = stalls(10, law)
    many = np.concatenate([draw(np.random.default_rng(10**6 + seed)) for seed in range(200)])
    for share, wrong in ((0.0054, "pass"), (0.0046, "fail")):
        limit_ns = round(float(np.quantile(many, 1 - share)))
        found = verdicts(f"p99.5<{limit_ns}ns", draw, runs)
        assert found[wrong] <= most_wrong(runs), (share, found)


def test_bursts_far_from_the_border_are_decided() -> None:
    draw = stalls(10, "uniform", 200)
    many = np.concatenate([draw(np.random.default_rng(10**6 + seed)) for seed in range(50)])
    for share, right in ((0.01, "pass"), (0.08, "fail")):
        limit_ns = round(float(np.quantile(many, 1 - share)))
        assert verdicts(f"p97<{limit_ns}ns", draw, 100)[right] > 80


def test_without_a_design_effect_bursts_would_make_it_wrong() -> None:
    """The canary: the same law misleads who takes packets for independent."""
    draw = stalls(10, "exponential")
    many = np.concatenate([draw(np.random.default_rng(10**6 + seed)) for seed in range(200)])
    limit_ns = float(np.quantile(many, 1 - 0.0054))
    passed = sum(
        share_beyond(int((draw(np.random.default_rng(seed)) >= limit_ns).sum()), PACKETS).ci_high
        < 0.005
        for seed in range(200)
    )
    assert passed > 2 * WRONG * 200


def test_a_window_between_stalls_does_not_pass_where_the_run_has_seen_bursts() -> None:
    quiet = np.full(1_000_000, 1_000.0)
    assert verdict("p99.999<1ms", evidence(quiet)).outcome is Outcome.PASS
    stalled = quiet.copy()
    for at in (100_000, 450_000, 800_000):
        stalled[at : at + 30] = 900_000 - 10_000 * np.arange(30)
    found = verdict("p99.999<1ms", evidence(stalled))
    assert found.outcome is Outcome.INCONCLUSIVE
    assert found.as_is.beyond == 0
    assert found.as_is.design_effect > 20


def test_the_design_effect_is_that_of_a_compound_poisson_process() -> None:
    rng = np.random.default_rng(4)
    alone = rng.random(100_000)
    assert design_effect(alone, alone > 0.99) < 2.5
    burst, marks = 20, np.zeros(100_000, bool)
    for at in rng.integers(0, 100_000 - burst, 400):
        marks[at : at + burst] = True
    found = design_effect(marks.astype(float), marks)
    assert found == pytest.approx(1 + 2 * (burst - 1), rel=0.4)
    assert design_effect(np.ones(1), np.ones(1, bool)) == 1
    assert design_effect(np.ones(500), np.zeros(500, bool)) == 1


def test_bounds_are_exact() -> None:
    found = share_beyond(0, 299_572)
    assert found.ci_low == 0
    assert found.ci_high == pytest.approx(1e-5, rel=1e-5)
    assert share_beyond(7, 7).ci_high == 1
    assert share_beyond(7, 7).ci_low == pytest.approx(0.05 ** (1 / 7))
    halved = share_beyond(20, 2_000, design=2)
    assert (halved.ci_low, halved.ci_high) == pytest.approx(
        (share_beyond(10, 1_000).ci_low, share_beyond(10, 1_000).ci_high)
    )
    assert packets_to_settle(10, 1_000, 0.01) is None
    total = packets_to_settle(5, 1_000, 0.01)
    assert total is not None
    assert share_beyond(0.005 * total, total).ci_high < 0.01
    assert share_beyond(0.005 * (total - 1), total - 1).ci_high >= 0.01
    design = tolerated_design_effect(0, 299_572 * 10, 1e-5)
    assert design == pytest.approx(10, rel=0.01)


def test_lost_packets_take_forever() -> None:
    values = np.full(10_000, 1_000.0)
    values[::50] = np.inf
    assert verdict("p99<1ms", evidence(values)).outcome is Outcome.FAIL
    assert verdict("p90<1ms", evidence(values)).outcome is Outcome.PASS
    largest = verdict("max<1ms", evidence(values))
    assert largest.outcome is Outcome.PASS
    assert (largest.as_is.found, largest.as_is.beyond) == (1_000, 0)
    assert verdict("loss<1%", evidence(values)).outcome is Outcome.FAIL
    nothing = verdict("p50<1ms", evidence(np.full(100, np.inf)))
    assert nothing.outcome is Outcome.FAIL
    assert nothing.as_is.found is None
    assert verdict("max<1ms", evidence(np.full(100, np.inf))).outcome is Outcome.FAIL


def test_late_packets_exceed_every_maximum() -> None:
    about = RunSample(
        "run", None, PacketSample(Taken.of(np.array([1.0, np.inf])), 0, {**NONE, "late": 1})
    )
    assert verdict("max<10s", about).outcome is Outcome.FAIL


def test_limits_are_counted_to_the_nanosecond() -> None:
    values = [*range(1, 1_001)]
    assert verdict("p50<501ns", evidence(values)).as_is.beyond == 500
    assert verdict("p50<=501ns", evidence(values)).as_is.beyond == 499
    assert verdict("p99.9<1us", evidence(values)).as_is.found == 999
    assert verdict("pdv-p50<501ns", evidence(values)).as_is.beyond == 499
    assert verdict("pdv-p50<501ns", evidence(values)).as_is.found == 499


@pytest.mark.parametrize("constant", [1.0, 5_000.0])
def test_constant_latencies_have_a_verdict(constant: float) -> None:
    about = evidence(np.full(1_000, constant))
    assert verdict("p99<5us", about).outcome is (Outcome.PASS if constant < 5_000 else Outcome.FAIL)
    assert verdict("pdv-p99<1ns", about).outcome is Outcome.PASS


def test_one_packet_says_little_and_none_nothing() -> None:
    assert verdict("p99<1ms", evidence([5.0])).outcome is Outcome.INCONCLUSIVE
    assert verdict("max<1ms", evidence([5.0])).outcome is Outcome.PASS
    for slo in ("p99<1ms", "max<1ms", "loss<1%", "reordered=0"):
        found = verdict(slo, evidence([]))
        assert found.outcome is Outcome.INCONCLUSIVE
        assert_wording("verdict/no-packet", "; ".join(found.reasons))


@pytest.mark.parametrize(
    ("bad", "code"),
    [(math.nan, "latency-nan"), (-1.0, "latency-negative"), (-math.inf, "latency-negative")],
)
def test_what_is_no_latency_is_refused(bad: float, code: str) -> None:
    with raises(UsageError, code):
        reading([1.0, bad])


def test_it_depends_on_the_instrument_where_its_ends_differ() -> None:
    good, bad = np.full(10_000, 1_000.0), np.full(10_000, 1_000.0)
    bad[::20] = 1e9
    about = evidence(bad, least=reading(good), spoilt="500 stalled")
    found = verdict("p99<1ms", about)
    assert found.outcome is Outcome.INCONCLUSIVE
    assert found.depends_on_instrument
    assert_wording("verdict/depends-on-instrument", "; ".join(found.reasons))
    assert verdict("max<1ms", about).outcome is Outcome.INCONCLUSIVE
    same = evidence(bad, least=reading(bad), spoilt="1 stalled")
    assert verdict("p99<1ms", same).outcome is Outcome.FAIL
    assert not verdict("p99<1ms", same).depends_on_instrument


def test_a_verdict_holds_wherever_the_truth_lies_between_the_ends() -> None:
    """Whatever packets took, it is not judged otherwise; where it decides nothing, both may be."""
    found = Counter[tuple[str, str]]()
    for seed in range(200):
        chance = np.random.default_rng(seed)
        truth = chance.exponential(mean_for(chance.choice([0.001, 0.01, 0.1])), 5_000)
        stall_ns = chance.exponential(300, 5_000) * (chance.random(5_000) < chance.random())
        taken_before = truth - np.minimum(truth, stall_ns * chance.random())
        latency = taken_before + stall_ns
        truth = np.clip(truth, taken_before, latency)
        ends = evidence(latency, least=reading(taken_before), spoilt="stalls")
        known = verdict("p99<1us", evidence(truth)).outcome
        said = verdict("p99<1us", ends).outcome
        found[str(said), str(known)] += 1
    assert not found["pass", "fail"] and not found["fail", "pass"], found
    assert found["pass", "pass"] > 10 and found["fail", "fail"] > 10, found
    assert sum(count for (said, _), count in found.items() if said == "inconclusive") > 10


def test_the_same_ends_are_no_ends() -> None:
    values = np.random.default_rng(1).exponential(300, 5_000)
    plain, both = (evidence(values, **more) for more in ({}, {"least": reading(values)}))
    for slo in ("p99<1us", "pdv-p99<1us", "max<1us", "loss<1%"):
        assert verdict(slo, both).outcome is verdict(slo, plain).outcome


def test_doubts_keep_it_from_a_verdict() -> None:
    fast, slow = np.full(10_000, 1_000.0), np.full(10_000, 1e9)
    partial = (Doubt("it died", of_fail=False),)
    assert verdict("p99<1ms", evidence(fast, doubts=partial)).outcome is Outcome.INCONCLUSIVE
    assert verdict("p99<1ms", evidence(slow, doubts=partial)).outcome is Outcome.FAIL
    clocks = (Doubt("the clocks disagree"),)
    for values in (fast, slow):
        found = verdict("p99<1ms", evidence(values, time_doubts=clocks))
        assert found.outcome is Outcome.INCONCLUSIVE
        assert found.reasons == ("the clocks disagree",)
    assert verdict("reordered=0", evidence(fast, time_doubts=clocks)).outcome is Outcome.PASS
    coarse = verdict("p99<999ns", evidence(fast, resolution_ns=1_000))
    assert_wording("verdict/coarse", "; ".join(coarse.reasons))


def test_no_number_of_packets_settles_what_a_doubt_leaves_open() -> None:
    few = evidence(np.full(1_000, 1_000.0), time_doubts=(Doubt("the device was emulated"),))
    found = verdict("p99.9<1s", few)
    assert (found.outcome, found.more_packets) == (Outcome.INCONCLUSIVE, None)
    assert found.reasons == ("the device was emulated",)


def test_damaged_packets_do_not_hide_a_burst_of_lost_ones() -> None:
    """50 of 100,000 are lost together; 1,000 that came damaged are spread evenly."""
    values = np.full(100_000, 1_000.0)
    values[50_000:50_050] = np.inf
    values[::100] = np.inf
    counts = {**NONE, "lost": 50, "corrupt": 1_000}
    burst = RunSample("run", 10_000.0, PacketSample(Taken.of(values), 50, counts))
    found = verdict("loss<0.1%", burst)
    assert found.outcome is Outcome.INCONCLUSIVE
    assert found.as_is.design_effect == pytest.approx(99, rel=0.05)


def test_relative_latencies_can_fail_and_not_pass() -> None:
    """An offset only adds to what they exceed, but for what drift may have added already."""
    apart: dict[str, Any] = {"time_doubts": (APART,), "drift": Drift(1e6, "it drifts")}
    slow = np.where(np.arange(10_000) % 5 == 0, 2.3e6, 0.0)
    found = verdict("p90<1ms", evidence(slow, **apart))
    assert found.outcome is Outcome.FAIL
    assert_wording("verdict/apart-and-beyond", "; ".join(found.reasons))
    found = verdict("p90<1ms", evidence(slow, **{**apart, "drift": Drift(1.4e6, "it drifts")}))
    assert found.outcome is Outcome.INCONCLUSIVE
    assert found.reasons[0] == APART.reason
    assert_wording("verdict/drift-decides", found.reasons[1])
    lossy = np.where(np.arange(10_000) % 5 == 0, np.inf, 0.0)
    assert verdict("p90<1ms", evidence(lossy, **apart)).outcome is Outcome.FAIL
    fast = verdict("p90<1ms", evidence(slow * 0.1, **apart))
    assert fast.outcome is Outcome.INCONCLUSIVE
    swapped = evidence(slow, doubts=(Doubt("swapped?"),), **apart)
    assert verdict("p90<1ms", swapped).outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("is_relative", [True, False])
def test_a_variation_is_judged_whatever_the_offset_and_a_drift_counts(is_relative: bool) -> None:
    doubts = (APART,) if is_relative else ()
    slow = np.where(np.arange(10_000) % 5 == 0, 2.3e6, 0.0) + 5e6
    for limit, outcome in (
        ("1ms", Outcome.FAIL),
        ("2ms", Outcome.INCONCLUSIVE),
        ("3ms", Outcome.INCONCLUSIVE),
        ("4ms", Outcome.PASS),
    ):
        about = evidence(slow, time_doubts=doubts, drift=Drift(1e6, "it drifts"))
        assert verdict(f"pdv-p90<{limit}", about).outcome is outcome, limit
    disagree = evidence(slow, time_doubts=(Doubt("the clocks disagree"),))
    assert verdict("pdv-p90<4ms", disagree).outcome is Outcome.INCONCLUSIVE


def test_the_range_of_a_quantile_decides_as_its_share_does() -> None:
    values = np.random.default_rng(5).exponential(1_000, 3_000)
    low, high = verdict("p90<3us", evidence(values)).as_is.between or (0.0, 0.0)
    assert 0 < low < 2_303 < high < 3_000
    for limit_ns, outcome in (
        (low - 1, Outcome.FAIL),
        (low + 1, Outcome.INCONCLUSIVE),
        (high - 1, Outcome.INCONCLUSIVE),
        (high + 1, Outcome.PASS),
    ):
        assert verdict(f"p90<{limit_ns:.0f}ns", evidence(values)).outcome is outcome
    few = verdict("p99.9<1us", evidence(values[:50])).as_is.between
    assert few is not None and math.isinf(few[1])


def test_below_the_floor_one_can_pass_and_not_fail() -> None:
    floor = ((0.5, 100.0), (0.99, 5_000.0))
    slow = verdict("p99<4us", evidence(np.full(10_000, 9_000.0), floor=floor))
    assert slow.outcome is Outcome.INCONCLUSIVE
    assert_wording("verdict/below-the-floor", "; ".join(slow.reasons))
    assert verdict("p99<4us", evidence(np.full(10_000, 9.0), floor=floor)).outcome is Outcome.PASS
    slow = verdict("p50<4us", evidence(np.full(10_000, 9_000.0), floor=floor))
    assert slow.outcome is Outcome.FAIL


def test_the_worst_decides() -> None:
    assert worst([]) is Outcome.PASS
    assert worst([Outcome.PASS, Outcome.INCONCLUSIVE]) is Outcome.INCONCLUSIVE
    assert worst([Outcome.FAIL, Outcome.INCONCLUSIVE, Outcome.PASS]) is Outcome.FAIL


def test_more_runs_and_terms_make_it_more_careful() -> None:
    about = evidence(np.full(300, 1.0))
    level = parse_level("p99<1us")
    assert judge(level, about).outcome is Outcome.PASS
    assert judge(level, about, runs=2).outcome is Outcome.INCONCLUSIVE
    assert judge(parse_level("p99<1us, p50<1us"), about).outcome is Outcome.INCONCLUSIVE
    assert judge(parse_level("p99<1us, max<1us"), about).outcome is Outcome.PASS


def test_a_sample_meets_a_level_or_not() -> None:
    latency = Histogram(np.array([10, 2_000], np.uint64), np.array([989, 10], np.uint64))
    figures = {"sent": 1_000, "count": 999, "lost": 1, "reordered": 0}
    for slo, expected in (
        ("p98<1us", True),
        ("p99<1us", False),
        ("p99<=2us", True),
        ("p99.9<2us", False),
        ("p99.9<=2us, loss<=0.1%, max<3us, reordered=0", True),
        ("p99.95<1s", False),
        ("loss<0.1%", False),
        ("lost=1", True),
        ("max<2us", False),
    ):
        assert meets(parse_level(slo), figures, latency) is expected, slo
    least = Histogram(np.array([10, 900], np.uint64), latency.counts)
    assert meets(parse_level("p99<1us"), figures, latency, least) is None
    assert meets(parse_level("p99<800ns"), figures, latency, least) is False
    assert meets(parse_level("p99<3us"), figures, latency, least) is True
    spoilt = {**figures, "lost_in_instrument": 1}
    assert meets(parse_level("loss<1e-9, lost=0"), spoilt, latency)
    assert not meets(parse_level("reordered=0"), {}, Histogram(*np.empty((2, 0), np.uint64)))
