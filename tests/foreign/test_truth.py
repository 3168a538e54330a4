"""The judge itself: it lets the truth pass, and nothing else."""

from __future__ import annotations

import json
from subprocess import CompletedProcess
from typing import Any

import pytest

from .files import packet
from .frames import routed_frame, udp_frame
from .kernel import captured_truth
from .stream import ROUTED
from .truth import Refused, Truth, complaints, exactly, judge

TRUTH = Truth(
    frozenset({"l3"}),
    packets=1000,
    count=exactly(900),
    lost=exactly(10),
    outside=(80, 90),
    ambiguous=(0, 10),
    reordered=exactly(3),
    latency_ns_p50=(20_000, 21_000),
    resolution_ns=exactly(8),
    clock_offset_ns=(-5, 5),
    warns="span",
)
TRUE: dict[str, Any] = {
    **{"match_on": "l3", "count": 900, "lost": 10, "outside": 88, "ambiguous": 2, "reordered": 3},
    **{"late": 0, "negative": 0, "duplicated": 0, "resolution_ns": 8, "clock_offset_ns": 0},
    **{"latency_ns_p50": 20_500, "latency_ns_p50_ci_low": 20_490, "latency_ns_p50_ci_high": 20_510},
    "warnings": ["the common span is 3 s"],
}
REFUSED = Refused("traffic")


def said(status: int, *, stdout: str = "", stderr: str = "") -> CompletedProcess[str]:
    return CompletedProcess([], status, stdout, stderr)


def test_the_truth_passes() -> None:
    assert not complaints(TRUE, TRUTH)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"match_on": "frame"}, "key frame"),
        ({"count": 899, "ambiguous": 3}, "count 899"),
        ({"lost": 11, "outside": 87}, "lost 11"),
        ({"lost": 9, "outside": 89}, "lost 9"),
        ({"outside": 91, "ambiguous": -1}, "outside 91"),
        ({"negative": 1, "ambiguous": 1}, "negative 1"),
        ({"late": 1, "ambiguous": 1}, "late 1"),
        ({"repeated": 1, "ambiguous": 1}, "repeated 1"),
        ({"duplicated": 1}, "duplicated 1"),
        ({"reverse": 5}, "reverse 5"),
        ({"local": 5}, "local 5"),
        ({"reordered": 2}, "reordered 2"),
        ({"ambiguous": 3}, "1001 packets accounted for"),
        ({"latency_ns_p50": 21_500}, "latency_ns_p50 21500"),
        ({"latency_relative": True}, "latency_relative True"),
        ({"resolution_ns": 1}, "resolution_ns 1"),
        ({"resolution_ns": None}, "no resolution_ns"),
        ({"clock_offset_ns": 6}, "clock_offset_ns 6"),
        ({"latency_ns_p50_ci_high": 20_490}, "interval of 0 ns"),
        ({"warnings": ["else"]}, "no warning"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_anything_else_does_not(change: dict[str, Any], complaint: str) -> None:
    found = complaints({**TRUE, **change}, TRUTH)
    assert any(text.startswith(complaint) for text in found), found


def test_clocks_apart_are_told() -> None:
    apart = Truth(
        frozenset({"l3"}), 9, exactly(9), exactly(0), latency_ns_p50=(0, 5), relative=True
    )
    figures = {"match_on": "l3", "count": 9, "lost": 0, "latency_ns_p50": 4, "warnings": []}
    assert complaints(figures, apart)
    assert not complaints({**figures, "latency_relative": True}, apart)
    assert not complaints({**figures, "latency_relative": True, "latency_ns_p50": None}, apart)
    assert complaints({**figures, "latency_relative": True, "latency_ns_p50": 6}, apart)


def test_a_refusal_has_its_status_and_word() -> None:
    fitting = said(1, stderr="error: not the same traffic: ...\nhint: ...\n")
    assert judge(fitting, REFUSED).refused
    assert not judge(fitting, REFUSED).complaints
    assert judge(said(1, stderr="error: no\nhint: traffic\n"), REFUSED).complaints
    assert judge(said(2, stderr="error: not the same traffic\n"), REFUSED).complaints
    assert judge(fitting, TRUTH).complaints


def test_figures_where_nothing_follows_are_wrong() -> None:
    claims = said(0, stdout=json.dumps(TRUE))
    nothing = said(0, stdout=json.dumps({**TRUE, "count": 0, "lost": 0}))
    lenient = Refused("traffic", or_nothing=True)
    assert judge(claims, REFUSED).complaints
    assert judge(nothing, REFUSED).complaints
    assert judge(claims, lenient).complaints
    assert not judge(nothing, lenient).complaints


def test_a_status_that_tells_nothing_goes_with_figures_that_do_not() -> None:
    alike = {**TRUE, "count": 0, "lost": 0}
    complaint = "exit status 3, and packets were matched or lost"
    assert complaint not in judge(said(3, stdout=json.dumps(alike)), TRUTH).complaints
    assert judge(said(3, stdout=json.dumps(TRUE)), TRUTH).complaints == [complaint]


def test_order_is_that_of_times_whatever_the_order_in_a_file() -> None:
    before = [packet(1000 * number, udp_frame(number)) for number in (0, 2, 1, 3)]
    behind = [packet(1000 * number + 500, routed_frame(number)) for number in range(4)]
    truth = captured_truth(before, behind, ROUTED)
    assert (truth.count, truth.reordered) == (exactly(4), exactly(0))
    overtaken = [*behind[:2], behind[3], behind[2]._replace(ts=behind[3].ts + 1)]
    assert captured_truth(before, overtaken, ROUTED).reordered == exactly(1)
