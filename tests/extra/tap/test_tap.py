"""A tap on a router that loses packets, and what it does without the network."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from errors import code_of
from foreign.kernel import LOSS, send_numbered
from foreign.network import routed_network
from runs import AS_ROOT, needed
from taps import Tap

from tailscope.engine.analysis import analyze
from tailscope.exceptions import TestbedError, UsageError
from tailscope.extra.tap import cards
from tailscope.extra.tap.cards import clock_of_cards
from tailscope.extra.tap.filters import compiled
from tailscope.extra.tap.judge import Judge, Stretches
from tailscope.extra.tap.listener import check_links
from tailscope.extra.tap.metrics import TapMetrics, place_of, publishing
from tailscope.extra.tap.plan import TapPlan, refuse_unknown_terms
from tailscope.host.cards import Offer, stamping
from tailscope.store.reader import read_run
from tailscope.store.records.messages import TapSecond
from tailscope.verdict.slo import parse_level
from tailscope.verdict.verdict import Outcome

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Tailscope

BEGIN_NS = 1_700_000_000 * 10**9


@AS_ROOT
@pytest.mark.usefixtures("dataplane")
def test_a_tap_counts_what_a_router_drops(tailscope: Tailscope, tmp_path: Path) -> None:
    """Every tenth datagram is dropped by a rule, which counts them."""
    needed("ip", "ethtool", "nft", "tcpdump")
    rules = LOSS.format(which="udp dport 5001", every=10)
    with routed_network(rules) as router:
        options = ("--window", "200ms", "--filter", "udp port 5001", "--slo", "lost=0")
        tap = Tap(router, tmp_path, *options, "--keep", 2)
        tap.wait_heard()
        send_numbered(router, "10.2.0.2", 300)
        # What is under way when it ends is not judged.
        subprocess.run(["sleep", "0.5"], check=True)
        status, told = tap.end()
        dropped = router.dropped()
    summary, heard = told[-1]["summary"], told[-1]["tap"]
    assert (status, dropped) == (2, 30)
    assert (summary["sent"], summary["lost"], summary["count"]) == (300, dropped, 270)
    assert (heard["pre"]["received"], heard["post"]["received"]) == (300, 270)
    assert [second["lost"] for second in told[:-1] if second["lost"]] != []
    assert sum(second["matched"] for second in told[:-1]) == 270
    assert [flow["lost"] for flow in heard["flows"]] == [30]
    kept = json.loads((tap.out / "tap.json").read_text())
    assert (kept["alerts"][0]["term"], kept["seconds_missed"]) == ("lost=0", 0)
    assert kept["verdict"]["verdict"] == "fail"
    again = tailscope("verify", tap.out, "--slo", "lost=0")
    assert (again.returncode, code_of(again)) == (1, "packets-left-out")
    worst = sorted((tap.out / "worst").glob("*-pre.pcap"))
    assert 1 <= len(worst) <= 2
    longest = max(worst, key=lambda path: int(path.name.split("-")[1].removesuffix("ns")))
    around = analyze(longest, str(longest).replace("-pre.", "-post."), window="200ms")
    assert around.summary["latency_ns_max"] == summary["latency_ns_max"]
    run = read_run(tap.out)
    assert (run.summary["count"], run.info.clock.source) == (270, "kernel-software")


@pytest.mark.parametrize(
    ("pre", "post", "code"), [("lo", "lo", "tap-link"), ("lo", "no-such", "no-link")]
)
def test_what_cannot_be_tapped_is_refused(pre: str, post: str, code: str) -> None:
    """Neither one interface twice, nor one that is not there."""
    with pytest.raises((UsageError, TestbedError)) as error:
        check_links(pre, post)
    assert error.value.code == code


def test_a_filter_is_compiled_or_refused() -> None:
    """An empty one accepts all."""
    needed("tcpdump")
    assert compiled(" ") == "0"
    length, *instructions = compiled("udp port 5001").split(",")
    assert int(length) == len(instructions)
    assert all(len(each.split()) == 4 for each in instructions)
    for wrong in ("udp prt 1", "vlan 5 and udp"):
        with pytest.raises(UsageError) as error:
            compiled(wrong)
        assert error.value.code == "filter"


def test_terms_that_a_tap_does_not_see_are_refused() -> None:
    """Such as what a device says that it has dropped."""
    for text in ("pdv-p99<1ms", "dropped=0", "corrupt=0"):
        with pytest.raises(UsageError) as error:
            refuse_unknown_terms(parse_level(text))
        assert error.value.code == "slo-figure"
    refuse_unknown_terms(parse_level("p99.9<1ms, loss<1e-3, max<2ms, lost=0, reordered=0"))


def plan(slo: str) -> TapPlan:
    return TapPlan(
        pre="in",
        post="out",
        taps=False,
        card_clock=None,
        filter="",
        program="0",
        match_on="auto",
        window_ns=10**9,
        bucket_ns=100,
        worst=10,
        keep=0,
        lasts_s=None,
        level=parse_level(slo),
        out=None,
        json_file=None,
        metrics=None,
    )


def second(at: int, *, matched: int = 1000, lost: int = 0, beyond: int = 0) -> TapSecond:
    """A second in which so many packets took 1 ms or longer."""
    return TapSecond(
        start_unix_ns=BEGIN_NS + at * 10**9,
        sent=matched + lost,
        matched=matched,
        lost=lost,
        late=0,
        unresolved=0,
        ambiguous=0,
        missed_pre=0,
        missed_post=0,
        latency_ns_quantiles=[1000, 2000, 3000],
        latency_ns_max=4000,
        beyond=[beyond],
        latency_ns_sum=matched * 1000,
        latency_ns_buckets=[(992, matched)],
        lost_flows=[["a > b udp", lost]] if lost else [],
    )


def summary(*, matched: int, lost: int = 0, outside: int = 0) -> dict[str, Any]:
    counts = {"count": matched, "lost": lost, "outside": outside, "late": 0, "ambiguous": 0}
    return {**counts, "latency_ns_max": 4000, "pre_rate_pps": 1000.0}


def judged(slo: str, seconds: list[TapSecond]) -> Judge:
    asked = plan(slo)
    assert asked.level is not None
    judge = Judge(asked.level, asked.limits_ns)
    for each in seconds:
        judge.take(each)
    return judge


def test_alerts_begin_and_end_with_the_seconds_that_do_not_meet_a_term() -> None:
    """An idle second says nothing: an alert goes on through it."""
    asked = plan("p99<1ms")
    assert asked.level is not None
    judge = Judge(asked.level, asked.limits_ns)
    beyond = [0, 10, 11, 50, None, 11, 0, 12]
    changes = [
        judge.take(second(at, matched=0) if slow is None else second(at, beyond=slow))
        for at, slow in enumerate(beyond)
    ]
    told = {at: change for at, change in enumerate(changes) if change}
    assert told == {2: [("p99<1ms", True)], 6: [("p99<1ms", False)], 7: [("p99<1ms", True)]}
    assert [(alert.start_unix_ns, alert.seconds) for alert in judge.end()] == [
        (BEGIN_NS + 2 * 10**9, 3),
        (BEGIN_NS + 7 * 10**9, 1),
    ]
    assert judge.states[0].violated_s == 4


@pytest.mark.parametrize(
    ("slo", "beyond", "lost", "outside", "missed", "expected"),
    [
        ("p99<1ms", 0, 0, 0, 0, Outcome.PASS),
        ("p99<1ms", 20, 0, 0, 0, Outcome.FAIL),
        ("p99<1ms", 0, 20, 0, 0, Outcome.FAIL),
        ("p99<1ms", 10, 0, 0, 0, Outcome.INCONCLUSIVE),
        ("p99<1ms", 0, 0, 5000, 0, Outcome.INCONCLUSIVE),
        ("p99<1ms", 0, 0, 0, 1, Outcome.INCONCLUSIVE),
        ("p99<1ms", 20, 0, 0, 1, Outcome.FAIL),
        ("max<1ms", 1, 0, 0, 0, Outcome.FAIL),
        ("max<1ms", 0, 1, 0, 0, Outcome.PASS),
        ("loss<1e-3", 0, 0, 0, 0, Outcome.PASS),
        ("loss<1e-3", 0, 5, 0, 0, Outcome.FAIL),
        ("loss<1e-3", 0, 0, 500, 0, Outcome.INCONCLUSIVE),
        ("lost=0", 0, 0, 0, 0, Outcome.PASS),
        ("lost=0", 0, 0, 1, 0, Outcome.INCONCLUSIVE),
        ("lost=0", 0, 1, 0, 0, Outcome.FAIL),
    ],
)
def test_a_verdict_holds_whatever_became_of_packets_that_nobody_can_judge(
    slo: str, beyond: int, lost: int, outside: int, missed: int, expected: Outcome
) -> None:
    """Of a hundred seconds with a thousand packets each, alike."""
    seconds = [second(at, matched=1000 - lost, beyond=beyond, lost=lost) for at in range(100)]
    judge = judged(slo, seconds)
    sums = summary(matched=100 * (1000 - lost), lost=100 * lost, outside=outside)
    verdict = judge.judge("tap", sums, missed)
    assert verdict.outcome is expected
    assert verdict.terms[0].term.text == slo


def test_nothing_is_no_evidence() -> None:
    """A term is not met by packets that never came."""
    verdict = judged("p99<1ms", []).judge("tap", summary(matched=0), 0)
    assert verdict.outcome is Outcome.INCONCLUSIVE


def test_stretches_of_days_are_few() -> None:
    """Neighbours become one, and nothing is lost but what is not full yet."""
    stretches = Stretches()
    for at in range(100_000):
        stretches.add(at % 3)
    assert len(stretches.counts) < 4096
    assert sum(stretches.counts) <= 100_000 - 1 < sum(stretches.counts) + 3 * 64


def test_metrics_are_those_of_all_seconds() -> None:
    """As a parser of OpenMetrics reads them."""
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    asked = plan("p99<1ms")
    assert asked.level is not None
    judge = Judge(asked.level, asked.limits_ns)
    metrics = TapMetrics(asked, judge)
    for at in range(3):
        judge.take(second(at, lost=2, beyond=30))
        metrics.take(second(at, lost=2, beyond=30))
    samples = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in parser.text_string_to_metric_families(metrics.text())
        for sample in family.samples
    }
    assert samples["tailscope_tap_packets_total", "matched"] == 3000
    assert samples["tailscope_tap_packets_total", "lost"] == 6
    assert samples["tailscope_tap_lost_by_flow_total", "a > b udp"] == 6
    assert samples["tailscope_tap_latency_seconds_bucket", "2e-06"] == 3000
    assert samples["tailscope_tap_latency_seconds_count",] == 3000
    assert samples["tailscope_tap_second_latency_seconds", "0.99"] == 2e-6
    assert samples["tailscope_tap_slo_violated", "p99<1ms"] == 1
    assert samples["tailscope_tap_slo_violated_seconds_total", "p99<1ms"] == 3


def test_metrics_are_served_or_written(tmp_path: Path) -> None:
    """By the form of the place."""
    from urllib.request import urlopen

    assert place_of("tap.prom") == tmp_path.__class__("tap.prom")
    assert place_of("[::1]:9464") == ("::1", 9464)
    metrics = TapMetrics(plan("p99<1ms"), None)
    with publishing(metrics, ":0") as (file, address):
        assert file is None
        with urlopen(f"http://127.0.0.1:{address.rpartition(':')[2]}") as answer:
            assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
            assert answer.read().decode() == metrics.text()


def test_a_plan_is_shown_without_being_carried_out(tailscope: Tailscope) -> None:
    """Or refused before anything is heard."""
    refused = tailscope("tap", "lo", "lo", "--dry-run")
    assert refused.returncode == 1
    wrong = tailscope("tap", "lo", "eth0", "--slo", "p99")
    assert wrong.returncode == 1
    streams = tailscope("tap", "lo", "eth0", "--match-on", "tcp-bytes")
    assert code_of(streams) == "tap-streams"


@pytest.mark.parametrize(
    ("stamps", "taps", "code"),
    [
        ("card", False, "tap-stamps-leaving"),
        ("card", True, "tap-stamps-card"),
        ("clock", True, "tap-stamps-unknown"),
    ],
)
def test_times_of_cards_are_refused_by_name(stamps: str, taps: bool, code: str) -> None:
    """Of what leaves, of links without such a card, and of nobody that is known."""
    with pytest.raises((UsageError, TestbedError)) as error:
        clock_of_cards(stamps, ("lo", "lo"), taps=taps)
    assert error.value.code == code


def test_a_clock_that_both_cards_have_takes_the_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two clocks are refused: nothing compares them."""
    offers = {"a": Offer(True, True, 3), "b": Offer(True, True, 3), "c": Offer(True, True, 4)}
    monkeypatch.setattr(cards, "offered_stamps", offers.get)
    assert clock_of_cards("card", ("a", "b"), taps=True) == "/dev/ptp3"
    assert clock_of_cards("kernel", ("a", "c"), taps=False) is None
    with pytest.raises(TestbedError) as error:
        clock_of_cards("card", ("a", "c"), taps=True)
    assert error.value.code == "tap-stamps-clocks"


@AS_ROOT
def test_a_driver_that_takes_no_times_is_named() -> None:
    """As that of the loopback."""
    with pytest.raises(TestbedError) as error, stamping("lo"):
        pytest.fail("it takes none")
    assert error.value.code == "card-stamps"
    assert error.value.args[0].startswith("lo: ")
